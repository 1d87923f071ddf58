// The output of `owt eval --json`.
#pragma once

#include <string>

#include "src/commands/run.h"

namespace owt {

// A JSON object with the accuracy of a model with `classes` classes, and weights, split and views from the options.
// top1 and top5 are fractions; with five classes or fewer there is no top5. run: the folder of a run that has just
// trained; empty: none.
std::string evaluation_json(const Evaluation& evaluation, const EvalOptions& options, int64_t classes,
                            const std::string& run = "");

}  // namespace owt
