// Evaluates a split exactly: every image counts once, for every number of ranks.
#pragma once

#include "src/train/evaluation.h"
#include "src/train/job.h"
#include "src/train/session.h"
#include "src/train/worker.h"

namespace owt {

// Evaluates a single view, the centre. Collective; the same result on every rank.
Evaluation evaluate(Worker& worker, BatchSource& batches);
LossSums evaluated_sums(Worker& worker, BatchSource& batches);  // the sums of an Evaluation
Evaluation evaluation_of(const LossSums& sums);

// The classes whose logits this rank has for the rows that it evaluates: all, or with a sharded loss some.
Slice classes_here(const Plan& plan, int rank);
// The memory of the host that a rank needs beside its steps, for the logits of a step, for sums over views and for the
// scores of all images, with which the mean average precision is computed.
int64_t prediction_bytes(const Plan& plan, const EvaluationRequest& request, const Dataset& images, int rank);

// `owt eval`: the accuracy of job.weights on the session's ranks. Rank 0 returns the result and writes the files. If
// ranks are processes, the others return an empty result.
Evaluation evaluate_weights(const Job& job, const EvaluationRequest& request, const Session& session);

}  // namespace owt
