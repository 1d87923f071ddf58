// `--parallel auto`: the strategy with the least predicted step time on these ranks and links.
#pragma once

#include "src/parallel/choose.h"
#include "src/train/settings.h"

namespace owt {

// Times the links and the computing, on all ranks at once and for some seconds, and predicts every candidate for the
// settings' workers and batch; their own strategy does not count. threads: of all ranks of this host; 0: all cores. Where
// ranks are processes all must call it, and all get the same.
Choice choose_here(const Settings& settings, int threads);

}  // namespace owt
