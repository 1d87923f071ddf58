// How ranks of one NCCL communicator find each other if they are in several processes of this machine.
#pragma once

#include <nccl.h>

#include <memory>
#include <string>

#include "tests/simulated_gpu/collective_world.h"

namespace simulated_gpu {

// Makes the identity of a communicator whose ranks meet in this process.
ncclUniqueId make_world();
// Joins it as this rank. `gpu`: see World::join(). Null: there is no such world, or it refuses the rank.
std::shared_ptr<Ranks> join_world(const ncclUniqueId& id, int rank, int ranks, const std::string& gpu);

}  // namespace simulated_gpu
