#include "src/system/config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "src/system/check.h"
#include "src/system/config_values.h"
#include "src/system/files.h"
#include "src/system/own_words.h"
#include "src/system/toml_document.h"

namespace owt {

struct Config::Node {
  std::shared_ptr<const Recipe> recipe;         // the whole document; null for a table inside it
  std::shared_ptr<const toml::table> document;  // keeps `table` alive
  const toml::table* table = nullptr;
  std::string file;  // used if a table has no place of its own
};

namespace {

const char* describe(const toml::node& node) {
  if (node.is_table()) return "a table";
  if (node.is_array()) return "an array";
  if (node.is_string()) return "a string";
  if (node.is_integer()) return "an integer";
  if (node.is_floating_point()) return "a number";
  if (node.is_boolean()) return "true or false";
  return "a date or time";
}

}  // namespace

Config Config::file(const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) fail("no config file ", path);
  return text(read_file(path), path);
}

Config Config::from_recipe(std::shared_ptr<const Recipe> recipe) {
  auto node = std::make_shared<Node>();
  node->document = std::make_shared<const toml::table>(document_from(*recipe));
  node->table = node->document.get();
  node->file = recipe->name;
  node->recipe = std::move(recipe);
  return Config(node);
}

Config Config::text(std::string_view text, const std::string& name) {
  return from_recipe(std::make_shared<const Recipe>(Recipe{std::string(text), name, {}}));
}

void Config::set(const std::string& dotted_key, const std::string& value) {
  OWT_CHECK(node_->recipe != nullptr, "only a whole document can be changed");
  auto recipe = std::make_shared<Recipe>(*node_->recipe);
  recipe->edits.push_back({dotted_key, value, nullptr});
  node_ = from_recipe(recipe).node_;
}

void Config::put(const std::string& key, const Config& table) {
  OWT_CHECK(node_->recipe != nullptr && table.node_->recipe != nullptr, "only whole documents can be joined");
  auto recipe = std::make_shared<Recipe>(*node_->recipe);
  recipe->edits.push_back({key, "", table.node_->recipe});
  node_ = from_recipe(recipe).node_;
}

bool Config::has(const std::string& key) const { return node_->table->contains(key); }
bool Config::given(const std::string& key) {
  asked_.insert(key);
  return has(key);
}
bool Config::is_table(const std::string& key) const { return has(key) && node_->table->get(key)->is_table(); }
bool Config::is_array(const std::string& key) const { return has(key) && node_->table->get(key)->is_array(); }
bool Config::is_string(const std::string& key) const { return has(key) && node_->table->get(key)->is_string(); }
bool Config::is_infinite(const std::string& key) const {
  return has(key) && node_->table->get(key)->value<double>() == std::numeric_limits<double>::infinity();
}

void Config::error(const std::string& key, const std::string& message) const {
  const toml::node* node = node_->table->get(key);
  const toml::source_region& source = node ? node->source() : node_->table->source();
  std::string place = source.path ? *source.path : node_->file;
  if (!place.starts_with("--set ") && source.begin.line > 0) place += ":" + std::to_string(source.begin.line);
  fail(place, ": ", what_, what_.empty() ? "" : ": ", message);
}

void Config::missing(const std::string& key) const {
  std::vector<std::string> unread;
  for (const auto& [name, value] : *node_->table)
    if (!asked_.contains(std::string(name.str()))) unread.emplace_back(name.str());
  const std::string near = nearest(key, unread);
  if (near.empty()) error(key, concat("key '", key, "' is missing"));
  error(near, concat("key '", key, "' is missing; did you mean it by '", near, "'?"));
}

namespace {

// The sign of NaN has no meaning for the user.
std::string found(double value) { return std::isnan(value) ? "nan" : number_text(value); }
std::string found(int64_t value) { return std::to_string(value); }

template <class T>
T checked(const Config& config, const std::string& key, T value, const Range& range) {
  if (!(value >= range.low && value <= range.high) || !std::isfinite(static_cast<double>(value)))
    config.error(key, concat("'", key, "' is ", found(value), ", wanted ",
                             range_text(range).empty() ? "a number" : range_text(range)));
  return value;
}

template <class T, class Read>
std::vector<T> elements(const Config& config, const std::string& key, const toml::node* node, const char* wanted,
                        const Read& read) {
  std::vector<T> values;
  const toml::array* array = node ? node->as_array() : nullptr;
  if (!array) config.error(key, concat("'", key, "' must be an array of ", wanted));
  for (const auto& element : *array) {
    const auto value = read(element);
    if (!value) config.error(key, concat("'", key, "' must be an array of ", wanted));
    values.push_back(*value);
  }
  return values;
}

}  // namespace

int64_t Config::integer(const std::string& key, Range range) {
  asked_.insert(key);
  const toml::node* node = node_->table->get(key);
  if (!node) missing(key);
  if (!node->is_integer()) error(key, concat("'", key, "' is ", describe(*node), ", wanted an integer"));
  return checked(*this, key, **node->as_integer(), range);
}

int64_t Config::integer(const std::string& key, int64_t otherwise, Range range) {
  return given(key) ? integer(key, range) : otherwise;
}

