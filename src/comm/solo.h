// The communicator of a single rank.
#pragma once

#include <memory>

#include "src/comm/communicator.h"

namespace owt {

// Its collectives copy from one tensor to the other, and do nothing in place. They may be recorded into a graph. For
// tensors on the CPU and, if `device` is a GPU, on the calling host thread's GPU.
std::unique_ptr<Communicator> make_solo_communicator(Device device);

}  // namespace owt
