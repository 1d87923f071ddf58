// The recipe of owt train. It comes from CONFIG, from the run that it resumes, or from both.
//
//   owt train RECIPE --out RUN --resume auto   RECIPE; the division of work among workers, [parallel], [pipeline] and
//                                              [ps], stays as in RUN unless RECIPE or the command line sets it
//   owt train RUN --resume auto                RUN's own recipe, with the changes of the command line
//   owt train --resume RUN                     the same
#pragma once

#include <string>

#include "tools/commands.h"

namespace owt {

struct TrainRecipe {
  Settings settings;
  std::string run;  // the run folder that CONFIG names; empty: none
  // for people: settings of [parallel] kept from the run because nothing else was given; may be empty
  std::string stays;
};

// Collective over the processes of a launch: rank 0 reads the run's files. options: CONFIG may be missing; `out` and
// `resume` must be declared. changes: from further options. Throws UsageError and Error.
TrainRecipe train_recipe(const Options& options, const Overrides& changes);

}  // namespace owt
