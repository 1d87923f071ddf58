#include "src/system/toml_document.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "src/system/check.h"

namespace owt {
namespace {

// The position after the string that begins at `at`. toml++ reports a string that does not end.
size_t end_of_string(std::string_view text, size_t at) {
  const char quote = text[at];
  const bool of_lines = text.substr(at, 3) == std::string(3, quote);
  const std::string_view end = text.substr(at, of_lines ? 3 : 1);
  for (size_t i = at + end.size(); i < text.size(); ++i) {
    if (text[i] == '\\' && quote == '"') {
      ++i;
    } else if (text[i] == '\n' && !of_lines) {
      return i;
    } else if (text.substr(i, end.size()) == end) {
      i += end.size();
      while (of_lines && i < text.size() && text[i] == quote) ++i;  // quotes of the string before the last three
      return i;
    }
  }
  return text.size();
}

// A dotted key makes one table per word, and tables are printed and freed by recursion. Before version 3.4 toml++
// limits nesting of values only.
constexpr int kMostDots = 16;

void check_dotted_keys(std::string_view text, const std::string& name) {
  int dots = 0;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '.' && ++dots > kMostDots)
      fail(name, ":", 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(i), '\n'),
           ": a key of more than ", kMostDots + 1, " words; no table is so deep");
    if (c == '\n' || c == '=' || c == ',' || c == '{') dots = 0;
    if (c == '"' || c == '\'')
      i = end_of_string(text, i);
    else
      i = c == '#' ? std::min(text.find('\n', i), text.size()) : i + 1;
  }
}

toml::table parse(std::string_view text, const std::string& name) {
  check_dotted_keys(text, name);
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& e) {
    fail(name, ":", e.source().begin.line, ": ", std::string(e.description()));
  }
}

toml::table* numbered(toml::array& tables, const std::string& number, const std::string& source) {
  size_t index = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
  const bool is_number = error == std::errc() && end == number.data() + number.size();
  toml::table* const table = is_number && index < tables.size() ? tables[index].as_table() : nullptr;
  if (!table)
    fail(source, ": wanted the number of one of ", tables.size(), " tables, from 0, in place of '", number, "'");
  return table;
}

// Creates missing tables on the way to a dotted key; returns the innermost table and the last word.
std::pair<toml::table*, std::string> descend(toml::table& document, const std::string& dotted_key,
                                             const std::string& source) {
  if (std::count(dotted_key.begin(), dotted_key.end(), '.') > kMostDots)
    fail(source, ": a key of more than ", kMostDots + 1, " words; no table is so deep");
  toml::table* table = &document;
  std::string rest = dotted_key;
  toml::array* tables = nullptr;  // the array that the next word indexes
  for (size_t dot; (dot = rest.find('.')) != std::string::npos; rest = rest.substr(dot + 1)) {
    const std::string key = rest.substr(0, dot);
    if (tables) {
      table = numbered(*tables, key, source);
      tables = nullptr;
      continue;
    }
    if (!table->contains(key)) table->insert(key, toml::table{});
    tables = (*table)[key].as_array();
    if (tables) continue;
    table = (*table)[key].as_table();
    if (!table) fail(source, ": '", key, "' is not a table");
  }
  if (tables) fail(source, ": wanted a key of one of these tables, e.g. model.layer.0.out");
  if (rest.empty()) fail(source, ": wanted KEY=VALUE, e.g. schedule.epochs=3");
  return {table, rest};
}

void take_out(toml::table& table, const std::string& key, const std::string& source) {
  if (!table.erase(key)) fail(source, ": there is no such key to take out; give a value, '' for an empty text");
}

void check_utf8(std::string text, const std::string& source) {
  std::erase_if(text, [](char c) { return c >= 0 && c < ' '; });
  try {
    static_cast<void>(toml::parse("# " + text));
  } catch (const toml::parse_error&) {
    fail(source, ": holds bytes that are no UTF-8, which a recipe cannot keep; use another name, or a link to it");
  }
}

// Texts such as ".1" and "5." in TOML's form, which has digits on both sides of the point; empty for other texts.
std::string as_number(std::string text, const std::string& source) {
  if (text.empty() || text.find_first_not_of("+-.0123456789eE") != std::string::npos) return "";
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end != text.c_str() + text.size()) return "";
  if (std::isinf(value)) fail(source, ": no number can hold ", text);
  const auto is_digit = [&](size_t at) { return at < text.size() && '0' <= text[at] && text[at] <= '9'; };
  const size_t dot = text.find('.');
  if (dot == std::string::npos) return "";
  if (!is_digit(dot + 1)) text.insert(dot + 1, "0");
  if (dot == 0 || !is_digit(dot - 1)) text.insert(dot, "0");
  return text;
}

// Whether the text is an integer of TOML with any number of digits: decimal, 0x, 0o or 0b.
bool reads_as_integer(std::string_view text) {
  if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
  const bool based = text.starts_with("0x") || text.starts_with("0o") || text.starts_with("0b");
  const std::string_view digits = based ? text.substr(2) : text;
  return !digits.empty() && (based || digits[0] != '0') &&
         digits.find_first_not_of(text.starts_with("0x") ? "0123456789abcdefABCDEF" : "0123456789") == digits.npos;
}

void assign(toml::table& table, const std::string& key, const std::string& text, const std::string& source) {
  check_utf8(text, source);
  try {
    toml::table value = toml::parse("value = " + text, source);
    table.insert_or_assign(key, std::move(*value.get("value")));
  } catch (const toml::parse_error&) {
    if (const std::string number = as_number(text, source); !number.empty() && number != text)
      return assign(table, key, number, source);
    if (reads_as_integer(text)) fail(source, ": no integer of 64 bits can hold ", text);
    toml::table value = toml::parse("value = 'text'", source);  // a bare word is a string
    *value["value"].as_string() = text;
    table.insert_or_assign(key, std::move(*value.get("value")));
  }
}

}  // namespace

toml::table document_from(const Recipe& recipe) {
  toml::table document = parse(recipe.text, recipe.name);
  for (const Recipe::Edit& edit : recipe.edits) {
    const std::string source = "--set " + edit.dotted_key + "=" + edit.value;
    const auto [table, key] = descend(document, edit.dotted_key, source);
    if (edit.table)
      table->insert_or_assign(key, document_from(*edit.table));
    else if (edit.value.empty())
      take_out(*table, key, source);
    else
      assign(*table, key, edit.value, source);
  }
  return document;
}

}  // namespace owt
