#include <algorithm>
#include <set>

#include "src/core/profiler.h"
#include "src/report/pages/bars.h"
#include "src/report/pages/drawn_step.h"
#include "src/report/pages/sections.h"
#include "src/system/log.h"
#include "src/system/own_words.h"

namespace owt {
namespace {

constexpr int kForwardColor = 0, kBackwardColor = 1, kUpdateColor = 2, kTransferColor = 3, kWaitColor = 4,
              kRestColor = 7;

using CsvRow = std::vector<std::string>;

// Files without all ranks have rank 0.
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

// A bar for each rank; with many ranks only the median and the slowest, by computing time.
std::vector<Bar> step_bars(const RunRecord& run) {
  constexpr int kMostRankBars = 8;
  const int ranks = ranks_in(run.times);
  if (ranks == 1) return {step_bar(run.name, run.times, 0)};
  std::vector<Bar> bars;
  for (int rank = 0; rank < ranks; ++rank)
    bars.push_back(step_bar(concat(run.name, ", worker ", rank), run.times, rank));
  if (ranks <= kMostRankBars) return bars;
  std::stable_sort(bars.begin(), bars.end(), [](const Bar& a, const Bar& b) { return computing(a) < computing(b); });
  Bar middle = bars[bars.size() / 2], slowest = bars.back();
  middle.name += " (median)", slowest.name += " (slowest)";
  return {middle, slowest};
}

// The values of a row over the ranks that have it: typical and largest.
struct OverRanks {
  std::vector<double> columns;  // medians by column
  double median_ms = 0, most_ms = 0;
  int slowest = 0;
};

OverRanks over_ranks(const CsvTable& times, const CsvRow& first, const std::vector<std::string>& columns) {
  const std::string kind = times.text(first, "kind"), name = times.text(first, "name");
  std::vector<std::vector<double>> values(columns.size());
  std::vector<double> all;
  OverRanks found;
  for (const CsvRow& row : times.rows) {
    if (times.text(row, "kind") != kind || times.text(row, "name") != name) continue;
    if (kind == "layer" && times.number(row, "ms") == 0) continue;  // belongs to another stage of a pipeline
    for (size_t i = 0; i < columns.size(); ++i) values[i].push_back(times.number(row, columns[i]));
    all.push_back(times.number(row, "ms"));
    if (all.back() > found.most_ms) found.most_ms = all.back(), found.slowest = rank_of(times, row);
  }
  for (const std::vector<double>& column : values) found.columns.push_back(median(column));
  found.median_ms = median(all);
  return found;
}

// The rows of the first rank, and rows of other ranks only, e.g. in a pipeline.
std::vector<CsvRow> rows_of_any_rank(const CsvTable& times, const std::string& kind) {
  std::vector<CsvRow> rows;
  std::set<std::string> names;
  for (const CsvRow& row : times.rows)
    if (times.text(row, "kind") == kind && names.insert(times.text(row, "name")).second) rows.push_back(row);
  return rows;
}

Bar bar_over_ranks(const CsvTable& times, const CsvRow& row, const std::vector<std::string>& columns) {
  const OverRanks over = over_ranks(times, row, columns);
  Bar bar{times.text(row, "name"), over.columns};
  if (ranks_in(times) > 1) bar.most = over.most_ms, bar.most_is = concat("worker ", over.slowest);
  return bar;
}

// The time of every row on the median rank and on the slowest.
HtmlTable table_of_ranks(const CsvTable& times) {
  HtmlTable table{{"", "median, ms", "slowest, ms", "of worker"}, {}};
  for (const char* kind : {"layer", "transfer", "other", "rest", "step"})
    for (const CsvRow& row : rows_of_any_rank(times, kind)) {
      const OverRanks over = over_ranks(times, row, {});
      table.rows.push_back({times.text(row, "name"), short_number(over.median_ms), short_number(over.most_ms),
                            std::to_string(over.slowest)});
    }
  return table;
}

Bars bars_of_layers(const RunRecord& run) {
  Bars bars{"Time of each layer in a step of " + run.name, "ms", {"forward", "backward", "update"}};
  for (const CsvRow& row : rows_of_any_rank(run.times, "layer"))
    bars.bars.push_back(bar_over_ranks(run.times, row, {"forward_ms", "backward_ms", "update_ms"}));
  return bars;
}

// The time of each transfer, including the part that computation hides.
Bars bars_of_transfers(const RunRecord& run) {
  Bars bars{
      "Time of each transfer in a step of " + run.name, "ms", {"waited for", "hidden"}, {kTransferColor, kRestColor}};
  for (const CsvRow& row : rows_of_any_rank(run.times, "transfer")) {
    Bar bar = bar_over_ranks(run.times, row, {"ms", "transfer_ms"});
    bar.values[1] = std::max(bar.values[1] - bar.values[0], 0.0);
    bars.bars.push_back(std::move(bar));
  }
  return bars;
}

Bars bars_of_bytes(const RunRecord& run) {
  Bars bars{"Sent by worker 0 in a step of " + run.name, "MB", {"sent"}, {kTransferColor}};
  for (const CsvRow& row : rows_of_kind(run.times, "transfer"))
    bars.bars.push_back({run.times.text(row, "name"), {run.times.number(row, "bytes_sent") / 1e6}});
  return bars;
}

Bars bars_of_memory(const RunRecord& run) {
  Bars bars{"Memory of each layer on worker 0 of " + run.name,
            "MB",
            {"activations", "weights"},
            {kForwardColor, kUpdateColor}};
  for (const CsvRow& row : rows_of_kind(run.times, "layer"))
    bars.bars.push_back(
        {run.times.text(row, "name"),
         {run.times.number(row, "activation_bytes") / 1e6, run.times.number(row, "weight_bytes") / 1e6}});
  return bars;
}

std::string drawing_of(const RunRecord& run) {
  try {
    return html_of(drawn_step(run));
  } catch (const std::exception& e) {  // e.g. the recipe of another version
    return missing(concat("The step is not drawn: ", own_words(e)));
  }
}

std::string figures_of(const RunRecord& run) {
  std::string content = drawing_of(run);
  for (const Bars& bars : {bars_of_layers(run), bars_of_transfers(run), bars_of_bytes(run), bars_of_memory(run)})
    if (!bars.bars.empty()) content += html_of(figure_of(bars));
  if (ranks_in(run.times) > 1)
    content += format(
        "<details><summary>All {} workers of {}: the median and the slowest of each row</summary>\n{}</details>\n",
        ranks_in(run.times), escaped(run.name), html_of(table_of_ranks(run.times)));
  return content;
}

// What limits each run, in a sentence.
std::string bottlenecks_of(Runs runs) {
  std::string sentences;
  for (const RunRecord& run : runs)
    if (const std::string& text = run.metrics.bottleneck; !text.empty())
      sentences += format("<p class=\"bottleneck\">{}{}</p>\n",
                          runs.size() == 1 ? "" : "<b>" + escaped(run.name) + "</b>: ", escaped(text));
  return sentences;
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
    if (!run.times.rows.empty()) content += of_run(run.name, runs.size(), figures_of(run));
  if (!content.empty())
    content = paragraph(
                  "Medians over the timed steps, from timing.csv of the run. With several workers, the bar of a layer "
                  "or transfer is the median of the workers, and the line beside it is the slowest worker.") +
              content;
  content = bottlenecks_of(runs) + content;
  if (!without.empty())
    content += missing("No timing.csv: " + without + ". It is written when owt train ends or is stopped.");
  return section("times", "Time, bytes, memory", content);
}

}  // namespace owt
