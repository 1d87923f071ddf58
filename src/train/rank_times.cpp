#include "src/train/rank_times.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "src/comm/launch.h"
#include "src/comm/on_host.h"
#include "src/system/log.h"
#include "src/system/texts.h"

namespace owt {
namespace {

// Means over `period` consecutive values; a shorter rest counts only if it is the only part.
template <class Value>
std::vector<double> means_of(const std::vector<Value>& values, int64_t period) {
  std::vector<double> means;
  const int64_t count = std::ssize(values), length = std::clamp<int64_t>(count, 1, period);
  for (auto at = values.begin(); values.end() - at >= length; at += length)
    means.push_back(std::accumulate(at, at + length, 0.0) / static_cast<double>(length));
  return means;
}

// The middle half of the steps by duration; it includes the middle one of an odd number.
std::vector<size_t> middle_half(const std::vector<double>& step_ms) {
  std::vector<size_t> steps(step_ms.size());
  std::iota(steps.begin(), steps.end(), size_t{0});
  std::stable_sort(steps.begin(), steps.end(), [&](size_t a, size_t b) { return step_ms[a] < step_ms[b]; });
  const size_t left_out = steps.size() / 4;
  return {steps.begin() + static_cast<std::ptrdiff_t>(left_out), steps.end() - static_cast<std::ptrdiff_t>(left_out)};
}

// The sum of the rows of a phase, for each step.
std::vector<double> sums_of(const Profiler& profiler, Phase phase) {
  std::vector<double> sums(profiler.step_ms().size());
  for (const Profiler::Row& row : profiler.rows())
    for (size_t i = 0; row.phase == phase && i < sums.size(); ++i) sums[i] += row.ms[i];
  return sums;
}

// The time that the rank was busy, for each step.
std::vector<double> busy_ms(const Profiler& profiler) {
  std::vector<double> busy = profiler.step_ms(), waits = sums_of(profiler, Phase::kTransfer);
  for (size_t i = 0; i < busy.size(); ++i) busy[i] -= waits[i];
  return busy;
}

// How much longer the slowest rank waits for data than this rank, for each step.
std::vector<double> late_data_ms(const std::vector<double>& of_ranks, std::vector<double> mine) {
  std::vector<double> late(mine.size());
  for (size_t i = 0; i < of_ranks.size(); ++i)
    late[i % mine.size()] = std::max(late[i % mine.size()], of_ranks[i] - mine[i % mine.size()]);
  return late;
}

// The values of a rank, each computed by `typical` from the values of all steps.
template <class F>
RankTimes times_by(const Profiler& profiler, int64_t period, const F& typical) {
  const auto figure = [&](const auto& values) { return typical(means_of(values, period)); };
  RankTimes times{.step_ms = figure(profiler.step_ms()), .steps = std::ssize(profiler.step_ms()), .period = period};
  for (const Profiler::Row& row : profiler.rows())
    times.rows.push_back({row.name, row.phase, figure(row.ms), figure(row.transfer_ms),
                          static_cast<int64_t>(figure(row.bytes)), figure(row.own_ms)});
  return times;
}

// The sum over these steps divided by `of_steps`: their part of the mean.
RankTimes part_of_mean(const Profiler& profiler, int64_t period, const std::vector<size_t>& steps, size_t of_steps) {
  return times_by(profiler, period, [&](const std::vector<double>& values) {
    double sum = 0;
    for (const size_t i : steps) sum += values[i];
    return sum / static_cast<double>(of_steps);
  });
}

// Selected steps, from the durations and busy times of all ranks' steps, one rank after the other.
struct MiddleSteps {
  std::vector<size_t> all;   // selected steps, equal on all ranks
  std::vector<size_t> mine;  // the selected steps in which this rank is busiest

