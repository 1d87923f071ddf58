#include "src/parallel/rank_loss.h"

#include "layers/loss/class_sample.h"
#include "src/core/poison.h"

namespace owt {

RankLoss::RankLoss(const Plan& plan, int64_t rows, Communicator& comm, Profiler* profiler)
    : comm_(comm), profiler_(profiler) {
  const Compute& on = plan.request.on;
  const LayerPlan& last = plan.layers.back();
  const Shape row = plan.sharded_loss ? last.out_of(static_cast<size_t>(comm.rank())) : last.out;
  const std::vector<Slice> classes = plan.sharded_loss ? last.parts : std::vector<Slice>{{0, row.elements()}};
  all_ = make(plan, rows, classes);
  if (!last.sampled.empty()) sampled_ = make(plan, rows, columns_of_sample(last.sampled));
  if (plan.sharded_loss) {
    const int64_t numbers = loss_stats(plan.request.loss);
    stats_ = Tensor({rows, numbers}, DType::kF32, on.device);
    all_stats_ = Tensor({comm.ranks(), rows, numbers}, DType::kF32, on.device);
  }
  const Shape learning = last.sampled.empty() ? row : Shape{sampled_.columns};
  dlogits_ = Tensor(learning.batch_of(rows), activation_type(on.precision), on.device);
}

RankLoss::Of RankLoss::make(const Plan& plan, int64_t rows, const std::vector<Slice>& parts) const {
  const Compute& on = plan.request.on;
  const LossSettings& loss = plan.request.loss;
  if (!plan.sharded_loss)
    return {make_softmax_loss(on, static_cast<int>(parts[0].size()), rows, loss), nullptr, parts[0].size()};
  return {nullptr, make_sharded_softmax_loss(on, parts, comm_.rank(), rows, loss),
          parts[static_cast<size_t>(comm_.rank())].size()};
}

void RankLoss::sum_up(const Pass& pass, const Tensor& logits, const Tensor& labels, bool gradient) {
  const Profiler::Scope scope(profiler_, "loss", Phase::kLoss);
  logits_ = matrix(logits, pass);
  poison(dlogits_, *pass.stream);
  Tensor dlogits = gradient ? matrix(dlogits_, pass) : Tensor();
  of(pass).sharded->summarize(pass, logits_, labels, gradient ? &dlogits : nullptr, stats_);
}

void RankLoss::run(const Pass& pass, const Tensor& logits, const Tensor& labels, bool gradient, Tensor sums,
                   const LossFollowUp& then) {
  const Profiler::Scope scope(profiler_, "loss", Phase::kLoss);
  Tensor dlogits = gradient ? matrix(dlogits_, pass) : Tensor();
  Tensor* const wanted = gradient ? &dlogits : nullptr;
  if (all_.whole) {
    poison(dlogits_, *pass.stream);
    return of(pass).whole->run(pass, matrix(logits, pass), labels, wanted, sums, then);
  }
  of(pass).sharded->finish(pass, logits_, labels, all_stats_, wanted, &sums, then);
}

}  // namespace owt
