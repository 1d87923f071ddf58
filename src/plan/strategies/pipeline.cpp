// pipeline: each rank of a model group has a stage, a run of successive layers, through which micro-batches pass. The
// schedules are in src/plan/pipeline.h.
#include <algorithm>
#include <deque>
#include <set>
#include <utility>

#include "src/core/row_groups.h"
#include "src/plan/plan_rows.h"
#include "src/plan/plan_table.h"
#include "src/plan/plan_updates.h"
#include "src/plan/step_order.h"
#include "src/plan/strategy_families.h"
#include "src/plan/transfer_list.h"
#include "src/system/check.h"
#include "src/system/log.h"

namespace owt {
namespace {

// The cost that is balanced over the stages: forward and backward. Layers with next to no arithmetic move memory, which
// costs about this many operations per element.
constexpr double kFlopsPerElement = 20;

double cost_of(const LayerPlan& at) {
  const auto elements = static_cast<double>(at.in.elements() + at.out.elements() + at.inner_elements());
  return at.flops_per_row + at.backward_flops_per_row + kFlopsPerElement * elements;
}

// Cuts the layers at the stages asked for, or so that they are balanced. An in-place layer stays with the layer before
// it, whose output it overwrites.
std::vector<Slice> stages_of(const Plan& plan) {
  const std::vector<std::string>& asked = plan.request.options.pipeline.stages;
  std::vector<double> cost;
  std::vector<int64_t> sent;
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    const LayerPlan& at = plan.layers[i];
    cost.push_back(cost_of(at));
    sent.push_back(i == 0 || at.in_place ? -1 : at.in.elements());
  }
  if (asked.empty()) return balanced_stages(cost, sent, plan.model_ranks);
  if (std::ssize(asked) + 1 != plan.model_ranks)
    fail("pipeline.stages has ", asked.size(), " layer names, but ", plan.model_ranks,
         " stages (one for each worker of a group) need ", plan.model_ranks - 1,
         ", the first layer of each stage but the first; or leave it out");
  std::vector<Slice> stages{{0, 0}};
  for (const std::string& name : asked) {
    int64_t i = stages.back().begin + 1;
    while (i < std::ssize(plan.layers) && plan.layer(i).name != name) ++i;
    if (i >= std::ssize(plan.layers))
      fail("pipeline.stages: there is no layer '", name, "' after '", plan.layer(stages.back().begin).name, "'");
    if (sent[static_cast<size_t>(i)] < 0)
      fail("pipeline.stages: '", name,
           "' works in place on the output of the layer before it, so no stage can begin there");
    stages.back().end = i;
    stages.push_back({i, i});
  }
  stages.back().end = std::ssize(plan.layers);
  return stages;
}

// Four micro-batches per stage keep the bubble below a fifth. Each consists of whole row groups (row_group()).
int micro_batches_of(const Plan& plan) {
  const RowGroups groups{plan.request.step_rows / plan.replicas(), row_group(plan, 0)};
  const int asked = plan.request.options.pipeline.micro_batches;
  if (asked > groups.count())
    fail("pipeline.micro_batches is ", asked, ", but a pipeline has ", groups.rows, " rows of a step",
         groups.size > 1 ? concat(", ", groups.count(), " groups of ", groups.size, " (batch_norm's 'rows')") : "",
         "; use ", groups.count(), " or less");
  return asked > 0 ? asked : static_cast<int>(std::clamp<int64_t>(groups.count(), 1, 4 * plan.model_ranks));
}

// Each rank of a model group has a whole stage. All layers are in the back part, and the rounds are micro-batches.
void place_stages(Plan& plan, const std::vector<std::unique_ptr<Layer>>&) {
  // Without a flush even a single stage is no plain step, since it has several updates.
  const bool each = updates_each_micro_batch(plan.request.options.pipeline.schedule);
  if (plan.model_ranks == 1 && !each) return;
  plan.boundary = 0;
  plan.request.dense_update = each ? DenseUpdate::kRound : DenseUpdate::kStep;
  plan.stages = stages_of(plan);
  plan.equal_parts = micro_batches_of(plan);
  for (size_t place = 0; place < plan.stages.size(); ++place)
    for (int64_t i = plan.stages[place].begin; i < plan.stages[place].end; ++i)
      plan.layer(i).place = static_cast<int>(place);
}

// A micro-batch passes from stage to stage, and the gradients of its activations pass back.
void pipeline_transfers(TransferList& list) {
  list.each_round([&](const StepRows::RoundSize& round) {
    for (int place = 1; place < list.plan().model_ranks && round.rows > 0; ++place) list.messages(place, round.rows);
  });
  list.gradients();
}

void check_pipeline(const Plan& plan) {
  if (plan.request.slices > 1)
    fail("data.accumulate is ", plan.request.slices,
         ", but a pipeline already accumulates the gradients of its micro-batches; use pipeline.micro_batches, or "
         "another strategy");
  if (plan.request.dense_update == DenseUpdate::kRound) {
    refuse_norms(plan, "but the weights are updated after every micro-batch (pipeline.schedule); use \"1f1b\"");
    refuse_canonical(plan, "the weights are updated after every micro-batch (pipeline.schedule); use \"1f1b\"");
  }
  refuse_step_sums(plan, "but in a pipeline it sees one micro-batch at a time");
}

std::string schedule_note(const Plan& plan) {
  if (plan.request.dense_update == DenseUpdate::kStep) return "";
  return format("schedule {}: {} mini-batches a step, each of which updates the weights",
                name_of(plan.request.options.pipeline.schedule), plan.equal_parts);
}

std::string schedule_headline(const Plan& plan) {
  return format("schedule {}, an update after {} micro-batch{}; each stage is idle for at least {:.1f} % of the time",
                name_of(plan.request.options.pipeline.schedule),
                plan.request.dense_update == DenseUpdate::kRound ? "each" : "the last",
                plan.equal_parts == 1 ? "" : concat(" of ", plan.equal_parts),
                100 * bubble(plan.model_ranks, plan.equal_parts));
}

}  // namespace

