#include "src/parallel/order.h"

#include "src/parallel/step_order.h"

namespace owt {

// dp, and every strategy on one rank or for a network with nothing to split: each rank runs the whole network on its
// own rows. The gradients of a bucket leave as soon as the last of its layers is done, and are summed while backward
// goes on; then every rank updates all weights.
// Source: Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", section 3.2.
void data_parallel(StepOrder& step) {
  step.forward_front();
  step.loss(0);
  step.backward_front();
  step.update_dense();
  step.update_front();
}

// dp-zero: the sum of a bucket goes to the rank that updates it, each rank has a share, and the new weights are
// gathered. A bucket is updated when the next one has left: it has had the time of those layers to be summed. Which one
// that is must not depend on what has arrived, since all ranks call the collectives in the same order.
// Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", P_os.
void zero(StepOrder& step) {
  step.forward_front();
  step.loss(0);
  step.backward_front([&](int left) {
    if (left > 0) step.update_share(left - 1);
  });
  step.update_share(step.buckets() - 1);
  step.wait_for_weights();
}

// owt-a to owt-d: the layers before the boundary run on each rank's own rows; the dense layers behind it, of which
// every rank has columns, run on batches of everybody's rows, one a round.
//   owt-a: one round of all rows
//   owt-b: a round for each rank, of its rows
//   owt-c: as many rounds, of a part of every rank's rows
//   owt-d: as owt-a; of the dense layers, some are split by inputs, where that sends less
// The rows of the next round travel while this one is computed, and the gradients of the one before go home: there is
// room for two. On a grid (fewer ranks a group than ranks) each group does so by itself, and the groups sum the
// gradients of their dense layers when those of the last round are there.
// Source: Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks", schemes (a) to (c).
void one_weird_trick(StepOrder& step) {
  step.start_labels();
  step.forward_front();
  step.bring_rows(0);
  for (int round = 0; round < step.rounds(); ++round) {
    step.bring_rows(round + 1);
    step.wait_for_rows(round);
    step.forward_dense(round);
    step.loss(round);
    step.backward_dense(round);
    step.update_after(round);
  }
  step.wait_for_home();
  step.backward_front();
  step.update_dense();
  step.update_front();
}

// mp: the dense layers are split, and all ranks of a group compute the layers before them for all rows. Nothing is
// brought together; the gradient at the boundary, a summand on every rank, is summed.
// Source: Krizhevsky 2014, on model parallelism.
void model_parallel(StepOrder& step) {
  step.forward_front();
  step.forward_dense(0);
  step.loss(0);
  step.backward_dense(0);
  step.update_after(0);
  step.wait_for_home();
  step.backward_front();
  step.update_dense();
  step.update_front();
}

namespace {

std::vector<Action> order_of(const Plan& plan, int64_t step_rows, bool learns) {
  StepOrder step(plan, step_rows, learns);
  const StrategyFacts& facts = facts_of(plan.request.strategy);
  const bool several = plan.ranks() > 1 && (plan.split() || !facts.splits_dense);
  (several ? facts.order : data_parallel)(step);
  step.share_result();
  return step.take();
}

}  // namespace

std::vector<Action> training(const Plan& plan, int64_t step_rows) { return order_of(plan, step_rows, true); }
std::vector<Action> evaluation(const Plan& plan, int64_t step_rows) { return order_of(plan, step_rows, false); }

}  // namespace owt
