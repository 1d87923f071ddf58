// Pipelines: runs of layers on ranks of their own, the stages, and the order in which a stage takes micro-batches. Data
// and arithmetic only.
//
// With S stages a stage's place k counts from 0, that of the images. A step's rows are M micro-batches.
//   gpipe   forward of all, then backward of all, the last one first; M activations are kept
//   1f1b    S - 1 - k forwards ahead, then backward and forward in turn; min(M, S - k) activations are kept
// Both end with every micro-batch done and one update: exact synchronous SGD. A stage is idle for (S - 1) / (M + S - 1)
// of the time where forward and backward of all stages take as long.
// Sources: Huang et al. 2019, "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism";
// Narayanan et al. 2019, "PipeDream: Generalized Pipeline Parallelism for DNN Training", and 2021, "Efficient
// Large-Scale Language Model Training on GPU Clusters Using Megatron-LM" (1F1B with a flush).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/core/shape.h"

namespace owt {

enum class PipelineSchedule { kGPipe, k1F1B };
const char* name_of(PipelineSchedule schedule);
PipelineSchedule pipeline_schedule_from(const std::string& name);  // throws Error with the list of names
std::vector<std::string> pipeline_schedule_names();

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

// The layers of each of `stages` runs so that the most costly run costs least, by dynamic programming, and of those
// the ones that send least. cost: of each layer; sent: elements that a cut before the layer sends, or a negative number
// where there can be none. Throws Error where there are not enough cuts.
std::vector<Slice> balanced_stages(const std::vector<double>& cost, const std::vector<int64_t>& sent, int stages);

}  // namespace owt
