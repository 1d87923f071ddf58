// The time of a step by layer: the table of `owt time` and timing.csv.
//
// The table shows rank 0, medians over its recorded steps, and for each row the slowest rank. The CSV shows every rank.
// The row "rest" makes the rows of a rank add up to its median step. It is the time between scopes, plus the difference
// between the median of sums and the sum of medians, so it may be slightly negative.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/core/peak.h"
#include "src/core/shape.h"
#include "src/train/rank_times.h"

namespace owt {

// Facts about a layer that need no timing, for rank 0 in one step.
struct LayerFacts {
  std::string name, type;
  Shape out;                                     // shape of one row
  double forward_flops = 0, backward_flops = 0;  // per step; a multiply-add counts as 2
  int64_t activation_bytes = 0;                  // the output of one round
  int64_t weight_bytes = 0;
  double memory_bytes = 0;          // the least memory traffic of a step
  bool update_in_backward = false;  // weights and their gradient are computed together; no gradient is stored
};

// One row; times in ms per step. A value that does not apply is 0.
struct TimingRow {
  enum class Kind { kLayer, kOther, kTransfer, kRest, kStep };
  Kind kind = Kind::kOther;
  std::string name, type;
  std::string out;  // shape, "32x32x3"
  double forward_ms = 0, backward_ms = 0, update_ms = 0;
  double ms = 0;           // the whole row's part of the step; for a transfer only the exposed time
  double transfer_ms = 0;  // duration of the collectives, overlapped or exposed
  double flops = 0;
  int64_t bytes_sent = 0;
  int64_t activation_bytes = 0, weight_bytes = 0;
  double memory_bytes = 0;
  bool update_in_backward = false;
  double slowest_ms = 0;  // the longest time of any rank for this row, and that rank
  int slowest_rank = 0;

  double gflops_per_second() const;  // in forward and backward
  double gbytes_per_second() const;  // in the transfer
};

struct TimingReport {
  // Rank 0: layers, others (loss, data wait, rows without a layer), transfers, rest, step.
  std::vector<TimingRow> rows;
  std::vector<std::vector<TimingRow>> others;  // the rows of other ranks, without facts
  int64_t steps = 0;                           // number of recorded steps
  int64_t images_per_step = 0;
  int64_t period = 1;  // see rank_times()
  int ranks = 0;
  Peak peak{};            // peak rates of a rank, if known
  double untimed_ms = 0;  // a step without timers, in which the host may run ahead; 0: not measured

  const TimingRow& step() const { return rows.back(); }
  double images_per_second() const;  // from the untimed step if it was measured

  // The time of a layer's row at the peak, as a fraction of its measured time. It may exceed 1: Winograd's algorithm
  // needs fewer multiplications than are counted here, and a layer may find its input in a cache.
  double peak_share(const TimingRow& row) const;
  const char* bound(const TimingRow& row) const;  // limited by "compute" or "memory"; "" if peak_share() is 0

  std::string table() const;  // at most 110 columns wide; 122 for several ranks
  // Columns:
  // kind,name,type,out,forward_ms,backward_ms,update_ms,ms,share,transfer_ms,gflops_per_s,bytes_sent,
  // gbytes_per_s,activation_bytes,weight_bytes,memory_bytes,peak_share,bound,update_in_backward,rank.
  // `share` is a fraction of the step. untimed_ms is a row of kind "untimed". Rank 0's rows come first.
  std::string csv() const;
};

// layers: in the order of the table. Rows of the ranks are matched by name; "conv1+relu1" merges the two layers into
// one row. images_per_step: over all ranks.
TimingReport make_report(std::span<const RankTimes> ranks, const std::vector<LayerFacts>& layers,
                         int64_t images_per_step);

}  // namespace owt
