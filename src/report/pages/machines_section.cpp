#include <algorithm>

#include "src/report/pages/html.h"
#include "src/report/pages/sections.h"
#include "src/system/log.h"

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

// Transposes the table: one column per start.
HtmlTable turned(const HtmlTable& table) {
  HtmlTable all{{}, {}, false, true};
  for (size_t i = 0; i < table.head.size(); ++i) {
    std::vector<std::string> line{table.head[i]};
    for (const auto& row : table.rows) line.push_back(row[i]);
    i == 0 ? (all.head = std::move(line), void()) : all.rows.push_back(std::move(line));
  }
  return all;
}

}  // namespace

std::string machines_section(Runs runs) {
  std::string content;
  for (const RunRecord& run : runs) {
    const HtmlTable starts = starts_of(run);
    const std::string facts =
        starts.rows.empty()
            ? missing(
                  "Its metrics.jsonl does not say where it ran: runs of this version of owt write that at every start.")
            : html_of(turned(starts));
    content += of_run(run.name, runs.size(), paragraph("Folder: " + run.folder) + facts);
  }
  return section("machines", "Machine, version, command", content);
}

}  // namespace owt
