// Predicts the duration of a step of a plan from computation times of a rank and the duration of collectives.
//
// The critical-path simulation (step_walk.h) runs the slowest rank: the one that takes longest for its rows at its
// speed if shares or speeds (PlanRequest) are unequal, else rank 0. The other ranks do the same at the same time and
// wait for it, so they need no times of their own; but every stage of a pipeline is simulated. With local SGD all
// values are means over the kinds of step.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/plan/plan.h"
#include "src/predict/compute_model.h"
#include "src/predict/network.h"
#include "src/predict/step_walk.h"

namespace owt {

struct Prediction {
  PlanRequest request;
  bool split = false;        // dense layers are split
  int model_ranks = 1;       // ranks that share one copy of the split layers
  int64_t bytes = 0;         // sent by each rank per step, or the mean
  int64_t busiest_link = 0;  // bytes in one direction of the busiest rank's link
  int64_t memory_bytes = 0;  // memory of a rank; see memory_need.h
  // Seconds. The duration of a step is the sum of the first three.
  double compute_s = 0;  // forward, loss, backward
  double exposed_s = 0;  // waiting for collectives
  double update_s = 0;
  double transfer_s = 0;  // duration of the collectives, hidden or exposed

  double step_s() const { return compute_s + exposed_s + update_s; }
  double images_per_second() const { return static_cast<double>(request.step_rows) / step_s(); }
  std::string name() const;  // "owt-c"; with several model groups "owt-c 8x4": model ranks x replicas
};

// The duration of each action: layers by the compute model, transfers by the network, which must have as many ranks as
// the plan. All arguments must outlive the result. Every rank takes as long as the slowest.
std::unique_ptr<ActionTimes> predicted_times(const Plan& plan, const Network& network, const ComputeModel& compute);
// For each transfer of the plan: seconds of all its calls in a step that has it.
std::vector<double> transfer_seconds(const Plan& plan, const Network& network);

// A prediction with the plan's bytes, and without times and memory.
Prediction prediction_of(const Plan& plan);
// times: if given, receives the actions that take time, in the step that averages weights if there are such steps.
Prediction price_step(const Plan& plan, const Network& network, const ComputeModel& compute,
                      std::vector<TimedAction>* times = nullptr);

}  // namespace owt
