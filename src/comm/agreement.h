// Finds out, before the first collective that depends on it, when the processes of a launch were not given the same:
// another program, another recipe, another copy of the data. What follows would hang, or train on two different sets.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace owt {

// Something that all processes must have alike. The error reads "WHAT: rank 1 on HOST has VALUE WHERE, rank 0 on HOST
// has VALUE WHERE; CURE". Of values with several lines it shows the first line that differs.
struct Fact {
  std::string what, value;
  std::string cure;
  std::string where{};  // not compared; for instance "in /data"
};

// What one process has, facts in the same order everywhere.
struct Facts {
  std::string host;
  std::vector<Fact> facts;
};

// The text of the error for the first fact that some rank has otherwise than rank 0, and the first such rank; nothing
// where all agree.
std::optional<std::string> first_difference(const std::vector<Facts>& by_rank);

// Collective over the processes of a launch, in the same order with other collectives. Throws Error with
// first_difference() on all of them. A process that was started alone has nothing to compare.
void check_alike(const std::vector<Fact>& mine);

}  // namespace owt