  MiddleSteps(const std::vector<double>& step_ms, const std::vector<double>& busy, size_t steps, size_t rank) {
    std::vector<double> longest(steps);
    std::vector<size_t> busiest(steps);
    for (size_t i = 0; i < step_ms.size(); ++i) {
      longest[i % steps] = std::max(longest[i % steps], step_ms[i]);
      if (busy[i] > busy[busiest[i % steps] * steps + i % steps]) busiest[i % steps] = i / steps;
    }
    all = middle_half(longest);
    for (const size_t i : all)
      if (busiest[i] == rank) mine.push_back(i);
  }
};

// The time that a rank waits for each transfer in each step, as a text for other ranks.
std::string text_of_waits(const Profiler& profiler, int64_t period) {
  std::vector<std::string> texts;
  for (const Profiler::Row& row : profiler.rows()) {
    if (row.phase != Phase::kTransfer) continue;
    texts.push_back(row.name);
    for (const double ms : means_of(row.ms, period)) texts.push_back(format("{}", ms));
  }
  return packed(texts);
}

using TransferWaits = std::map<std::string, std::vector<double>>;  // [transfer][step]

// The smallest wait of any rank: the wait of the last rank to arrive, for which the others wait.
TransferWaits least_waits(const std::vector<std::string>& of_ranks, size_t steps) {
  TransferWaits least;
  for (const std::string& text : of_ranks) {
    const std::vector<std::string> texts = unpacked(text);
    for (size_t at = 0; at < texts.size(); at += 1 + steps) {
      std::vector<double>& ms = least.try_emplace(texts[at], steps, INFINITY).first->second;
      for (size_t i = 0; i < steps; ++i) ms[i] = std::min(ms[i], std::stod(texts[at + 1 + i]));
    }
  }
  return least;
}

void add_part(RankTimes& sum, const RankTimes& part) {
  for (const RowTimes& row : part.rows) {
    auto to = std::find_if(sum.rows.begin(), sum.rows.end(),
                           [&](const RowTimes& each) { return each.phase == row.phase && each.name == row.name; });
    if (to == sum.rows.end()) to = sum.rows.insert(to, {row.name, row.phase});
    to->ms += row.ms, to->transfer_ms += row.transfer_ms, to->bytes += row.bytes, to->own_ms += row.own_ms;
  }
  sum.step_ms += part.step_ms;
  sum.loader.work_s += part.loader.work_s, sum.loader.wait_s += part.loader.wait_s;
}

// Time that a rank waits in transfers for ranks whose data arrives later counts as waiting for data. part: the rank's
// part of the mean (part_of_mean). late_ms: how much later the data of others arrives, for each step; the first
// transfers of a step contain this wait.
void count_as_data(RankTimes& part, const Profiler& profiler, const std::vector<size_t>& steps, size_t of_steps,
                   const TransferWaits& least, std::vector<double> late_ms) {
  double moved = 0;
  for (size_t r = 0; r < part.rows.size(); ++r) {
    if (part.rows[r].phase != Phase::kTransfer) continue;
    const std::vector<double> ms = means_of(profiler.rows()[r].ms, part.period);
    const std::vector<double>& last = least.at(part.rows[r].name);
    double of_row = 0;
    for (const size_t i : steps) {
      const double waits = std::min(late_ms[i], ms[i] - last[i]);
      late_ms[i] -= waits, of_row += waits / static_cast<double>(of_steps);
    }
    part.rows[r].ms -= of_row, moved += of_row;
  }
  if (moved > 0) add_part(part, {.rows = {{"data wait", Phase::kData, moved}}});
}

// Reads the numbers of a text made in this file, one after the other.
class Numbers {
 public:
  explicit Numbers(const std::vector<std::string>& texts) : texts_(texts) {}
  const std::string& text() {
    if (next_ == texts_.size()) fail("the times of a rank end early");
    return texts_[next_++];
  }
  double real() { return std::stod(text()); }
  int64_t whole() { return std::stoll(text()); }
  bool more() const { return next_ < texts_.size(); }

