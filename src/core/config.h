// Reading TOML: one table at a time, with the place of every key for messages, and no key left unread in silence.
//
//   Config model = Config::file("configs/models/x.toml");
//   const int64_t kernel = layer.integer("kernel", {.low = 1});       // required
//   const double rate = layer.number("rate", 0.5, {.low = 0, .high = 1});  // optional
//   layer.finish();  // throws if the table holds a key nobody asked for
//
// Errors read `configs/models/x.toml:31: [[layer]] conv2: no key 'kernal' (keys: ...); did you mean 'kernel'?`
// A Config is a cheap handle; a copy keeps its own list of the keys asked for, so several ranks may read one table.
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

struct Range {  // the numbers allowed, both ends among them
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
};

struct Recipe;  // a document and what was asked of it; src/core/toml_document.h

class Config {
 public:
  static Config file(const std::string& path);                                  // throws: missing file, bad syntax
  static Config text(std::string_view text, const std::string& name = "text");  // as if read from a file `name`

  // Sets a dotted key of a whole document from the command line, `schedule.epochs` = `3`. A value that is no TOML is
  // taken as a string, and an empty one takes the key out. Copies of this Config made earlier do not change.
  void set(const std::string& dotted_key, const std::string& value);
  // Puts another table under a key (an included file in place of its name); messages keep naming its own file.
  void put(const std::string& key, const Config& table);

  bool has(const std::string& key) const;
  bool given(const std::string& key);  // as has(); the key counts as asked for, even where it is missing
  bool is_table(const std::string& key) const;
  bool is_array(const std::string& key) const;
  bool is_string(const std::string& key) const;
  bool is_infinite(const std::string& key) const;  // inf, which no call below takes for a number

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
  std::vector<std::string> strings(const std::string& key);  // empty where the key is missing
  // A table under this key; an empty one where the key is missing.
  Config table(const std::string& key);
  // The tables of an array ([[layer]]); empty where the key is missing.
  std::vector<Config> tables(const std::string& key);

  // What messages call this table, e.g. "[[layer]] conv2"; [data] and the like are named on their own.
  void call(const std::string& what) { what_ = what; }
  const std::string& what() const { return what_; }

  // Throws Error naming the file, the line of `key` (of the table where there is no such key), and the table.
  [[noreturn]] void error(const std::string& key, const std::string& message) const;
  // Throws for the first key that nobody asked for, with the nearest one that was. `kind`: "keys of <kind>: ..."
  void finish(const std::string& kind = {}) const;

  std::string to_toml() const;  // the table as a TOML document

 private:
  struct Node;
  static Config from_recipe(std::shared_ptr<const Recipe> recipe);
  explicit Config(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  [[noreturn]] void missing(const std::string& key) const;  // a required key; names a near one that nobody asked for
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

// The candidate with the fewest edits from `word`, empty where none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace owt
