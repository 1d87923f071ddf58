// The communicator of a rank that is alone.
#pragma once

#include <memory>

#include "src/comm/communicator.h"

namespace owt {

// Its collectives copy what goes from one tensor to another, and do nothing in place; they may be recorded into a
// graph. For tensors on the CPU and, where `device` is a GPU, on the calling host thread's.
std::unique_ptr<Communicator> make_solo_communicator(Device device);

}  // namespace owt