 private:
  const std::vector<std::string>& texts_;
  size_t next_ = 0;
};

double ms_of_rows(const std::vector<RowTimes>& rows, Phase phase) {
  double sum = 0;
  for (const RowTimes& row : rows) sum += row.phase == phase ? row.ms : 0;
  return sum;
}

}  // namespace

bool belongs_to_layer(Phase phase) {
  return phase == Phase::kForward || phase == Phase::kBackward || phase == Phase::kUpdate;
}

std::string text_of_row(const std::string& name, Phase phase) {
  return belongs_to_layer(phase) ? concat(name, " ", name_of(phase)) : name;
}

const RowTimes* RankTimes::find(const std::string& name, Phase phase) const {
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const RowTimes& row) { return row.phase == phase && row.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

double RankTimes::data_ms() const { return ms_of_rows(rows, Phase::kData); }
double RankTimes::exposed_ms() const { return ms_of_rows(rows, Phase::kTransfer); }

double RankTimes::rest_ms() const {
  double rest = step_ms;
  for (const RowTimes& row : rows) rest -= row.ms;
  return rest;
}

std::string RankTimes::text() const {
  const auto number = [](auto value) { return format("{}", value); };
  std::vector<std::string> texts{number(step_ms),       number(steps),         number(period),
                                 number(loader.work_s), number(loader.wait_s), host};
  for (const RowTimes& row : rows)
    for (std::string& text : std::vector{row.name, number(static_cast<int>(row.phase)), number(row.ms),
                                         number(row.transfer_ms), number(row.bytes), number(row.own_ms)})
      texts.push_back(std::move(text));
  return packed(texts);
}

RankTimes RankTimes::from_text(const std::string& text) {
  const std::vector<std::string> texts = unpacked(text);
  Numbers from(texts);
  RankTimes times;
  times.step_ms = from.real(), times.steps = from.whole(), times.period = from.whole();
  times.loader.work_s = from.real(), times.loader.wait_s = from.real();
  times.host = from.text();
  while (from.more()) {
    RowTimes row{from.text()};
    row.phase = static_cast<Phase>(from.whole());
    row.ms = from.real(), row.transfer_ms = from.real(), row.bytes = from.whole();
    row.own_ms = from.real();
    times.rows.push_back(std::move(row));
  }
  return times;
}

double longest_step_ms(std::span<const RankTimes> ranks) {
  double longest = 0;
  for (const RankTimes& rank : ranks) longest = std::max(longest, rank.step_ms);
  return longest;
}

double transfer_ms_of(std::span<const RankTimes> ranks, const std::string& name,
                      const std::function<bool(int rank)>& takes_part) {
  double least = INFINITY;
  for (size_t r = 0; r < ranks.size(); ++r)
    if (const RowTimes* row = ranks[r].find(name, Phase::kTransfer); row && takes_part(static_cast<int>(r)))
      least = std::min(least, row->taken_ms());
  return std::isfinite(least) ? least : 0;
}

bool transfers_overlap(std::span<const RankTimes> ranks) {
  return std::any_of(ranks.begin(), ranks.end(), [](const RankTimes& rank) {
    return std::any_of(rank.rows.begin(), rank.rows.end(),
                       [](const RowTimes& row) { return row.phase == Phase::kTransfer && row.transfer_ms > row.ms; });
  });
}

double StepTimes::transfer_ms(const std::string& name) const {
  const RowTimes* row = longest.find(name, Phase::kTransfer);
  const double of_ranks = transfer_ms_of(middle, name);
  return row ? std::min(of_ranks, row->taken_ms()) : of_ranks;
}

RankTimes rank_times(const Profiler& profiler, int64_t period) { return times_by(profiler, period, median); }

StepTimes gather_times(Communicator& comm, const Profiler& profiler, int64_t period, Device device,
                       const LoaderTimes& loader) {
  const std::vector<double> step_ms = means_of(profiler.step_ms(), period), busy = means_of(busy_ms(profiler), period);
  const MiddleSteps middle(on_host::gather(comm, step_ms, device), on_host::gather(comm, busy, device), step_ms.size(),
                           static_cast<size_t>(comm.rank()));
  const auto gathered = [&](RankTimes mine, double part) {
    mine.loader = {part * loader.work_s, part * loader.wait_s};
    mine.host = host_name();
    std::vector<RankTimes> all;
    for (const std::string& text : on_host::gather(comm, mine.text(), device))
      all.push_back(RankTimes::from_text(text));
    return all;
  };
  const auto mean = [&](const std::vector<size_t>& steps) {
    return part_of_mean(profiler, period, steps, middle.all.size());
  };
  StepTimes times{.medians = gathered(rank_times(profiler, period), 1), .middle = gathered(mean(middle.all), 1)};
  times.longest = {.steps = times.middle.front().steps, .period = period};
  const std::vector<double> data = means_of(sums_of(profiler, Phase::kData), period);
  const TransferWaits least =
      least_waits(on_host::gather(comm, text_of_waits(profiler, period), device), step_ms.size());
  RankTimes mine = mean(middle.mine);
  count_as_data(mine, profiler, middle.mine, middle.all.size(), least,
                late_data_ms(on_host::gather(comm, data, device), data));
  const double part = static_cast<double>(middle.mine.size()) / static_cast<double>(middle.all.size());
  for (const RankTimes& each : gathered(mine, part)) add_part(times.longest, each);
  return times;
}

}  // namespace owt
