#include <algorithm>

#include "src/core/log.h"
#include "src/train/pages/bars.h"
#include "src/train/pages/sections.h"

namespace owt {
namespace {

constexpr int kForwardColor = 0, kBackwardColor = 1, kUpdateColor = 2, kTransferColor = 3, kWaitColor = 4,
              kRestColor = 7;

using CsvRow = std::vector<std::string>;

// Files of runs that did not write all ranks are of rank 0.
int rank_of(const CsvTable& times, const CsvRow& row) { return static_cast<int>(times.number(row, "rank")); }

std::vector<CsvRow> rows_of_kind(const CsvTable& times, const std::string& kind, int rank = 0) {
  std::vector<CsvRow> rows;
  for (const CsvRow& row : times.rows)
    if (times.text(row, "kind") == kind && rank_of(times, row) == rank) rows.push_back(row);
  return rows;
}

int ranks_in(const CsvTable& times) {
  int ranks = 1;
  for (const CsvRow& row : times.rows) ranks = std::max(ranks, rank_of(times, row) + 1);
  return ranks;
}

double sum_in(const CsvTable& times, const std::string& kind, const std::string& column, int rank) {
  double sum = 0;
  for (const CsvRow& row : rows_of_kind(times, kind, rank)) sum += times.number(row, column);
  return sum;
}

double data_wait(const CsvTable& times, int rank) {
  for (const CsvRow& row : rows_of_kind(times, "other", rank))
    if (times.text(row, "name") == "data wait") return times.number(row, "ms");
  return 0;
}

Bar step_bar(const std::string& name, const CsvTable& t, int rank) {
  const double data = data_wait(t, rank);
  return {name,
          {sum_in(t, "layer", "forward_ms", rank), sum_in(t, "layer", "backward_ms", rank),
           sum_in(t, "layer", "update_ms", rank), sum_in(t, "transfer", "ms", rank), data,
           sum_in(t, "other", "ms", rank) - data + sum_in(t, "rest", "ms", rank)}};
}

double computing(const Bar& bar) { return bar.values[0] + bar.values[1] + bar.values[2]; }

// A bar of each rank; of many the one in the middle and the slowest, by what they compute.
std::vector<Bar> step_bars(const RunRecord& run) {
  constexpr int kMostRankBars = 8;
  const int ranks = ranks_in(run.times);
  if (ranks == 1) return {step_bar(run.name, run.times, 0)};
  std::vector<Bar> bars;
  for (int rank = 0; rank < ranks; ++rank) bars.push_back(step_bar(concat(run.name, ", rank ", rank), run.times, rank));
  if (ranks <= kMostRankBars) return bars;
  std::stable_sort(bars.begin(), bars.end(), [](const Bar& a, const Bar& b) { return computing(a) < computing(b); });
  Bar middle = bars[bars.size() / 2], slowest = bars.back();
  middle.name += " (median)", slowest.name += " (slowest)";
  return {middle, slowest};
}

// Of every row of the first rank, what it takes on the rank in the middle and on the slowest.
HtmlTable table_of_ranks(const CsvTable& times) {
  HtmlTable table{{"", "rank 0, ms", "median, ms", "slowest, ms", "rank"}, {}};
  for (const CsvRow& first : times.rows) {
    const std::string kind = times.text(first, "kind"), name = times.text(first, "name");
    if (rank_of(times, first) != 0 || kind == "untimed") continue;
    std::vector<std::pair<double, int>> all;
    for (const CsvRow& row : times.rows)
      if (times.text(row, "kind") == kind && times.text(row, "name") == name)
        all.emplace_back(times.number(row, "ms"), rank_of(times, row));
    std::sort(all.begin(), all.end());
    table.rows.push_back({name, short_number(times.number(first, "ms")), short_number(all[all.size() / 2].first),
                          short_number(all.back().first), std::to_string(all.back().second)});
  }
  return table;
}

Bars bars_of_layers(const RunRecord& run) {
  Bars bars{"Time of each layer in a step of " + run.name, "ms", {"forward", "backward", "update"}};
  for (const CsvRow& row : rows_of_kind(run.times, "layer"))
    bars.bars.push_back({run.times.text(row, "name"),
                         {run.times.number(row, "forward_ms"), run.times.number(row, "backward_ms"),
                          run.times.number(row, "update_ms")}});
  return bars;
}

// What a transfer takes, of which a part is hidden behind computing.
Bars bars_of_transfers(const RunRecord& run) {
  Bars bars{
      "Time of each transfer in a step of " + run.name, "ms", {"waited for", "hidden"}, {kTransferColor, kRestColor}};
  for (const CsvRow& row : rows_of_kind(run.times, "transfer")) {
    const double waited = run.times.number(row, "ms"), takes = run.times.number(row, "transfer_ms");
    bars.bars.push_back({run.times.text(row, "name"), {waited, std::max(takes - waited, 0.0)}});
  }
  return bars;
}

Bars bars_of_bytes(const RunRecord& run) {
  Bars bars{"Sent by rank 0 in a step of " + run.name, "MB", {"sent"}, {kTransferColor}};
  for (const CsvRow& row : rows_of_kind(run.times, "transfer"))
    bars.bars.push_back({run.times.text(row, "name"), {run.times.number(row, "bytes_sent") / 1e6}});
  return bars;
}

Bars bars_of_memory(const RunRecord& run) {
  Bars bars{
      "Memory of each layer on rank 0 of " + run.name, "MB", {"activations", "weights"}, {kForwardColor, kUpdateColor}};
  for (const CsvRow& row : rows_of_kind(run.times, "layer"))
    bars.bars.push_back(
        {run.times.text(row, "name"),
         {run.times.number(row, "activation_bytes") / 1e6, run.times.number(row, "weight_bytes") / 1e6}});
  return bars;
}

std::string figures_of(const RunRecord& run) {
  std::string content;
  for (const Bars& bars : {bars_of_layers(run), bars_of_transfers(run), bars_of_bytes(run), bars_of_memory(run)})
    if (!bars.bars.empty()) content += html_of(figure_of(bars));
  if (ranks_in(run.times) > 1)
    content += "<h3>All ranks of " + escaped(run.name) + "</h3>\n" + html_of(table_of_ranks(run.times));
  return content;
}

}  // namespace

std::string times_section(Runs runs) {
  Bars steps{"Where a step's time goes",
             "ms",
             {"forward", "backward", "update", "waiting for transfers", "waiting for data", "rest"},
             {kForwardColor, kBackwardColor, kUpdateColor, kTransferColor, kWaitColor, kRestColor}};
  std::string content, without;
  for (const RunRecord& run : runs) {
    if (run.times.rows.empty()) {
      without += (without.empty() ? "" : ", ") + run.name;
      continue;
    }
    const std::vector<Bar> bars = step_bars(run);
    steps.bars.insert(steps.bars.end(), bars.begin(), bars.end());
  }
  if (!steps.bars.empty()) content += html_of(figure_of(steps));
  for (const RunRecord& run : runs)
    if (!run.times.rows.empty())
      content += runs.size() == 1
                     ? figures_of(run)
                     : format("<details><summary>{}</summary>\n{}</details>\n", escaped(run.name), figures_of(run));
  if (!content.empty())
    content = paragraph(
                  "Medians over the timed steps, as timing.csv of the run has them; of layers and transfers those of "
                  "rank 0.") +
              content;
  if (!without.empty())
    content += missing("No timing.csv: " + without + ". It is written when owt train ends or is stopped.");
  return section("times", "Time, bytes, memory", content);
}

}  // namespace owt
