#include "src/report/report.h"

#include <algorithm>

#include "src/system/check.h"
#include "src/system/csv.h"
#include "src/system/log.h"

namespace owt {
namespace {

using Kind = TimingRow::Kind;

constexpr size_t kNameWidth = 20, kTypeWidth = 10, kOutWidth = 12, kPeakWidth = 7;

void add_times(TimingRow& row, const RowTimes& measured) {
  const double ms = measured.ms;
  row.ms += ms;
  switch (measured.phase) {
    case Phase::kForward:
      row.forward_ms += ms;
      break;
    case Phase::kBackward:
      row.backward_ms += ms;
      break;
    case Phase::kUpdate:
      row.update_ms += ms;
      break;
    case Phase::kTransfer:
      row.transfer_ms += measured.transfer_ms;
      row.bytes_sent += measured.bytes;
      break;
    case Phase::kLoss:
    case Phase::kData:
      break;
  }
}

TimingRow row_of(const LayerFacts& layer) {
  TimingRow row;
  row.kind = Kind::kLayer;
  row.name = layer.name;
  row.type = layer.type;
  row.out = layer.out.str();
  row.flops = layer.forward_flops + layer.backward_flops;
  row.activation_bytes = layer.activation_bytes;
  row.weight_bytes = layer.weight_bytes;
  row.memory_bytes = layer.memory_bytes;
  row.update_in_backward = layer.update_in_backward;
  return row;
}

TimingRow row_named(Kind kind, const std::string& name) {
  TimingRow row;
  row.kind = kind;
  row.name = name;
  return row;
}

// The row of `rows` with this name; appended if there is none.
TimingRow& find_or_add(std::vector<TimingRow>& rows, Kind kind, const std::string& name) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const TimingRow& r) { return r.name == name; });
  return found != rows.end() ? *found : rows.emplace_back(row_named(kind, name));
}

