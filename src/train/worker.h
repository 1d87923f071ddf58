// One rank with everything that a step needs.
#pragma once

#include "src/comm/profiled.h"
#include "src/parallel/step.h"
#include "src/recipe/settings.h"

namespace owt {

Step::Options step_options(const Settings& settings);

struct Worker {
  // Settings, plan and communicator must outlive this. The weights have memory but no values yet.
  Worker(const Settings& settings, const Plan& plan, Communicator& inner, const Step::Options& options);
  Worker(const Settings& settings, const Plan& plan, Communicator& inner)
      : Worker(settings, plan, inner, step_options(settings)) {}

  // After workers were lost, this is a worker of the smaller run: takes weights, optimizer state and updates of
  // `before` (Step::take). Collective.
  void take(Worker& before);

  Profiler profiler;  // switched off
  ProfiledCommunicator comm;
  RankModel model;
  Optimizer optimizer;
  Step step;
};

}  // namespace owt
