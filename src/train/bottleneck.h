// Where a step goes, over all ranks, and what bounds it: one sentence from what every rank measured.
//
// The step is seen from the rank that is busy for longest in it (StepTimes::longest), since the others wait for it and
// it for nobody: what it waits for transfers is what they take. What a rank is busy for beyond the others (their
// median) in the mean step is no layer's fault, but that of a slow rank.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "src/train/rank_times.h"

namespace owt {

struct StepPart {
  enum class Kind {
    kLayer,     // a layer's pass or update, the loss
    kTransfer,  // waiting for it
    kSlowRank,  // what a rank is busy for beyond the others
    kDisk,      // waiting for batches whose threads wait for what they read
    kLoader,    // waiting for batches whose threads are at work
    kData,      // waiting for batches, and nobody knows why
    kHost,      // neither computing nor waiting: between layers and transfers
  };
  Kind kind = Kind::kLayer;
  std::string name;  // "conv2 backward", "gradients", "rank 1"
  double ms = 0;
};

struct Bottleneck {
  std::vector<StepPart> parts{};  // the longest first; they add up to step_ms, and none is below 0
  double step_ms = 0;
  int rank = 0;  // that is busy for longest in the mean step
  bool has_data = false;

  std::string detail{};  // of the first part, for people: rates, what the others take; may be empty
  std::string advice{};  // what was predicted to help; may be empty

  double share(const StepPart& part) const { return step_ms > 0 ? part.ms / step_ms : 0; }
  // "step 256.7 ms: 71 % waiting for `gradients` (23.1 MB at 0.87 of 0.94 Gbit/s); then conv2 backward 9 %; data 0 %."
  // and the advice.
  std::string text() const;
};

// transfer_ms: what the links are known to need for a step's calls of a transfer, by its name; those that are not known
// are not there.
Bottleneck find_bottleneck(const StepTimes& times, const std::map<std::string, double>& transfer_ms = {});

}  // namespace owt