std::vector<std::string> names_in(const std::string& run) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= run.size();) {
    const size_t end = std::min(run.find('+', begin), run.size());
    names.push_back(run.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

// Merges the rows of layers that ran as one op.
void merge_run(std::vector<TimingRow>& layers, const std::string& run) {
  const std::vector<std::string> names = names_in(run);
  const auto first =
      std::find_if(layers.begin(), layers.end(), [&](const TimingRow& row) { return row.name == names.front(); });
  if (names.size() < 2 || first == layers.end() || layers.end() - first < static_cast<std::ptrdiff_t>(names.size()))
    return;
  for (size_t i = 1; i < names.size(); ++i) {
    const TimingRow& more = *(first + 1);
    first->flops += more.flops;
    first->weight_bytes += more.weight_bytes;
    first->memory_bytes = std::max(first->memory_bytes, more.memory_bytes);  // data between them need not reach memory
    first->activation_bytes = more.activation_bytes;                         // only the last output is kept
    first->out = more.out;
    layers.erase(first + 1);
  }
  first->name = run;
}

TimingRow facts_left_out(const TimingRow& of) {
  TimingRow row = row_named(of.kind, of.name);
  row.type = of.type, row.out = of.out;
  return row;
}

// All rows of a rank: the rows of layers with its times, and its other measurements.
std::vector<TimingRow> rows_of(const RankTimes& rank, std::vector<TimingRow> layers) {
  std::vector<TimingRow> others, transfers;
  for (const RowTimes& measured : rank.rows) {
    const auto layer =
        std::find_if(layers.begin(), layers.end(), [&](const TimingRow& row) { return row.name == measured.name; });
    if (belongs_to_layer(measured.phase) && layer != layers.end())
      add_times(*layer, measured);
    else if (measured.phase == Phase::kTransfer)
      add_times(find_or_add(transfers, Kind::kTransfer, measured.name), measured);
    else
      add_times(find_or_add(others, Kind::kOther, measured.name), measured);
  }
  std::vector<TimingRow> rows = std::move(layers);
  for (auto* part : {&others, &transfers}) rows.insert(rows.end(), part->begin(), part->end());
  TimingRow rest = row_named(Kind::kRest, "rest"), step = row_named(Kind::kStep, "step");
  rest.ms = rank.rest_ms();
  step.ms = rank.step_ms;
  rows.push_back(rest);
  rows.push_back(step);
  return rows;
}

void find_slowest(TimingRow& row, const std::vector<std::vector<TimingRow>>& others) {
  row.slowest_ms = row.ms;
  for (size_t r = 0; r < others.size(); ++r)
    for (const TimingRow& other : others[r])
      if (other.kind == row.kind && other.name == row.name && other.ms > row.slowest_ms)
        row.slowest_ms = other.ms, row.slowest_rank = static_cast<int>(r) + 1;
}

// Text cut to `width`, with a mark.
std::string cut(const std::string& text, size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 2) + "..";
}

// A number in its column; blank if it is zero, which means that it does not apply.
std::string cell(double value, int width, int decimals) {
  return value == 0 ? std::string(static_cast<size_t>(width), ' ') : format("{:{}.{}f}", value, width, decimals);
}

// "71 c": the share of the peak in percent, and the initial of its limit.
std::string peak_cell(double share, const char* bound) {
  return share == 0 ? std::string(kPeakWidth, ' ') : format("{:5.0f} {:.1}", 100 * share, bound);
}

// Steps on a GPU are short.
int decimals_for(double step_ms) { return step_ms < 20 ? 3 : 2; }

// " 12.34 @3": the slowest rank's milliseconds, and the rank.
std::string slowest_cell(const TimingRow& r, int decimals) {
  return r.slowest_ms == 0 ? "" : format("{:>7.{}f} @{}", r.slowest_ms, decimals, r.slowest_rank);
}

std::string layer_line(const TimingRow& r, double step_ms, const std::string& of_peak, bool slowest) {
  const int decimals = decimals_for(step_ms);
  return format("{:<{}} {:<{}} {:>{}} {}{}{}{}{}{}{}{}{}\n", cut(r.name, kNameWidth), kNameWidth,
                cut(r.type, kTypeWidth), kTypeWidth, cut(r.out, kOutWidth), kOutWidth, cell(r.forward_ms, 8, decimals),
                cell(r.backward_ms, 9, decimals), cell(r.update_ms, 8, decimals),
                cell(step_ms > 0 ? 100 * r.ms / step_ms : 0, 7, 1), cell(r.gflops_per_second(), 8, 0), of_peak,
                cell(static_cast<double>(r.activation_bytes) / 1e6, 9, 2),
                cell(static_cast<double>(r.weight_bytes) / 1e6, 9, 2), slowest ? slowest_cell(r, decimals) : "");
}

std::string other_line(const TimingRow& r, double step_ms, bool slowest) {
  const int decimals = decimals_for(step_ms);
  return format("{:<{}} {}{}{}{}{}{}\n", cut(r.name, 2 * kNameWidth), 2 * kNameWidth, cell(r.ms, 12, decimals),
                cell(step_ms > 0 ? 100 * r.ms / step_ms : 0, 9, 1), cell(r.transfer_ms, 14, decimals),
                cell(static_cast<double>(r.bytes_sent) / 1e6, 11, 3), cell(r.gbytes_per_second(), 9, 2),
                slowest ? slowest_cell(r, decimals) : "");
}

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::kLayer:
      return "layer";
    case Kind::kOther:
      return "other";
    case Kind::kTransfer:
      return "transfer";
    case Kind::kRest:
      return "rest";
    case Kind::kStep:
      return "step";
  }
  return "";
}

}  // namespace

double TimingRow::gflops_per_second() const {
  const double busy_ms = forward_ms + backward_ms;
  return busy_ms > 0 ? flops / busy_ms / 1e6 : 0;
}

double TimingRow::gbytes_per_second() const {
  return transfer_ms > 0 ? static_cast<double>(bytes_sent) / transfer_ms / 1e6 : 0;
}

double TimingReport::images_per_second() const {
  const double ms = untimed_ms > 0 ? untimed_ms : step().ms;
  return ms > 0 ? 1e3 * static_cast<double>(images_per_step) / ms : 0;
}

TimingReport make_report(std::span<const RankTimes> ranks, const std::vector<LayerFacts>& layers,
                         int64_t images_per_step) {
  OWT_CHECK(!ranks.empty(), "a report needs at least one rank");
  std::vector<TimingRow> layer_rows;
  for (const LayerFacts& layer : layers) layer_rows.push_back(row_of(layer));
  for (const RowTimes& measured : ranks.front().rows)
    if (belongs_to_layer(measured.phase)) merge_run(layer_rows, measured.name);
  TimingReport report;
  report.steps = ranks.front().steps;
  report.images_per_step = images_per_step;
  report.period = ranks.front().period;
  report.ranks = static_cast<int>(ranks.size());
  report.rows = rows_of(ranks.front(), layer_rows);
  for (TimingRow& row : layer_rows) row = facts_left_out(row);
  for (const RankTimes& rank : ranks.subspan(1)) report.others.push_back(rows_of(rank, layer_rows));
  for (TimingRow& row : report.rows) find_slowest(row, report.others);
  return report;
}

