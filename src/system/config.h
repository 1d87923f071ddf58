// Reading TOML: one table at a time, with the place of every key for messages, and no key left unread in silence.
//
//   Config model = Config::file("configs/models/x.toml");
//   const int64_t kernel = layer.integer("kernel", {.low = 1});       // required
//   const double rate = layer.number("rate", 0.5, {.low = 0, .high = 1});  // optional
//   layer.finish();  // throws if the table holds a key that was not read
//
// Errors read `configs/models/x.toml:31: [[layer]] conv2: no key 'kernal' (keys: ...); did you mean 'kernel'?`
// A Config is a cheap handle; a copy keeps its own list of the keys that were read, so several ranks may read one
// table.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace owt {

struct Range {  // the numbers allowed, both ends included
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
};

struct Recipe;  // a document and its edits; src/system/toml_document.h

class Config {
 public:
  static Config file(const std::string& path);                                  // throws: missing file, bad syntax
  static Config text(std::string_view text, const std::string& name = "text");  // messages name the file `name`

  // Sets a dotted key of a whole document from the command line, `schedule.epochs` = `3`. A value that is not TOML is
  // taken as a string; an empty one removes the key. Copies of this Config made earlier do not change.
  void set(const std::string& dotted_key, const std::string& value);
  // Puts another table under a key (an included file in place of its name); messages keep naming its own file.
  void put(const std::string& key, const Config& table);

  bool has(const std::string& key) const;
  bool given(const std::string& key);  // has(), and marks the key as read even if it is missing
  bool is_table(const std::string& key) const;
  bool is_array(const std::string& key) const;
  bool is_string(const std::string& key) const;
  bool is_infinite(const std::string& key) const;  // inf, which no function below accepts as a number

  // Values. Without a default the key is required.
  int64_t integer(const std::string& key, Range = {});
  int64_t integer(const std::string& key, int64_t otherwise, Range = {});
  double number(const std::string& key, Range = {});
  double number(const std::string& key, double otherwise, Range = {});
  bool boolean(const std::string& key, bool otherwise);
  std::string string(const std::string& key);
  std::string string(const std::string& key, const std::string& otherwise);
  // One of a list of words.
  std::string word(const std::string& key, const std::vector<std::string>& words);
  std::string word(const std::string& key, const std::string& otherwise, const std::vector<std::string>& words);
  std::vector<int64_t> integers(const std::string& key);
  std::vector<double> numbers(const std::string& key);
  std::vector<std::string> strings(const std::string& key);  // empty if the key is missing
  // The table under this key; an empty one if the key is missing.
  Config table(const std::string& key);
  // The tables of an array ([[layer]]); empty if the key is missing.
  std::vector<Config> tables(const std::string& key);

  // The name of this table in messages, e.g. "[[layer]] conv2". Tables such as [data] have their own names.
  void call(const std::string& what) { what_ = what; }
  const std::string& what() const { return what_; }

  // Throws Error naming the file, the line of `key` (of the table if there is no such key), and the table.
  [[noreturn]] void error(const std::string& key, const std::string& message) const;
  // Throws for the first key that was not read, and names the nearest key that was. `kind`: "keys of <kind>: ..."
  void finish(const std::string& kind = {}) const;

  std::string to_toml() const;  // the table as a TOML document

 private:
  struct Node;
  static Config from_recipe(std::shared_ptr<const Recipe> recipe);
  explicit Config(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  [[noreturn]] void missing(const std::string& key) const;  // a required key; names a near one that was not read
  std::shared_ptr<const Node> node_;
  std::string what_;
  std::set<std::string> asked_;
};

// "fc7, fc8": for messages.
template <class Words>
std::string joined(const Words& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + std::string(word);
  return text;
}

// The candidate with the fewest edits from `word`; empty if none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace owt
