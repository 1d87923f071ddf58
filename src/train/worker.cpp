#include "src/train/worker.h"

#include "src/predict/memory_need.h"
#include "src/server/parameter_server.h"
#include "src/train/teacher.h"

namespace owt {

Step::Options step_options(const Settings& settings) {
  return {.seed = settings.run.seed,
          .norms = settings.optimizer.norms(),
          .graphs = settings.run.cuda_graph,
          .record_collectives = settings.run.cuda_graph_collectives,
          .choose_beside = settings.run.update_beside == "auto",
          .make_served = make_parameter_server,
          .what_fits = what_fits};
}

Worker::Worker(const Settings& settings, const Plan& plan, Communicator& inner, const Step::Options& options)
    : comm(inner, &profiler),
      model(settings.model, plan, inner.rank()),
      optimizer(settings.optimizer),
      step(plan, model, optimizer, comm, &profiler, options),
      teacher(settings.distill.teacher ? std::make_unique<Teacher>(settings, plan, comm) : nullptr) {}

Worker::~Worker() = default;

void Worker::prepare(int64_t step_rows) {
  step.prepare(step_rows);
  if (teacher) teacher->prepare(step_rows);
}

void Worker::start_training(const Batch& batch, int64_t number, const Step::Rates& rates, bool stop,
                            std::optional<StepKind> kind) {
  if (!teacher) return step.start_training(batch, number, rates, stop, kind);
  const Batch* taught = nullptr;
  {
    const Profiler::Scope scope(&profiler, "teacher", Phase::kForward);
    taught = &teacher->teach(batch, Mode::kTrain, step.stream());
  }
  step.start_training(*taught, number, rates, stop, kind);
}

void Worker::start_evaluation(const Batch& batch) {
  step.start_evaluation(teacher ? teacher->teach(batch, Mode::kEval, step.stream()) : batch);
}

// The teacher takes plain images.
void Worker::feed_from(BatchSource& batches) const {
  if (!teacher) step.feed_from(batches);
}

void Worker::take(Worker& before) {
  const std::vector<Param*> params = model.params(), theirs = before.model.params();
  for (size_t p = 0; p < params.size(); ++p) {
    Param& param = *params[p];
    const Param& its = *theirs[p];
    param.value.copy_from(its.value);
    ++param.version;
    const Slice kept = step.updated(param), was_kept = before.step.updated(its);
    OWT_CHECK_EQ(kept.size(), was_kept.size());
    if (param.role != ParamRole::kTrained || kept.size() == 0) continue;
    std::vector<Tensor>& states = optimizer.states(param, kept);
    for (size_t i = 0; i < states.size(); ++i) states[i].copy_from(before.optimizer.states(its, was_kept)[i]);
  }
  step.take(before.step);
}

}  // namespace owt
