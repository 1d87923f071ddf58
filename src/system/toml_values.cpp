#include "src/system/toml_values.h"

#include "src/system/check.h"
#include "src/system/log.h"
#include "src/system/toml_document.h"

namespace owt {
namespace {

using TomlValues = std::vector<std::pair<std::string, std::string>>;

// A list that consists of tables only, for example of layers.
bool holds_tables(const toml::node& node) {
  const toml::array* array = node.as_array();
  return array && !array->empty() && array->is_homogeneous(toml::node_type::table);
}

std::string written(const toml::node& node) {
  if (node.is_string()) return node.ref<std::string>();
  if (node.is_floating_point()) return format("{}", node.ref<double>());  // 0.05, not 0.050000000000000003
  std::string text;
  node.visit([&](const auto& value) { text = concat(value); });
  return text;
}

void flatten(const toml::table& table, const std::string& before, TomlValues& values) {
  for (const auto& [key, value] : table) {
    const std::string name = before + std::string(key.str());
    if (const toml::table* inner = value.as_table()) {
      flatten(*inner, name + ".", values);
    } else if (holds_tables(value)) {
      int number = 0;
      for (const toml::node& each : *value.as_array()) {
        const std::string own = (*each.as_table())["name"].value_or(std::string());
        flatten(*each.as_table(), concat(name, ".", own.empty() ? std::to_string(number) : own, "."), values);
        ++number;
      }
    } else {
      values.emplace_back(name, written(value));
    }
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> toml_values(const std::string& text, const std::string& name) {
  TomlValues values;
  flatten(document_from({text, name, {}}), "", values);
  return values;
}

}  // namespace owt