int equal_parts_in(const Plan& plan, int64_t step_rows) {
  const PlanRequest& full = plan.request;
  if (!plan.in_stages() || full.dense_update == DenseUpdate::kStep) return plan.equal_parts;
  const int64_t needed = (step_rows * plan.equal_parts + full.step_rows - 1) / full.step_rows;
  return static_cast<int>(std::clamp<int64_t>(needed, 1, plan.equal_parts));
}

bool stashes_weights(const Plan& plan) {
  return plan.in_stages() && copies_weights(plan.request.options.pipeline.schedule);
}

std::string place_name(const Plan& plan, int place) { return plan.in_stages() ? format("stage {}", place + 1) : ""; }

int tapes(const Plan& plan, int place) {
  if (!plan.in_stages()) return 1;
  return most_under_way(plan.request.options.pipeline.schedule, plan.model_ranks, place, plan.equal_parts);
}

// The order of a stage. outputs_sent_ and gradients_sent_ are the micro-batches whose activations, or whose input
// gradients, have been sent but not waited for.
class StageOrder {
 public:
  explicit StageOrder(StepOrder& step)
      : step_(step), plan_(step.plan_), place_(step.place_), layers_(plan_.back_layers(place_)) {}

  void run() {
    const std::vector<StageTask> tasks = all_tasks();
    bring_for(tasks.front());
    for (size_t i = 0; i < tasks.size(); ++i) {
      if (i + 1 < tasks.size()) bring_for(tasks[i + 1]);
      take_weights(tasks[i]);
      step_.wait(brought_for(tasks[i]), tasks[i].batch);
      if (tasks[i].forward)
        forward(tasks[i].batch);
      else
        backward(tasks[i].batch, i + 1 == tasks.size());
      if (std::exchange(taken_for_, kOwnRows) != kOwnRows)
        step_.add(Action::Kind::kTakeWeights, layers_, tasks[i].batch);
      if (!tasks[i].forward) update(tasks[i].batch);
    }
    while (!outputs_sent_.empty()) wait_for_output(*outputs_sent_.begin());
    while (!gradients_sent_.empty()) wait_for_oldest_gradient();
  }

 private:
  PipelineSchedule schedule() const { return plan_.request.options.pipeline.schedule; }

  // Evaluation has forward tasks only.
  std::vector<StageTask> all_tasks() const {
    std::vector<StageTask> tasks = stage_tasks(schedule(), plan_.model_ranks, place_, step_.rounds());
    if (!step_.learns_ || !plan_.layer(layers_.end - 1).runs_backward())
      std::erase_if(tasks, [](const StageTask& task) { return !task.forward; });
    return tasks;
  }

  // Activations arrive at the stage's first layer; gradients belong to the next stage's input.
  TransferId brought_for(const StageTask& task) const {
    if (task.forward) return plan_.layer(layers_.begin).transfers.input;
    return plan_.has_loss(place_) ? kNoTransfer : plan_.layer(layers_.end).transfers.input_gradient;
  }
  TransferId output() const { return plan_.has_loss(place_) ? kNoTransfer : plan_.layer(layers_.end).transfers.input; }
  TransferId input_gradient() const { return plan_.layer(layers_.begin).transfers.input_gradient; }

