// The recipe of owt train: that of CONFIG, of the run that it goes on with, or of both.
//
//   owt train RECIPE --out RUN --resume auto   RECIPE; what it and the command line do not say of how the work is dealt
//                                              to workers stays as in RUN: [parallel], [pipeline], [ps]
//   owt train RUN --resume auto                RUN's own, with what the command line changes
//   owt train --resume RUN                     the same
#pragma once

#include <string>

#include "tools/commands.h"

namespace owt {

struct TrainRecipe {
  Settings settings;
  std::string run;    // the run folder that CONFIG names, where it names one; empty: none
  std::string stays;  // for people: what of [parallel] is the run's, since nothing else was said; may be empty
};

// Collective over the processes of a launch: the run's files are read on rank 0. options: CONFIG may be missing, `out`
// and `resume` are declared. changes: those of further options. Throws UsageError and Error.
TrainRecipe train_recipe(const Options& options, const Overrides& changes);

}  // namespace owt
