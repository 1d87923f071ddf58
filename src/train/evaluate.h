// A split through the network, exact: every image counts once, whatever the number of ranks.
#pragma once

#include <string>

#include "src/train/job.h"
#include "src/train/step.h"

namespace owt {

struct Evaluation {
  double loss = 0;            // mean over the images
  double top1 = 0, top5 = 0;  // fractions
  int64_t images = 0;
};

struct EvaluationRequest {
  Split split = Split::kTest;
  // Of each image, [1, kMostViews]: the first of View::number; their probabilities are averaged.
  int views = 1;
  std::string predictions{}, confusion{};  // CSV files to write (predictions.h); empty: none

  // More is wanted than sums over the rows, so whole logits are (PlanRequest::whole_logits).
  bool wants_logits() const { return views > 1 || !predictions.empty() || !confusion.empty(); }
};

// Of one view, the centre. Collective; the same on every rank.
Evaluation evaluate(Step& step, BatchSource& batches);

// `owt eval`: the accuracy of a weights file, on job.plan.ranks() ranks with `team` threads each. Of rank 0, which
// writes the files; where ranks are processes, the others return an empty one.
Evaluation evaluate_weights(const Job& job, const EvaluationRequest& request, int team);

}  // namespace owt
