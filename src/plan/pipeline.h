// Pipelines: consecutive layers on ranks of their own (stages), and the order in which a stage processes micro-batches.
// Data and arithmetic only.
//
// There are S stages; a stage's place k counts from 0, the stage of the images. A step has M micro-batches.
//   gpipe   forward of all, then backward of all, the last one first; M activations are kept
//   1f1b    S - 1 - k forwards ahead, then backward and forward in turn; min(M, S - k) activations are kept
// Both end with every micro-batch done and one update: exact synchronous SGD. A stage is idle for (S - 1) / (M + S - 1)
// of the time if forward and backward take equally long on all stages.
//
// The other schedules run in the order of 1f1b. A stage updates after the backward of every micro-batch, which is a
// mini-batch of its own; the pipeline drains only at the end of the step. The forward of micro-batch b at stage k then
// uses weights without the updates of gap = min(b, S - 1 - k) earlier micro-batches. Its backward finds weights with
// all these updates. The schedules deal with the gap as follows:
//   vanilla     forward and backward with the current weights, which differ by the gap
//   pipedream   backward with the weights of its forward; up to S - 1 - k older versions are stashed
//   spectrain   both with the weights predicted for the time when stage 0 has done the micro-batch: backward predicts
//               ahead = min(floor(k / 2), M - 1 - b) updates, the delay between backward at this stage and at stage 0;
//               forward predicts ahead + gap updates
//   spectrain2  forward with the weights predicted for its backward, gap updates later, and backward with the same ones
// A prediction of s updates is w + s v. The velocity v of optimizer.h includes the rate and the sign, so this is the
// paper's w - s * lr * v. The limits by b and M account for a pipeline that fills and drains. In between, stage k has
// the papers' values, s = S - 1 - k for spectrain2 and floor(k / 2) + S - 1 - k and floor(k / 2) for spectrain.
// Sources: Huang et al. 2019, "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism";
// Narayanan et al. 2019, "PipeDream: Generalized Pipeline Parallelism for DNN Training", and 2021, "Efficient
// Large-Scale Language Model Training on GPU Clusters Using Megatron-LM" (1F1B with a flush); Chen, Yang and Cheng
// 2018, "Efficient and Robust Parallel DNN Training through Model Parallelism on Multi-GPU Platform" (SpecTrain), of
// which spectrain2 is the authors' later variant.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/core/shape.h"

namespace owt {

enum class PipelineSchedule { kGPipe, k1F1B, kVanilla, kPipeDream, kSpecTrain, kSpecTrain2 };
const char* name_of(PipelineSchedule schedule);
PipelineSchedule pipeline_schedule_from(const std::string& name);  // throws Error with the list of names
std::vector<std::string> pipeline_schedule_names();
bool updates_each_micro_batch(PipelineSchedule schedule);  // no flush between micro-batches
bool copies_weights(PipelineSchedule schedule);            // tasks may run with stashed or predicted weights

struct PipelineRequest {
  PipelineSchedule schedule = PipelineSchedule::k1F1B;
  int micro_batches = 0;              // per step; 0: four per stage, but at most one per row
  std::vector<std::string> stages{};  // the first layer of each stage but the first; empty: balanced stages
};

// A task of a stage: forward or backward of one micro-batch through its layers.
struct StageTask {
  bool forward;
  int batch;
  bool operator==(const StageTask&) const = default;
};
std::vector<StageTask> stage_tasks(PipelineSchedule schedule, int stages, int place, int micro_batches);
// The most micro-batches that have run forward but not yet backward at this stage.
int most_under_way(PipelineSchedule schedule, int stages, int place, int micro_batches);
double bubble(int stages, int micro_batches);  // the fraction of the time in which a stage is idle

// The number of updates of a stage between forward and backward of a micro-batch, if it updates after each.
int version_gap(int stages, int place, int batch);

constexpr int kNewestWeights = -1;
// The weights that a task runs with.
struct TaskWeights {
  int copy = kNewestWeights;  // the number of their stash
  bool made = false;          // the task makes the stash from the current weights; else an earlier task has made it
  int ahead = 0;              // if made: number of updates to predict
  bool operator==(const TaskWeights&) const = default;
};
TaskWeights weights_of(PipelineSchedule schedule, int stages, int place, int micro_batches, const StageTask& task);
// The stash that must take the current weights before this micro-batch updates them, because the backward of a later
// one needs them; kNewestWeights: none.
int kept_before_update(PipelineSchedule schedule, int stages, int place, int micro_batches, int batch);

// Cuts the layers into `stages` runs by dynamic programming. The most expensive run is as cheap as possible; among
// equal cuts the one that sends least is chosen. cost: of each layer. sent: elements that a cut before the layer sends;
// negative if no cut is possible there. Throws Error if there are too few cuts.
std::vector<Slice> balanced_stages(const std::vector<double>& cost, const std::vector<int64_t>& sent, int stages);

}  // namespace owt
