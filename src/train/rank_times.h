// The measurements of the ranks' profilers, as data for a typical step.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/batch.h"
#include "src/comm/communicator.h"
#include "src/core/profiler.h"

namespace owt {

// Whether the phase is a layer's pass or update, whose rows are named "conv1 backward"; other rows are named
// "gradients".
bool belongs_to_layer(Phase phase);
std::string text_of_row(const std::string& name, Phase phase);

// The times of one row of the profiler, per step; see Profiler::Row.
struct RowTimes {
  std::string name;
  Phase phase = Phase::kForward;
  double ms = 0, transfer_ms = 0;
  int64_t bytes = 0;
  double own_ms = 0;

  // For a transfer: its duration or, if that was not measured, the time that the rank waited for it.
  double taken_ms() const { return transfer_ms > 0 ? transfer_ms : ms; }
  bool operator==(const RowTimes&) const = default;
};

struct RankTimes {
  std::vector<RowTimes> rows{};
  double step_ms = 0;
  int64_t steps = 0;     // number of recorded steps
  int64_t period = 1;    // see rank_times()
  LoaderTimes loader{};  // per step; zeros: there was no loader, or it was not measured
  std::string host{};    // host name of the rank

  const RowTimes* find(const std::string& name, Phase phase) const;  // null: there is no such row
  double data_ms() const;                                            // time that the rank waited for batches
  double exposed_ms() const;                                         // time that the rank waited for transfers
  double busy_ms() const { return step_ms - exposed_ms(); }
  double rest_ms() const;  // time outside of all rows

  std::string text() const;                             // a text to send to other ranks
  static RankTimes from_text(const std::string& text);  // throws Error for any text that text() did not make
  bool operator==(const RankTimes&) const = default;
};

// The longest step of any rank.
double longest_step_ms(std::span<const RankTimes> ranks);
// The duration of the transfer once all its ranks are ready: the smallest time of any rank, since early ranks wait for
// others. If the duration was not measured, the time that ranks waited.
double transfer_ms_of(
    std::span<const RankTimes> ranks, const std::string& name,
    const std::function<bool(int rank)>& takes_part = [](int) { return true; });
// Whether ranks compute during collectives: a transfer took longer than a rank waited for it.
bool transfers_overlap(std::span<const RankTimes> ranks);

// A section of the critical path through a step; each section waits for the one before it.
struct PathPart {
  std::string row;  // named as spans of a trace: "conv1 backward", "gradients", "data wait"; between them "host"
  int rank = 0;     // the busy rank, or the last rank to reach the transfer
  bool transfers = false;
  double begin_ms = 0, end_ms = 0;
};

// The median of each value over the recorded steps; the medians add up to the step only approximately. period: if steps
// differ, they repeat after this many, and means over such runs of steps replace the steps.
RankTimes rank_times(const Profiler& profiler, int64_t period = 1);

// The times of all ranks.
struct StepTimes {
  std::vector<RankTimes> medians{};  // index: rank
  // index: rank. Means over the middle half of the steps, ordered by duration; the rows add up to the step.
  std::vector<RankTimes> middle{};
  // The mean over the same steps of whichever rank is busiest in each, since the others wait for it. With transient
  // stragglers all ranks wait in transfers on average, although no transfer is slow.
  RankTimes longest{};

  bool empty() const { return medians.empty(); }
  double transfer_ms(const std::string& name) const;  // transfer_ms_of() over `middle` and `longest`
};
// Collective. loader: per step.
StepTimes gather_times(Communicator& comm, const Profiler& profiler, int64_t period, Device device,
                       const LoaderTimes& loader = {});

}  // namespace owt
