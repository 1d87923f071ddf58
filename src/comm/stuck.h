// Distinguishes a rank that hangs from a rank that computes for a long time.
//
// The other ranks wait in a collective in both cases. No rank is reported while any rank shows a sign of work
// (core/activity.h: a layer begins, a row is read, a message arrives, a block of a file is written). Silence is
// measured against two limits:
//   timeout  for a rank that waits for data or in a collective. If all ranks wait and no message moves, the state is
//            final: they are in different collectives, a link is dead, or one has no data.
//   stall    for a rank that seems to compute, or waits for its GPU. It is longer than any layer, GPU step, measurement
//            of algorithms or write to a disk. Before it such a rank cannot be distinguished from a busy one.
// Legitimate silence is shorter: rank 0 may evaluate, write a checkpoint or choose algorithms alone, but it gives signs
// of work meanwhile. Ranks that have said goodbye are not considered.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/system/activity.h"

namespace owt {

// A rank's report about itself.
struct Standing {
  WaitsFor waits_for = WaitsFor::kNothing;
  double still_s = 0;      // seconds since its last sign of work
  int64_t collective = 0;  // number of the last collective it began, from 1; 0: none
  std::string name{};      // name of that collective, or of the message that it waits for
  int peer = -1;           // rank at the other end of that message; -1: it waits for no message
  bool operator==(const Standing&) const = default;

  std::string text() const;
  static Standing from(const std::string& text);
};

struct Stuck {
  int rank = 0;
  std::string how;  // "it has waited for data for 20 s"
};

// The rank that all others wait for indefinitely. `standings` by rank; empty for a rank that has left. The first match:
// - a rank that waits for data,
// - a rank that seems to work,
// - a rank that waits for its GPU,
// - if ranks wait for messages, the end of the chain in which each waits for the next,
// - the rank that has begun the fewest collectives, or is in another collective than the first rank.
std::optional<Stuck> find_stuck(const std::vector<std::optional<Standing>>& standings, double timeout_s,
                                double stall_s);

}  // namespace owt