double TimingReport::peak_share(const TimingRow& row) const {
  return peak.known() && row.ms > 0 ? 1e3 * peak.seconds(row.flops, row.memory_bytes) / row.ms : 0;
}

const char* TimingReport::bound(const TimingRow& row) const {
  if (peak_share(row) == 0) return "";
  return peak.computes(row.flops, row.memory_bytes) ? "compute" : "memory";
}

std::string TimingReport::table() const {
  const double step_ms = step().ms;
  std::string text = format("Worker 0 of {}, medians over {} steps of {} images{}\n\n", ranks, steps, images_per_step,
                            period > 1 ? format(", of means over {} steps in a row", period) : "");
  const size_t peak_width = peak.known() ? kPeakWidth : 0;
  static constexpr const char* kHead = "{:<{}} {:<{}} {:>{}} {:>8}{:>9}{:>8}{:>7}{:>8}{:<{}}{:>9}{:>9}{}\n";
  const bool several = !others.empty();
  const char *const slowest = several ? "   slowest" : "", *const slowest_unit = several ? "  ms @rank" : "";
  text += format(kHead, "layer", kNameWidth, "type", kTypeWidth, "out", kOutWidth, "forward", "backward", "update",
                 "share", "speed", peak.known() ? "  peak" : "", peak_width, "activ.", "weights", slowest);
  text += format(kHead, "", kNameWidth, "", kTypeWidth, "", kOutWidth, "ms", "ms", "ms", "%", "GFLOP/s",
                 peak.known() ? "    %" : "", peak_width, "MB", "MB", slowest_unit);
  bool second_head = false;
  for (const TimingRow& row : rows) {
    if (row.kind == Kind::kStep) break;
    if (row.kind != Kind::kLayer && !second_head) {
      second_head = true;
      text += format("\n{:<{}} {:>12}{:>9}{:>14}{:>11}{:>9}{}\n{:<{}} {:>12}{:>9}{:>14}{:>11}{:>9}{}\n", "other",
                     2 * kNameWidth, "exposed", "share", "transfer", "sent", "speed", slowest, "", 2 * kNameWidth, "ms",
                     "%", "ms", "MB/step", "GB/s", slowest_unit);
    }
    const std::string of_peak = peak.known() ? peak_cell(peak_share(row), bound(row)) : "";
    text += row.kind == Kind::kLayer ? layer_line(row, step_ms, of_peak, several) : other_line(row, step_ms, several);
  }
  text += format("\nstep {:.{}f} ms", step_ms, decimals_for(step_ms));
  if (untimed_ms > 0) text += format(", without timers {:.{}f} ms", untimed_ms, decimals_for(step_ms));
  if (step().slowest_rank > 0)
    text += format(", slowest worker {} {:.{}f} ms", step().slowest_rank, step().slowest_ms, decimals_for(step_ms));
  text += format(", {:.1f} images/s\n", images_per_second());
  if (peak.known())
    text +=
        format("peak {:.0f} GFLOP/s (c), {:.1f} GB/s of memory (m)\n", peak.flops_per_s / 1e9, peak.bytes_per_s / 1e9);
  return text;
}

std::string TimingReport::csv() const {
  std::string text =
      "kind,name,type,out,forward_ms,backward_ms,update_ms,ms,share,transfer_ms,gflops_per_s,bytes_sent,"
      "gbytes_per_s,activation_bytes,weight_bytes,memory_bytes,peak_share,bound,update_in_backward,rank\n";
  const auto add = [&](const std::vector<TimingRow>& of_rank, size_t rank) {
    for (const TimingRow& r : of_rank)
      text += format(
          "{},{},{},{},{:.4f},{:.4f},{:.4f},{:.4f},{:.5f},{:.4f},{:.2f},{},{:.3f},{},{},{:.0f},{:.4f},{},{},{}\n",
          kind_name(r.kind), csv_quoted(r.name), csv_quoted(r.type), r.out, r.forward_ms, r.backward_ms, r.update_ms,
          r.ms, of_rank.back().ms > 0 ? r.ms / of_rank.back().ms : 0, r.transfer_ms, r.gflops_per_second(),
          r.bytes_sent, r.gbytes_per_second(), r.activation_bytes, r.weight_bytes, r.memory_bytes, peak_share(r),
          bound(r), r.update_in_backward ? 1 : 0, rank);
  };
  add(rows, 0);
  if (untimed_ms > 0) text += format("untimed,step,,,0,0,0,{:.4f},0,0,0,0,0,0,0,0,0,,0,0\n", untimed_ms);
  for (size_t r = 0; r < others.size(); ++r) add(others[r], r + 1);
  return text;
}

}  // namespace owt
