// bf16 transport: a communicator that halves the bytes of f32 tensors. It rounds them to bf16 before sending, and
// converts them to f32 on arrival.
//
// Every rank gets the same values: the root of a broadcast, and each rank's own part of an all_gather, are rounded as
// well. A sum adds rounded values and is itself rounded as sums of bf16 are (communicator.h). NaN and infinity are
// kept. Tensors of other element types, and all tensors of a single rank, pass unchanged. f32 values that must not be
// rounded, such as weights, use unrounded(), which is the inner communicator.
//
// On the CPU the host waits for `ready`. There, and for messages on all devices, the values are converted to f32 when
// the returned event is waited for or tested as done. Only the calling host thread may do so.
//
// Around a ProfiledCommunicator the bytes that travel are counted. It allocates bf16 memory for both tensors of a
// collective, per size; twice if such collectives follow each other.
#pragma once

#include <memory>

#include "src/comm/communicator.h"

namespace owt {

// `inner` must outlive it. For tensors on the CPU and, if `device` is a GPU, on the calling host thread's GPU.
std::unique_ptr<Communicator> make_bf16_transport(Communicator& inner, Device device);

}  // namespace owt
