#include "src/plan/order.h"

#include "src/plan/step_order.h"
#include "src/plan/strategy_families.h"
#include "src/system/check.h"

namespace owt {

// dp, and every strategy on one rank or for a network with nothing to split: each rank runs the whole network on its
// own rows. The gradients of a bucket are sent as soon as the last of its layers is done; the sum overlaps with the
// rest of the backward pass. Then every rank updates all weights. Local steps send no gradients; averaging steps
// average the weights.
// Source: Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", section 3.2.
void data_parallel(StepOrder& step) {
  step.forward_front();
  step.loss(0);
  step.backward_front();
  step.gradient_norms();
  step.update_dense();
  step.update_front();
  step.average_front();
}

// dp-zero and dp-star: the sum of a bucket goes to the rank that updates it, and that rank sends the new weights.
//   dp-zero: each rank updates a shard; reduce-scatter of gradients, all-gather of weights
//   dp-star: rank 0 updates everything and sends the weights to every other rank
// A bucket is updated after the next one has been sent, so its sum overlaps with the backward pass of the layers
// between. The choice must not depend on what has arrived, since all ranks call the collectives in the same order.
// Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", P_os; Li et
// al. 2014, "Scaling Distributed Machine Learning with the Parameter Server": this is one such server, which waits for
// all workers.
void updates_in_shares(StepOrder& step) {
  step.forward_front();
  step.loss(0);
  step.backward_front([&](int left) { step.update_shares(left); });
  step.gradient_norms();
  step.update_shares(step.buckets());
  step.wait_for_weights();
}

// ps: as dp-zero, but a server updates each shard (parameter_server.h). Gradients are pushed to it bucket by bucket.
// The server answers with the weights when the worker may start its next step: with a delay of 0 after all workers have
// pushed, with a larger delay perhaps earlier. The step's result is sent before the gradients.
// Source: Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server".
void parameter_server(StepOrder& step) {
  step.forward_front();
  step.loss(0);
  step.tell_result();
  step.backward_front([&](int left) { step.update_shares(left); });
  step.update_shares(step.buckets());
  step.wait_for_weights();
}

// owt-a to owt-d: each rank runs the front part on its own rows. The dense layers of the back part are split by columns
// and run on batches of all ranks' rows, one batch a round.
//   owt-a: one round of all rows
//   owt-b: a round for each rank, of its rows
//   owt-c: as many rounds, of a part of every rank's rows
//   owt-d: as owt-a; a dense layer is split by inputs if that sends less
// While a round is computed, the rows of the next round and the gradients of the previous one travel; there is memory
// for two rounds. On a grid (groups of fewer ranks than there are) each group does so on its own. The groups sum the
// gradients of their dense layers after the last round.
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
  step.gradient_norms();
  step.update_dense();
  step.update_front();
  step.average_front();
}

// mp and mp-dense: all ranks of a group have the same rows. Layers are split (under mp the convolutions too), and each
// rank computes all earlier layers whole. No rows are gathered at the boundary. The gradient at the boundary is a
// partial sum on every rank, and is summed.
//   mp: each rank has some channels of a convolution's input; they are all-gathered before the convolution
//   mp-dense: each rank has the whole input of the first dense layer
// Source: Krizhevsky 2014, on model parallelism; Dean et al. 2012, "Large Scale Distributed Deep Networks", section 3.
void model_parallel(StepOrder& step) {
  step.forward_front();
  step.forward_dense(0);
  step.loss(0);
  step.backward_dense(0);
  step.update_after(0);
  step.wait_for_home();
  step.backward_front();
  step.gradient_norms();
  step.update_dense();
  step.update_front();
}

// pipeline: a stage runs its layers on micro-batches, one a round, in the order of the schedule (pipeline.h). The input
// of a task is requested one task ahead, so that it travels while the stage computes. A task's activations, and the
// gradients of its input, are sent at once. The gradients of all micro-batches add up to the gradient of the step.
// Without a flush each micro-batch updates the stage's weights, and a task may run with stashed or predicted weights.
// Sources: Huang et al. 2019, "GPipe"; Narayanan et al. 2019, "PipeDream", and 2021 (1F1B with a flush); Chen, Yang and
// Cheng 2018 (SpecTrain).
void pipeline(StepOrder& step) {
  const std::vector<StageTask> tasks = step.stage_tasks();
  step.bring_for(tasks.front());
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (i + 1 < tasks.size()) step.bring_for(tasks[i + 1]);
    step.take_weights(tasks[i]);
    step.wait_for(tasks[i]);
    if (tasks[i].forward)
      step.forward_stage(tasks[i].batch);
    else
      step.backward_stage(tasks[i].batch, i + 1 == tasks.size());
    step.take_newest_weights();
    if (!tasks[i].forward) step.update_stage(tasks[i].batch);
  }
  step.wait_for_sent();
  step.gradient_norms();
  step.update_dense();
}

namespace {

std::vector<Action> order_of(const Plan& plan, int64_t step_rows, int place, bool learns, StepKind kind) {
  StepOrder step(plan, step_rows, place, learns, kind);
  do acting_strategy(plan).order(step);
  while (step.next_slice());
  step.average_weights();
  step.share_result();
  return step.take();
}

}  // namespace

std::vector<Action> training(const Plan& plan, int64_t step_rows, StepKind kind, int place) {
  OWT_CHECK(kind == StepKind::kSynchronous ? plan.synchronizes() : plan.averages(), "the plan has no such steps");
  return order_of(plan, step_rows, place, true, kind);
}

std::vector<KindOfStep> kinds_of_steps(const Plan& plan) {
  if (!plan.averages()) return {{StepKind::kSynchronous, 1}};
  const double averaging = 1.0 / plan.request.average_every;
  std::vector<KindOfStep> kinds{{StepKind::kLocal, 1 - averaging}, {StepKind::kAveraging, averaging}};
  if (plan.synchronizes()) kinds.push_back({StepKind::kSynchronous, 0});
  return kinds;
}

std::vector<Action> training(const Plan& plan, int64_t step_rows, int place) {
  return training(plan, step_rows, plan.averages() ? StepKind::kAveraging : StepKind::kSynchronous, place);
}

std::vector<Action> evaluation(const Plan& plan, int64_t step_rows, int place) {
  return order_of(plan, step_rows, place, false, StepKind::kSynchronous);
}

}  // namespace owt
