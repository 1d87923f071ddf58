#include "src/train/worker.h"

namespace owt {

Step::Options step_options(const Settings& settings) {
  return {.seed = settings.run.seed,
          .graphs = settings.run.cuda_graph,
          .record_collectives = settings.run.cuda_graph_collectives};
}

Worker::Worker(const Settings& settings, const Plan& plan, Communicator& inner, const Step::Options& options)
    : comm(inner, &profiler),
      model(settings.model, plan, inner.rank()),
      optimizer(settings.optimizer),
      step(plan, model, optimizer, comm, &profiler, options) {}

}  // namespace owt
