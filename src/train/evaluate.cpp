#include "src/train/evaluate.h"

#include "src/comm/threads.h"
#include "src/core/log.h"
#include "src/train/weights.h"

namespace owt {

Evaluation evaluate(Step& step, BatchSource& test_batches) {
  LossSums sums;
  int in_flight = 0;
  for (int64_t i = 0; i < test_batches.steps_per_epoch(); ++i, ++in_flight) {
    if (in_flight == step.most_in_flight()) sums += step.finish().sums, --in_flight;
    step.start_evaluation(test_batches.next(step.stream()));
  }
  for (; in_flight > 0; --in_flight) sums += step.finish().sums;
  const double images = static_cast<double>(sums.rows);
  return {sums.loss / images, static_cast<double>(sums.top1) / images, static_cast<double>(sums.top5) / images,
          sums.rows};
}

Evaluation evaluate_weights(const Job& job, int team) {
  Evaluation result;
  run_ranks(
      job.plan.ranks(), team,
      [&](Communicator& comm) {
        RankModel model(job.settings.model, job.plan, comm.rank());
        Sgd sgd(job.settings.optimizer);
        Step step(job.plan, model, sgd, comm, nullptr, step_options(job.settings));
        const auto unused = load_weights(job.weights, model, step.groups());
        if (comm.rank() == 0)
          for (const std::string& name : unused) log_warn("{}: nothing in the model takes '{}'", job.weights, name);
        const auto batches = test_batches(job, comm.rank());
        comm.meet();
        const Evaluation mine = evaluate(step, *batches);
        if (comm.rank() == 0) result = mine;
      },
      job.plan.request.on.device);
  return result;
}

}  // namespace owt
