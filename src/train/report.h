// Where the time of a step went: the table of `owt time`, timing.csv, and a trace for a viewer.
//
// The table shows rank 0, medians over its recorded steps, and beside each row the rank that takes longest for it; the
// CSV shows every rank. The rows of a rank add up to its median step by way of the row "rest": what lies between the
// scopes, and what the sum of medians misses of the median of sums (so it may be slightly negative).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/core/peak.h"
#include "src/core/profiler.h"
#include "src/core/shape.h"
#include "src/train/rank_times.h"

namespace owt {

// What is known of a layer without timing it, as rank 0 computes it in one step.
struct LayerFacts {
  std::string name, type;
  Shape out;                                     // of one row
  double forward_flops = 0, backward_flops = 0;  // per step; a multiply-add is 2
  int64_t activation_bytes = 0;                  // of the output, of one round
  int64_t weight_bytes = 0;
  double memory_bytes = 0;          // that go from and to memory in a step at least
  bool update_in_backward = false;  // the weights are updated while their gradient is computed
};

// One row; times in ms per step. What does not apply is 0.
struct TimingRow {
  enum class Kind { kLayer, kOther, kTransfer, kRest, kStep };
  Kind kind = Kind::kOther;
  std::string name, type;
  std::string out;  // shape, "32x32x3"
  double forward_ms = 0, backward_ms = 0, update_ms = 0;
  double ms = 0;           // the whole row's part of the step; of a transfer only what is exposed
  double transfer_ms = 0;  // of the collectives themselves, overlapped or not
  double flops = 0;
  int64_t bytes_sent = 0;
  int64_t activation_bytes = 0, weight_bytes = 0;
  double memory_bytes = 0;
  bool update_in_backward = false;
  double slowest_ms = 0;  // of all ranks' rows the one that takes longest, and whose that is
  int slowest_rank = 0;

  double gflops_per_second() const;  // of forward and backward
  double gbytes_per_second() const;  // of the transfer
};

struct TimingReport {
  // Of rank 0: layers, others (loss, data wait, what has no layer), transfers, rest, step.
  std::vector<TimingRow> rows;
  std::vector<std::vector<TimingRow>> others;  // the same of the other ranks, without what is known without timing
  int64_t steps = 0;                           // recorded
  int64_t images_per_step = 0;
  int64_t period = 1;  // see rank_times()
  int ranks = 0;
  Peak peak{};            // of a rank, where that is known
  double untimed_ms = 0;  // of a step when nothing inside it is timed and the host may run ahead; 0: not measured

  const TimingRow& step() const { return rows.back(); }
  double images_per_second() const;  // untimed where that was measured

  // The time that a layer's row takes at the peak, as a fraction of its own. More than 1 is possible: Winograd's
  // algorithm has fewer multiplications than count here, and what one layer wrote the next may find in a cache.
  double peak_share(const TimingRow& row) const;
  const char* bound(const TimingRow& row) const;  // by "compute" or "memory"; "" where peak_share() is 0

  std::string table() const;  // at most 110 columns wide, of several ranks 122
  // Columns:
  // kind,name,type,out,forward_ms,backward_ms,update_ms,ms,share,transfer_ms,gflops_per_s,bytes_sent,
  // gbytes_per_s,activation_bytes,weight_bytes,memory_bytes,peak_share,bound,update_in_backward,rank. `share` is a
  // fraction of the step. untimed_ms is a row of kind "untimed". Rank 0's rows come first.
  std::string csv() const;
};

// `layers` in the order of the table; rows of the ranks are matched to them by name; "conv1+relu1" makes one row of the
// two. `images_per_step`: over all ranks.
TimingReport make_report(std::span<const RankTimes> ranks, const std::vector<LayerFacts>& layers,
                         int64_t images_per_step);

// Every recorded span of every rank in the Trace Event Format (chrome://tracing, Perfetto): a process per
// rank, threads "compute", "transfer", "data"; microseconds since the first profiler was made. Needs
// Profiler::keep_spans(true). The longest way through a typical step is a process more, beneath the step of rank 0 that
// took nearest to the median; what lies on it has "longest_way" among the arguments of its spans.
std::string trace_json(std::span<const Profiler> ranks, std::span<const PathPart> path = {});

}  // namespace owt
