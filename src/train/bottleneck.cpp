#include "src/train/bottleneck.h"

#include <algorithm>
#include <cmath>

#include "src/system/check.h"
#include "src/system/log.h"

namespace owt {
namespace {

using PartKind = StepPart::Kind;

constexpr double kSlower = 0.05;  // fraction of the step; smaller differences between ranks are normal

double median_of_others(std::span<const RankTimes> ranks, size_t rank, double (RankTimes::*figure)() const) {
  std::vector<double> others;
  for (size_t r = 0; r < ranks.size(); ++r)
    if (r != rank) others.push_back((ranks[r].*figure)());
  return median(others);
}

bool is_data(PartKind kind) { return kind == PartKind::kDisk || kind == PartKind::kLoader || kind == PartKind::kData; }

PartKind kind_of_data(const LoaderTimes& loader) {
  if (loader.work_s + loader.wait_s == 0) return PartKind::kData;
  return loader.wait_s > loader.work_s ? PartKind::kDisk : PartKind::kLoader;
}

StepPart part_of(const RowTimes& row, const LoaderTimes& loader) {
  switch (row.phase) {
    case Phase::kTransfer:
      return {PartKind::kTransfer, row.name, row.ms};
    case Phase::kData:
      return {kind_of_data(loader), "data", row.ms};
    default:
      return {PartKind::kLayer, text_of_row(row.name, row.phase), row.ms};
  }
}

// A rank is busy with everything except transfers.
bool is_busy(const StepPart& part) { return part.kind != PartKind::kTransfer; }

double sum_of(const std::vector<StepPart>& parts, bool (*counts)(const StepPart&)) {
  double sum = 0;
  for (const StepPart& part : parts) sum += counts(part) ? part.ms : 0;
  return sum;
}

// Medians of parts may add up to slightly more than the median step, so they are scaled to it.
std::vector<StepPart> parts_of(const RankTimes& rank) {
  std::vector<StepPart> parts;
  for (const RowTimes& row : rank.rows) parts.push_back(part_of(row, rank.loader));
  parts.push_back({PartKind::kHost, "host", std::max(0.0, rank.rest_ms())});
  const double all = sum_of(parts, [](const StepPart&) { return true; });
  for (StepPart& part : parts) part.ms *= all > 0 ? rank.step_ms / all : 0;
  return parts;
}

// Removes the excess from all busy parts in proportion; only from data if that is why the rank is slow.
void take_excess(std::vector<StepPart>& parts, double excess, bool of_data) {
  const auto counts = of_data ? [](const StepPart& part) { return is_data(part.kind); } : is_busy;
  const double all = sum_of(parts, counts);
  for (StepPart& part : parts)
    if (counts(part)) part.ms *= std::max(0.0, 1 - excess / all);
}

// 0.87: two decimals, in the unit of rate_unit().
std::string rate_text(double bits_per_s) {
  return bits_per_s >= 1e8 ? format("{:.2f}", bits_per_s / 1e9) : format("{:.2f}", bits_per_s / 1e6);
}
const char* rate_unit(double bits_per_s) { return bits_per_s >= 1e8 ? "Gbit/s" : "Mbit/s"; }

std::string transfer_detail(const StepTimes& times, const RowTimes& row,
                            const std::map<std::string, double>& known_ms) {
  const double ms = times.transfer_ms(row.name), bits = 8 * static_cast<double>(row.bytes);
  const std::string bytes = format("{:.3g} MB", static_cast<double>(row.bytes) / 1e6);
  if (row.bytes == 0 || ms <= 0) return "";
  const double rate = 1e3 * bits / ms;
  const auto known = known_ms.find(row.name);
  if (known == known_ms.end() || known->second <= 0)
    return format("{} at {} {}", bytes, rate_text(rate), rate_unit(rate));
  const double best = 1e3 * bits / known->second;
  if (std::string(rate_unit(rate)) == rate_unit(best))
    return format("{} at {} of {} {}", bytes, rate_text(rate), rate_text(best), rate_unit(best));
  return format("{} at {} {} of {} {}", bytes, rate_text(rate), rate_unit(rate), rate_text(best), rate_unit(best));
}

std::string brief(const StepPart& part) {
  switch (part.kind) {
    case PartKind::kTransfer:
      return concat("`", part.name, "`");
    case PartKind::kSlowRank:
      return concat("waiting for ", part.name);
    case PartKind::kHost:
      return "the host";
    default:
      return part.name;
  }
}

std::string data_text(PartKind kind) {
  if (kind == PartKind::kDisk) return "data, which waits for the disk";
  return kind == PartKind::kLoader ? "data, which too few threads make (data.loader_threads)" : "data";
}

std::string at_length(const StepPart& part) {
  switch (part.kind) {
    case PartKind::kTransfer:
      return concat("waiting for `", part.name, "`");
    case PartKind::kDisk:
    case PartKind::kLoader:
    case PartKind::kData:
      return "waiting for " + data_text(part.kind);
    case PartKind::kHost:
      return "the host, between layers and transfers";
    default:
      return brief(part);
  }
}

}  // namespace

Bottleneck find_bottleneck(const StepTimes& times, const std::map<std::string, double>& transfer_ms) {
  const std::vector<RankTimes>& ranks = times.middle;
  OWT_CHECK(!ranks.empty(), "a step needs at least one rank");
  const auto busier = [](const RankTimes& a, const RankTimes& b) { return a.busy_ms() < b.busy_ms(); };
  const RankTimes& slow = *std::max_element(ranks.begin(), ranks.end(), busier);
  const auto rank = static_cast<size_t>(&slow - ranks.data());
  Bottleneck found{.parts = parts_of(times.longest), .step_ms = times.longest.step_ms, .rank = static_cast<int>(rank)};
  found.has_data =
      std::any_of(found.parts.begin(), found.parts.end(), [](const StepPart& p) { return is_data(p.kind); });
  const double others = ranks.size() > 1 ? median_of_others(ranks, rank, &RankTimes::busy_ms) : slow.busy_ms();
  const double others_data = ranks.size() > 1 ? median_of_others(ranks, rank, &RankTimes::data_ms) : 0;
  const double excess = slow.busy_ms() - others, excess_data = slow.data_ms() - others_data;
  const bool of_data = 2 * excess_data > excess;
  if (excess > kSlower * found.step_ms) {
    take_excess(found.parts, excess, of_data);
    const double taken = found.step_ms - sum_of(found.parts, [](const StepPart&) { return true; });
    found.parts.push_back({PartKind::kSlowRank, concat("rank ", rank), taken});
  }
  std::stable_sort(found.parts.begin(), found.parts.end(),
                   [](const StepPart& a, const StepPart& b) { return a.ms > b.ms; });
  const StepPart& first = found.parts.front();
  if (first.kind == PartKind::kTransfer)
    found.detail = transfer_detail(times, *times.longest.find(first.name, Phase::kTransfer), transfer_ms);
  else if (first.kind == PartKind::kSlowRank && of_data)
    found.detail = format("which waits {:.1f} ms for {}; the others {:.1f} ms", slow.data_ms(),
                          data_text(kind_of_data(slow.loader)), others_data);
  else if (first.kind == PartKind::kSlowRank)
    found.detail = format("which is busy for {:.1f} ms, the others for {:.1f} ms", slow.busy_ms(), others);
  else if (first.kind == PartKind::kHost)
    found.detail =
        format("all {} passes and transfers take {:.3g} ms", times.longest.rows.size(), found.step_ms - first.ms);
  return found;
}

std::string Bottleneck::text() const {
  const auto percent = [&](const StepPart& part) { return format("{:.0f} %", 100 * share(part)); };
  std::string text =
      format("step {:.{}f} ms: {} {}", step_ms, step_ms < 10 ? 2 : 1, percent(parts.front()), at_length(parts.front()));
  if (!detail.empty()) text += format(" ({})", detail);
  if (parts.size() > 1) text += format("; then {} {}", brief(parts[1]), percent(parts[1]));
  const auto data = std::find_if(parts.begin(), parts.end(), [](const StepPart& part) { return is_data(part.kind); });
  if (data - parts.begin() > 1 && data != parts.end()) text += format("; data {}", percent(*data));
  return text + "." + (advice.empty() ? "" : " " + advice);
}

}  // namespace owt
