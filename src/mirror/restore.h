// Writes tensors from the copies that the ranks have.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/mirror/host_messages.h"
#include "src/mirror/mirrored.h"

namespace owt {

using RegionsOfRanks = std::vector<std::vector<Region>>;  // by rank: its regions of a tensor

// The copies of a step, by tensor.
struct HeldCopies {
  std::map<std::string, RegionsOfRanks> regions;      // what the ranks have
  std::map<std::string, std::vector<Tensor>> memory;  // this rank's values, in the order of its regions
};

// Collective: sets all elements of the tensors, which are the same on all ranks in different parts. An element comes
// from this rank's copies if they have it, else from the lowest rank with it. A message has elements of one piece of a
// tensor (pieces_of). Returns the bytes that this rank has received. Throws Error if no rank has an element.
int64_t restore_tensors(HostMessages& messages, const HeldCopies& held, std::vector<MirroredTensor>& tensors);

}  // namespace owt
