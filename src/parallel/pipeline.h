// Pipelines: runs of layers on ranks of their own, the stages, and the order in which a stage takes micro-batches. Data
// and arithmetic only.
//
// With S stages a stage's place k counts from 0, that of the images. A step's rows are M micro-batches.
//   gpipe   forward of all, then backward of all, the last one first; M activations are kept
//   1f1b    S - 1 - k forwards ahead, then backward and forward in turn; min(M, S - k) activations are kept
// Both end with every micro-batch done and one update: exact synchronous SGD. A stage is idle for (S - 1) / (M + S - 1)
// of the time where forward and backward of all stages take as long.
//
// The others run in the order of 1f1b, and a stage updates after the backward of every micro-batch, which is a
// mini-batch of its own; the pipeline runs empty at the end of the step alone. The forward of micro-batch b at stage k
// then finds weights that have yet to learn from gap = min(b, S - 1 - k) earlier micro-batches when it comes, and they
// have learnt from all of those when its backward comes. What the schedules make of that:
//   vanilla     forward and backward with the newest weights, which differ by the gap
//   pipedream   backward with the weights that forward had, of which up to S - 1 - k older versions are kept
//   spectrain   both with the weights predicted for the time when stage 0 has done the micro-batch: so many updates
//               later as backward comes at stage 0 behind this stage, ahead = min(floor(k / 2), M - 1 - b), and in
//               forward the gap besides
//   spectrain2  forward with the weights predicted for its backward, gap updates later, and backward with the same ones
// A prediction of s updates is w + s v with the velocity v of optimizer.h, in which the rate and the sign are: the
// paper's w - s * lr * v. The bounds by b and M are those of a pipeline that fills and runs empty; between them stage k
// has the papers' figures, s = S - 1 - k for spectrain2 and floor(k / 2) + S - 1 - k and floor(k / 2) for spectrain.
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
bool updates_each_micro_batch(PipelineSchedule schedule);  // there is no flush between them
bool copies_weights(PipelineSchedule schedule);            // tasks may run with other weights than the newest

struct PipelineRequest {
  PipelineSchedule schedule = PipelineSchedule::k1F1B;
  int micro_batches = 0;              // of a step; 0: four for each stage, or as many as a stage has rows
  std::vector<std::string> stages{};  // the first layer of each stage but the first; none: as balanced as may be
};

// One thing that a stage does: forward or backward of a micro-batch through its layers.
struct StageTask {
  bool forward;
  int batch;
  bool operator==(const StageTask&) const = default;
};
std::vector<StageTask> stage_tasks(PipelineSchedule schedule, int stages, int place, int micro_batches);
// Micro-batches whose forward is done at this stage and whose backward is not, at most.
int most_under_way(PipelineSchedule schedule, int stages, int place, int micro_batches);
double bubble(int stages, int micro_batches);  // the share of the time in which a stage is idle

// Updates of a stage between the forward of a micro-batch and its backward, where it updates after each.
int version_gap(int stages, int place, int batch);

constexpr int kNewestWeights = -1;
// The weights that a task runs with.
struct TaskWeights {
  int copy = kNewestWeights;  // the number of the copy that they are in
  bool made = false;          // for the task, out of the newest ones; else they are there since an earlier task
  int ahead = 0;              // made: predicted for after so many more updates
  bool operator==(const TaskWeights&) const = default;
};
TaskWeights weights_of(PipelineSchedule schedule, int stages, int place, int micro_batches, const StageTask& task);
// The copy that has to take the newest weights before this micro-batch updates them, since the backward of a later one
// wants them; kNewestWeights: none.
int kept_before_update(PipelineSchedule schedule, int stages, int place, int micro_batches, int batch);

// The layers of each of `stages` runs so that the most costly run costs least, by dynamic programming, and of those
// the ones that send least. cost: of each layer; sent: elements that a cut before the layer sends, or a negative number
// where there can be none. Throws Error where there are not enough cuts.
std::vector<Slice> balanced_stages(const std::vector<double>& cost, const std::vector<int64_t>& sent, int stages);

}  // namespace owt
