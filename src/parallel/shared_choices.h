// Algorithms are chosen by measuring, and the choice decides the last bits of a result. Among processes one measures
// for all, so that a run can be repeated to the bit, from a checkpoint too, and no process computes by another
// algorithm than its partners because its clock was disturbed.
#pragma once

#include <functional>
#include <vector>

namespace owt {

// Runs bind(), which makes ops and so chooses their algorithms: on rank 0 of the launch first, then on `more`, in
// rising order, and on the last rank, which has the fewest rows where they are uneven and may know geometries that rank
// 0 does not, then on all. Each of these tells the others what it has chosen; convolutions on the CPU
// (layers/conv_algorithm.h) follow rank 0 alone. bind() has nothing left to do when it comes again. Collective over
// the processes of a launch; alone, and among threads, which share their choices anyway, just bind().
void bind_alike(const std::function<void()>& bind, const std::vector<int>& more = {});

}  // namespace owt
