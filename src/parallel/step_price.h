// What a step of a plan would take, from how long a rank computes and how long collectives take.
//
// The step is walked (step_walk.h) by the slowest rank: the one that takes longest for its rows at its speed, where
// shares or speeds (PlanRequest) are unequal, else rank 0. The others do the same at the same time and wait for it, so
// they need no times of their own; but for the stages of a pipeline, of which each has some. Where weights are averaged
// every so many steps, all figures are means over those steps.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/parallel/compute_model.h"
#include "src/parallel/network.h"
#include "src/parallel/plan.h"
#include "src/parallel/step_walk.h"

namespace owt {

struct Prediction {
  PlanRequest request;
  bool split = false;        // dense layers are
  int model_ranks = 1;       // that share one copy of them
  int64_t bytes = 0;         // sent by each rank per step, or the mean
  int64_t busiest_link = 0;  // one way through the link of the rank with the most
  int64_t memory_bytes = 0;  // of a rank; see memory_need.h
  // Seconds of a step, which is the sum of the first three.
  double compute_s = 0;  // forward, loss, backward
  double exposed_s = 0;  // waiting for collectives
  double update_s = 0;
  double transfer_s = 0;  // the collectives themselves, hidden or not

  double step_s() const { return compute_s + exposed_s + update_s; }
  double images_per_second() const { return static_cast<double>(request.step_rows) / step_s(); }
  std::string name() const;  // "owt-c"; of a grid "owt-c 8x4": model ranks x replicas
};

// What actions take by themselves: layers as the model says, transfers as the network does, which has as many ranks as
// the plan. All must outlive it. Every rank takes as long as the slowest.
std::unique_ptr<ActionTimes> predicted_times(const Plan& plan, const Network& network, const ComputeModel& compute);
// Seconds of all calls of each transfer of the plan in a step that has it.
std::vector<double> transfer_seconds(const Plan& plan, const Network& network);

// What it fills `times` with, where given, has no actions that take no time;
// it is the step that averages weights where there are such.
Prediction price_step(const Plan& plan, const Network& network, const ComputeModel& compute,
                      std::vector<TimedAction>* times = nullptr);

}  // namespace owt
