#include "src/train/worker.h"

#include "src/predict/memory_need.h"
#include "src/server/parameter_server.h"

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
      step(plan, model, optimizer, comm, &profiler, options) {}

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
