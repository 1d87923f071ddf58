// The test split through the network, exact: every image counts once, whatever the number of ranks.
#pragma once

#include "src/train/job.h"
#include "src/train/step.h"

namespace owt {

struct Evaluation {
  double loss = 0;            // mean over the images
  double top1 = 0, top5 = 0;  // fractions
  int64_t images = 0;
};

// Collective; the same on every rank.
Evaluation evaluate(Step& step, BatchSource& test_batches);

// `owt eval`: the accuracy of a weights file, on job.plan.ranks() ranks with `team` threads each.
Evaluation evaluate_weights(const Job& job, int team);

}  // namespace owt