double Config::number(const std::string& key, Range range) {
  asked_.insert(key);
  const toml::node* node = node_->table->get(key);
  if (!node) missing(key);
  if (!node->is_number()) error(key, concat("'", key, "' is ", describe(*node), ", wanted a number"));
  return checked(*this, key, *node->value<double>(), range);
}

double Config::number(const std::string& key, double otherwise, Range range) {
  return given(key) ? number(key, range) : otherwise;
}

bool Config::boolean(const std::string& key, bool otherwise) {
  asked_.insert(key);
  const toml::node* node = node_->table->get(key);
  if (!node) return otherwise;
  if (!node->is_boolean()) error(key, concat("'", key, "' is ", describe(*node), ", wanted true or false"));
  return **node->as_boolean();
}

std::string Config::string(const std::string& key) {
  asked_.insert(key);
  const toml::node* node = node_->table->get(key);
  if (!node) missing(key);
  if (!node->is_string()) error(key, concat("'", key, "' is ", describe(*node), ", wanted a string"));
  return **node->as_string();
}

std::string Config::string(const std::string& key, const std::string& otherwise) {
  return given(key) ? string(key) : otherwise;
}

std::string Config::word(const std::string& key, const std::vector<std::string>& words) {
  const std::string found = string(key);
  if (std::find(words.begin(), words.end(), found) != words.end()) return found;
  const std::string near = nearest(found, words);
  error(key, concat("'", key, "' is '", found, "', wanted one of ",
                    joined(std::set<std::string>(words.begin(), words.end())),
                    near.empty() ? "" : concat("; did you mean '", near, "'?")));
}

std::string Config::word(const std::string& key, const std::string& otherwise, const std::vector<std::string>& words) {
  return given(key) ? word(key, words) : otherwise;
}

std::vector<int64_t> Config::integers(const std::string& key) {
  asked_.insert(key);
  return elements<int64_t>(*this, key, node_->table->get(key), "integers", [](const toml::node& node) {
    return node.is_integer() ? node.value<int64_t>() : std::nullopt;
  });
}

std::vector<double> Config::numbers(const std::string& key) {
  asked_.insert(key);
  return elements<double>(*this, key, node_->table->get(key), "numbers",
                          [](const toml::node& node) { return node.value<double>(); });
}

std::vector<std::string> Config::strings(const std::string& key) {
  asked_.insert(key);
  const toml::node* node = node_->table->get(key);
  if (!node) return {};
  return elements<std::string>(*this, key, node, "strings",
                               [](const toml::node& each) { return each.value<std::string>(); });
}

Config Config::table(const std::string& key) {
  asked_.insert(key);
  auto node = std::make_shared<Node>();
  node->file = node_->file;
  const toml::node* found = node_->table->get(key);
  if (!found) {
    node->document = std::make_shared<const toml::table>();
    node->table = node->document.get();
  } else {
    if (!found->is_table()) error(key, concat("'", key, "' is ", describe(*found), ", wanted a table"));
    node->document = node_->document;
    node->table = found->as_table();
  }
  Config inner(node);
  inner.call(what_.empty() ? "[" + key + "]" : what_ + "." + key);
  return inner;
}

std::vector<Config> Config::tables(const std::string& key) {
  asked_.insert(key);
  std::vector<Config> inner;
  const toml::node* found = node_->table->get(key);
  if (!found) return inner;
  const toml::array* array = found->as_array();
  if (!array) error(key, concat("'", key, "' is ", describe(*found), ", wanted tables: [[", key, "]]"));
  for (const auto& element : *array) {
    if (!element.is_table()) error(key, concat("'", key, "' must hold tables only"));
    auto node = std::make_shared<Node>();
    node->document = node_->document;
    node->table = element.as_table();
    node->file = node_->file;
    inner.push_back(Config(node));
    inner.back().call("[[" + key + "]]");
  }
  return inner;
}

void Config::finish(const std::string& kind) const {
  for (const auto& [key, value] : *node_->table) {
    const std::string name(key.str());
    if (asked_.contains(name)) continue;
    const std::string meant = what_.empty() ? key_for(name) : "";  // the whole recipe
    const std::string near =
        meant.find('.') != std::string::npos ? meant : nearest(name, {asked_.begin(), asked_.end()});
    error(name, concat("no key '", name, "' (keys", kind.empty() ? "" : " of " + kind, ": ", joined(asked_), ")",
                       near.empty() ? "" : concat("; did you mean '", near, "'?")));
  }
}

std::string Config::to_toml() const { return concat(*node_->table, "\n"); }

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  const auto own = [](std::string_view others) {
    const std::string key = key_for(others);
    return key.substr(key.rfind('.') + 1);
  };
  const std::string meant = own(word);
  for (const std::string& candidate : candidates)
    if (candidate == meant || own(candidate) == word) return candidate;
  std::string best;
  size_t fewest = std::min(std::max<size_t>(2, word.size() / 3) + 1, word.size());
  for (const auto& candidate : candidates) {
    // Edit distance, one row at a time.
    std::vector<size_t> row(candidate.size() + 1);
    for (size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j < row.size(); ++j) {
        const size_t change = diagonal + (word[i - 1] == candidate[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
      }
    }
    if (row.back() < fewest) fewest = row.back(), best = candidate;
  }
  return best;
}

}  // namespace owt
