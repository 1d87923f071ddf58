// Explains in one sentence where a step's time goes over all ranks, and what limits it.
//
// The step is seen from the rank that is busiest in it (StepTimes::longest): the others wait for it, and its own waits
// for transfers are their duration. In the mean step, the time that a rank is busy beyond the others' median belongs to
// a slow rank, not to a layer.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "src/train/rank_times.h"

namespace owt {

struct StepPart {
  enum class Kind {
    kLayer,     // a layer's pass or update, or the loss
    kTransfer,  // waiting for a transfer
    kSlowRank,  // time that a rank is busy beyond the others
    kDisk,      // waiting for batches; the loader threads wait for reads
    kLoader,    // waiting for batches; the loader threads are computing
    kData,      // waiting for batches, for an unknown reason
    kHost,      // neither computing nor waiting: between layers and transfers
  };
  Kind kind = Kind::kLayer;
  std::string name;  // "conv2 backward", "gradients", "rank 1"
  double ms = 0;
};

struct Bottleneck {
  std::vector<StepPart> parts{};  // longest first; they add up to step_ms, and none is negative
  double step_ms = 0;
  int rank = 0;  // the busiest rank in the mean step
  bool has_data = false;

  std::string detail{};  // about the first part, for people: rates, times of the other ranks; may be empty
  std::string advice{};  // a prediction of what would help; may be empty

  double share(const StepPart& part) const { return step_ms > 0 ? part.ms / step_ms : 0; }
  // "step 256.7 ms: 71 % waiting for `gradients` (23.1 MB at 0.87 of 0.94 Gbit/s); then conv2 backward 9 %; data 0 %.",
  // followed by the advice.
  std::string text() const;
};

// transfer_ms: the known duration of a step's calls of a transfer, by name; unknown transfers are missing.
Bottleneck find_bottleneck(const StepTimes& times, const std::map<std::string, double>& transfer_ms = {});

}  // namespace owt
