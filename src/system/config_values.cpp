#include "src/system/config_values.h"

#include <sstream>

#include "src/system/check.h"
#include "src/system/toml_document.h"

namespace owt {
namespace {

// The element's name, or its number; a name that occurs twice gets its number appended.
std::string word_of_element(const toml::table& element, size_t number, const std::map<std::string, std::string>& values,
                            const std::string& prefix) {
  const auto name = element["name"].value<std::string>();
  if (!name) return std::to_string(number);
  return values.contains(prefix + *name + ".name") ? concat(*name, "#", number) : *name;
}

void collect(const toml::node& node, const std::string& key, std::map<std::string, std::string>& values) {
  const std::string prefix = key.empty() ? "" : key + ".";
  if (const toml::table* table = node.as_table()) {
    for (const auto& [word, value] : *table) collect(value, prefix + std::string(word.str()), values);
  } else if (const toml::array* array = node.as_array(); array && !array->empty() && array->is_array_of_tables()) {
    for (size_t i = 0; i < array->size(); ++i) {
      const toml::table& element = *array->get(i)->as_table();
      collect(element, prefix + word_of_element(element, i, values, prefix), values);
    }
  } else {
    std::ostringstream text;
    text << toml::toml_formatter(node);
    values[key] = text.str();
  }
}

}  // namespace

std::map<std::string, std::string> values_of(const Config& config) {
  std::map<std::string, std::string> values;
  collect(document_from({config.to_toml(), "recipe", {}}), "", values);
  return values;
}

}  // namespace owt
