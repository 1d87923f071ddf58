// Tells a rank that hangs from one that works for long.
//
// The others wait for a rank in a collective both when it computes a layer for minutes and when it hangs. So nobody is
// accused as long as any rank shows a sign of work (core/activity.h: a layer begins, a row is read, a message arrives,
// a block of a file is written), and silence is measured with two limits:
//   timeout  for a rank that waits: for data, or in a collective. Where all ranks wait and no message moves, nothing
//            will ever happen: they are in different collectives, a link is dead, or one has no data to come with.
//   stall    for a rank that seems to compute, or waits for its GPU: longer than any layer, GPU step, measurement of
//            algorithms or write to a disk may take. Nobody can tell such a rank from a busy one before.
// Legitimate silence is shorter: rank 0 may evaluate, write a checkpoint or choose algorithms alone, but gives signs of
// work while it does. A rank that has said goodbye is none of those.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/core/activity.h"

namespace owt {

// What a rank says of itself.
struct Standing {
  WaitsFor waits_for = WaitsFor::kNothing;
  double still_s = 0;      // since its last sign of work
  int64_t collective = 0;  // the number of the last one it has begun, from 1; 0: none
  std::string name{};      // that collective's name, or the message's that it waits for
  int peer = -1;           // the rank at the other end of that message; -1: it waits for none
  bool operator==(const Standing&) const = default;

  std::string text() const;
  static Standing from(const std::string& text);
};

struct Stuck {
  int rank = 0;
  std::string how;  // "it has waited for data for 20 s"
};

// The rank all others wait for without hope; `standings` by rank, empty for one that is not there any more. Of several
// the one that waits for data; else one that seems to work; else, where ranks wait for messages, the one at the end of
// the chain in which each waits for the next; else the one furthest behind, or in another collective than the first.
std::optional<Stuck> find_stuck(const std::vector<std::optional<Standing>>& standings, double timeout_s,
                                double stall_s);

}  // namespace owt
