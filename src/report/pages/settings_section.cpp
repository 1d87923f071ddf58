#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "src/report/pages/html.h"
#include "src/report/pages/sections.h"
#include "src/system/log.h"

namespace owt {
namespace {

constexpr size_t kLongSetting = 160;

std::string shortened(const std::string& text) {
  return text.size() <= kLongSetting ? text : text.substr(0, kLongSetting) + "…";
}

// Key -> value in each run; an empty text if a run lacks the key.
std::map<std::string, std::vector<std::string>> settings_of(Runs runs) {
  std::map<std::string, std::vector<std::string>> all;
  for (size_t i = 0; i < runs.size(); ++i)
    for (const auto& [key, value] : runs[i].settings) {
      std::vector<std::string>& values = all[key];
      values.resize(runs.size());
      values[i] = shortened(value);
    }
  return all;
}

bool is_one_value(const std::vector<std::string>& values) {
  return std::set<std::string>(values.begin(), values.end()).size() == 1;
}

HtmlTable settings_table(Runs runs, bool differing) {
  HtmlTable table{{"setting"}, {}, false, true};
  for (const RunRecord& run : runs)
    if (differing || table.head.size() == 1) table.head.push_back(differing ? run.name : "value");
  for (const auto& [key, values] : settings_of(runs)) {
    if (is_one_value(values) == differing) continue;
    table.rows.push_back({key});
    for (size_t i = 0; i < (differing ? values.size() : 1); ++i)
      table.rows.back().push_back(values[i].empty() ? "not set" : values[i]);
  }
  return table;
}

// Different networks differ in nearly every layer, so these settings are folded.
std::string differing_tables(HtmlTable differing) {
  constexpr size_t kFewLayerSettings = 8;
  HtmlTable of_layers{differing.head, {}, false, true};
  const auto of_layer = [](const std::vector<std::string>& row) { return row.front().starts_with("model.layer"); };
  std::copy_if(differing.rows.begin(), differing.rows.end(), std::back_inserter(of_layers.rows), of_layer);
  if (of_layers.rows.size() <= kFewLayerSettings) return html_of(differing);
  std::erase_if(differing.rows, of_layer);
  return html_of(differing) +
         format("<details><summary>{} settings of layers in which they differ</summary>\n{}</details>\n",
                of_layers.rows.size(), html_of(of_layers));
}

}  // namespace

std::string settings_section(Runs runs) {
  const HtmlTable same = settings_table(runs, false);
  std::string content;
  if (runs.size() > 1) {
    const HtmlTable differing = settings_table(runs, true);
    content +=
        differing.rows.empty() ? paragraph("The recipes of these runs are the same.") : differing_tables(differing);
  }
  content += format("<details><summary>{} {} settings</summary>\n{}</details>\n", runs.size() > 1 ? "The other" : "All",
                    same.rows.size(), html_of(same));
  return section("settings", runs.size() > 1 ? "Settings in which the runs differ" : "Settings", content);
}

}  // namespace owt
