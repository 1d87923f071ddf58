// Detects processes of a launch that differ in program, recipe or data, before the first collective that depends on it.
// Without this check the run would hang, or train on two different sets.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace owt {

// A value that must be the same in all processes. The error reads "WHAT: rank 1 on HOST has VALUE WHERE, rank 0 on HOST
// has VALUE WHERE; CURE". For values of several lines it shows the first line that differs.
struct Fact {
  std::string what, value;
  std::string cure;
  std::string where{};  // not compared, e.g. "in /data"
};

// The facts of one process, in the same order on all processes.
struct Facts {
  std::string host;
  std::vector<Fact> facts;
};

// The error text for the first fact in which a rank differs from rank 0, and for the first such rank. None if all ranks
// agree.
std::optional<std::string> first_difference(const std::vector<Facts>& by_rank);

// Collective over the processes of a launch, in the same order as other collectives. Throws Error with
// first_difference() on all of them. Does nothing in a process that was started alone.
void check_alike(const std::vector<Fact>& mine);

}  // namespace owt
