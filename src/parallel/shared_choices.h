// Algorithms are chosen by measuring, and the choice affects the last bits of a result. Among processes one measures
// for all. A run can then be repeated to the bit, also from a checkpoint, and no process uses another algorithm than
// its partners because its clock was disturbed.
#pragma once

#include <functional>
#include <vector>

namespace owt {

// Runs bind(), which makes ops and thereby chooses their algorithms. It runs first on rank 0 of the launch, then on the
// ranks of `more` in increasing order, then on the last rank, then on all. The last rank has the fewest rows if they
// are uneven, and may need geometries that rank 0 does not. Each of these ranks sends its choices to the others;
// convolutions on the CPU (conv_algorithm.h) follow rank 0 alone. A second bind() has nothing left to do.
// Collective over the processes of a launch. A single process, and threads, which share their choices anyway, just run
// bind().
void bind_alike(const std::function<void()>& bind, const std::vector<int>& more = {});

}  // namespace owt
