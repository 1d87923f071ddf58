// A communicator that halves what f32 tensors take on the wire: they are rounded to bf16 before they are sent, and
// widened on arrival.
//
// Every rank gets the same values: the root of a broadcast, and a rank its own part of an all_gather, end with the
// rounded ones too. A sum is that of the rounded summands, rounded again as sums of bf16 are (communicator.h). NaN and
// infinity arrive as such. Tensors of other element types pass unchanged; so does everything where there is one rank.
// f32 that must arrive as they are, such as weights, travel by unrounded(), which is what this was made around.
//
// On the CPU the host waits for `ready`. There, and of messages everywhere, the values are widened when the returned
// event is waited for or found to be done, which is for the calling host thread only.
//
// Around a ProfiledCommunicator it is counted what really travels. It takes bf16 memory of both tensors of a collective
// for every size that occurs, twice where they follow each other.
#pragma once

#include <memory>

#include "src/comm/communicator.h"

namespace owt {

// inner must outlive it. For tensors on the CPU and, where `device` is a GPU, on the calling host thread's.
std::unique_ptr<Communicator> make_half_wire(Communicator& inner, Device device);

}  // namespace owt
