#include "src/train/evaluate.h"

#include "src/comm/threads.h"
#include "src/core/log.h"
#include "src/train/weights.h"

namespace owt {

Evaluation evaluate(Step& step, const Job& job, int rank) {
  const auto batches = test_batches(job, rank);
  LossSums sums;
  for (int64_t i = 0; i < batches->steps_per_epoch(); ++i) {
    sums += step.evaluate(batches->next()).sums;
  }
  const double images = static_cast<double>(sums.rows);
  return {sums.loss / images, static_cast<double>(sums.top1) / images, static_cast<double>(sums.top5) / images,
          sums.rows};
}

Evaluation evaluate_weights(const Job& job, int team) {
  Evaluation result;
  run_ranks(job.plan.ranks(), team, [&](Communicator& comm) {
    RankModel model(job.settings.model, job.plan, comm.rank());
    Sgd sgd(job.settings.optimizer);
    Step step(job.plan, model, sgd, comm, nullptr, job.settings.run.seed);
    const auto unused = load_weights(job.weights, model);
    if (comm.rank() == 0)
      for (const std::string& name : unused) log_warn("{}: nothing in the model takes '{}'", job.weights, name);
    const Evaluation mine = evaluate(step, job, comm.rank());
    if (comm.rank() == 0) result = mine;
  });
  return result;
}

}  // namespace owt
