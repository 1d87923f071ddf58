// The recipe of owt train: from CONFIG, from the run to resume, or from both.
//
//   owt train RECIPE --out RUN --resume auto   RECIPE; settings in [parallel], [pipeline] and [ps] that neither RECIPE
//                                              nor the command line gives stay as in RUN
//   owt train RUN --resume auto                RUN's own recipe, changed by the command line
//   owt train --resume RUN                     the same
#pragma once

#include <string>

#include "tools/commands.h"

namespace owt {

struct TrainRecipe {
  Settings settings;
  std::string run;    // the run folder of CONFIG; empty: CONFIG names no run
  std::string stays;  // for a message: the settings of [parallel] taken from the run; may be empty
};

// Collective over the processes of a launch: rank 0 reads the run's files. options: CONFIG may be missing; `out` and
// `resume` are declared. changes: from further options. Throws UsageError and Error.
TrainRecipe train_recipe(const Options& options, const Overrides& changes);

}  // namespace owt
