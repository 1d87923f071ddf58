#include <algorithm>

#include "src/core/log.h"
#include "src/train/pages/html.h"
#include "src/train/pages/sections.h"

namespace owt {
namespace {

HtmlTable starts_of(const RunRecord& run) {
  HtmlTable table{{"started after step"}, {}};
  for (const StartLine& start : run.metrics.starts)
    for (const auto& [name, value] : start.facts)
      if (std::find(table.head.begin(), table.head.end(), name) == table.head.end()) table.head.push_back(name);
  for (const StartLine& start : run.metrics.starts) {
    std::vector<std::string>& row = table.rows.emplace_back(1, std::to_string(start.step));
    for (size_t i = 1; i < table.head.size(); ++i) {
      const auto fact =
          std::find_if(start.facts.begin(), start.facts.end(), [&](auto& f) { return f.first == table.head[i]; });
      row.push_back(fact == start.facts.end() ? "–" : fact->second);
    }
  }
  return table;
}

// One start is easier to read from above to below.
HtmlTable turned(const HtmlTable& table) {
  HtmlTable all{{"", "value"}, {}};
  for (size_t i = 0; i < table.head.size(); ++i) all.rows.push_back({table.head[i], table.rows[0][i]});
  return all;
}

}  // namespace

std::string machines_section(Runs runs) {
  std::string content;
  for (const RunRecord& run : runs) {
    content += format("<h3>{}</h3>\n", escaped(run.name)) + paragraph("Folder: " + run.folder);
    const HtmlTable starts = starts_of(run);
    if (starts.rows.empty())
      content += missing(
          "Its metrics.jsonl does not say where it ran: runs of this version of owt write that at every start.");
    else
      content += html_of(starts.rows.size() == 1 ? turned(starts) : starts);
  }
  return section("machines", "Machine, version, command", content);
}

}  // namespace owt