  void bring_for(const StageTask& task) { step_.start(brought_for(task), task.batch); }

  void wait_for_output(int batch) {
    if (outputs_sent_.erase(batch) > 0) step_.wait(output(), batch);
  }

  void wait_for_oldest_gradient() {
    step_.wait(input_gradient(), gradients_sent_.front());
    gradients_sent_.pop_front();
  }

  // The output overwrites the output of an earlier micro-batch, which in evaluation may not have been received yet.
  void forward(int batch) {
    wait_for_output(batch - owt::tapes(plan_, place_));
    for (int64_t i = layers_.begin; i < layers_.end; ++i) step_.add(Action::Kind::kForward, {i, i + 1}, batch);
    if (plan_.has_loss(place_)) return step_.loss(batch);
    step_.start(output(), batch);
    outputs_sent_.insert(batch);
  }

  // The gradient has arrived, so the next stage has received the activations. There is memory for the gradients of two
  // micro-batches on their way to the previous stage. The wait comes before any layer runs, since several layers may
  // run as one op. last: the gradients of the weights are complete after this micro-batch. Without a flush they are
  // complete after each one.
  void backward(int batch, bool last) {
    wait_for_output(batch);
    if (std::ssize(gradients_sent_) == kRoundsAtOnce) wait_for_oldest_gradient();
    for (int64_t i = layers_.end; i-- > layers_.begin && plan_.layer(i).runs_backward();) {
      step_.add(Action::Kind::kBackwardData, {i, i + 1}, batch);
      if (i == layers_.begin) step_.start(input_gradient(), batch);
      step_.backward_weights(i, batch);
      if (step_.every_round() ? step_.completes(batch) : last) step_.gradients_done(i);
    }
    gradients_sent_.push_back(batch);
  }

  void copy_weights(int batch, int copy, int ahead) {
    step_.add({.kind = Action::Kind::kCopyWeights, .layers = layers_, .round = batch, .copy = copy, .ahead = ahead});
  }

  // Schedules without a flush: makes a task's weights active if they are not the current ones.
  void take_weights(const StageTask& task) {
    if (!step_.learns_ || !step_.learns(layers_)) return;
    const TaskWeights weights = weights_of(schedule(), plan_.model_ranks, place_, step_.rounds(), task);
    if (weights.copy == kNewestWeights) return;
    if (weights.made) copy_weights(task.batch, weights.copy, weights.ahead);
    step_.add({.kind = Action::Kind::kTakeWeights, .layers = layers_, .round = task.batch, .copy = weights.copy});
    taken_for_ = task.batch;
  }

  // Updates with a micro-batch, and first stashes the weights if a later task needs them.
  void update(int batch) {
    if (!step_.learns(layers_)) return;
    const int copy = kept_before_update(schedule(), plan_.model_ranks, place_, step_.rounds(), batch);
    if (copy != kNewestWeights) copy_weights(batch, copy, 0);
    step_.update_after(batch);
  }

  StepOrder& step_;
  const Plan& plan_;
  int place_;
  const Slice layers_;  // the stage has these
  std::set<int> outputs_sent_;
  std::deque<int> gradients_sent_;
  int taken_for_ = kOwnRows;  // the micro-batch for which stashed weights are active
};

namespace {

// pipeline: a stage runs its layers on micro-batches, one a round, in the order of the schedule (pipeline.h). The input
// of a task is requested one task ahead, so that it travels while the stage computes. A task's activations, and the
// gradients of its input, are sent at once. The gradients of all micro-batches add up to the gradient of the step.
// Without a flush each micro-batch updates the stage's weights, and a task may run with stashed or predicted weights.
// Sources: Huang et al. 2019, "GPipe"; Narayanan et al. 2019, "PipeDream", and 2021 (1F1B with a flush); Chen, Yang and
// Cheng 2018 (SpecTrain).
void pipeline(StepOrder& step) {
  StageOrder(step).run();
  step.gradient_norms();
  step.update_dense();
}

}  // namespace

std::vector<StrategyFacts> pipeline_family() {
  return {{.name = "pipeline",
           .help = "each worker has a stage, a run of successive layers; micro-batches pass through all stages; see "
                   "[pipeline]",
           .rounds = Rounds::kEqualParts,
           .shares_rows = true,
           .can_accumulate = false,
           .order = pipeline,
           .place = place_stages,
           .transfers = pipeline_transfers,
           .check = check_pipeline,
           .note = schedule_note,
           .headline = schedule_headline}};
}

}  // namespace owt
