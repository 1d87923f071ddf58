// A split through the network, exact: every image counts once, whatever the number of ranks.
#pragma once

#include "src/train/evaluation.h"
#include "src/train/job.h"
#include "src/train/session.h"
#include "src/train/step.h"

namespace owt {

// Shows one view, the centre. Collective; the same on every rank.
Evaluation evaluate(Step& step, BatchSource& batches);
LossSums evaluated_sums(Step& step, BatchSource& batches);  // what it is made of
Evaluation evaluation_of(const LossSums& sums);

// `owt eval`: the accuracy of job.weights on the session's ranks. The result is rank 0's, which writes the files; where
// ranks are processes, the others return an empty one.
Evaluation evaluate_weights(const Job& job, const EvaluationRequest& request, const Session& session);

}  // namespace owt
