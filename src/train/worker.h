// One rank with everything that a step needs.
#pragma once

#include <memory>
#include <optional>

#include "data/batch.h"
#include "src/comm/profiled.h"
#include "src/parallel/step.h"
#include "src/recipe/settings.h"

namespace owt {

Step::Options step_options(const Settings& settings);

class Teacher;

struct Worker {
  // Settings, plan and communicator must outlive this. The weights have memory but no values yet.
  Worker(const Settings& settings, const Plan& plan, Communicator& inner, const Step::Options& options);
  Worker(const Settings& settings, const Plan& plan, Communicator& inner)
      : Worker(settings, plan, inner, step_options(settings)) {}
  ~Worker();

  // These do what Step's functions do. A teacher is prepared too, and writes its targets before the step.
  void prepare(int64_t step_rows);
  void start_training(const Batch& batch, int64_t number, const Step::Rates& rates, bool stop,
                      std::optional<StepKind> kind = {});
  void start_evaluation(const Batch& batch);
  void feed_from(BatchSource& batches) const;

  // After workers were lost, this is a worker of the smaller run: takes weights, optimizer state and updates of
  // `before` (Step::take). Collective.
  void take(Worker& before);

  Profiler profiler;  // switched off
  ProfiledCommunicator comm;
  RankModel model;
  Optimizer optimizer;
  Step step;
  std::unique_ptr<Teacher> teacher;  // null: the settings have none that is open
};

}  // namespace owt
