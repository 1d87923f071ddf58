#include "src/parallel/rank_loss.h"

#include "src/core/poison.h"

namespace owt {

RankLoss::RankLoss(const Plan& plan, int64_t rows, Communicator& comm, Profiler* profiler)
    : comm_(comm), profiler_(profiler) {
  const Compute& on = plan.request.on;
  const LayerPlan& last = plan.layers.back();
  const Shape row = plan.sharded_loss ? last.out_of(static_cast<size_t>(comm.rank())) : last.out;
  const int64_t columns = row.elements();
  if (plan.sharded_loss) {
    sharded_ = make_sharded_softmax_loss(on, last.parts, comm.rank(), rows, plan.request.loss);
    const int64_t numbers = loss_stats(plan.request.loss);
    stats_ = Tensor({rows, numbers}, DType::kF32, on.device);
    all_stats_ = Tensor({comm.ranks(), rows, numbers}, DType::kF32, on.device);
  } else {
    whole_ = make_softmax_loss(on, static_cast<int>(columns), rows, plan.request.loss);
  }
  flat_ = Tensor({rows, columns}, activation_type(on.precision), on.device);
  dlogits_ = flat_.reshaped(row.batch_of(rows));
}

void RankLoss::sum_up(const Pass& pass, const Tensor& logits, const Tensor& labels, bool gradient) {
  const Profiler::Scope scope(profiler_, "loss", Phase::kLoss);
  logits_ = logits.reshaped(flat_.shape());
  poison(flat_, *pass.stream);
  sharded_->summarize(pass, logits_, labels, gradient ? &flat_ : nullptr, stats_);
}

void RankLoss::run(const Pass& pass, const Tensor& logits, const Tensor& labels, bool gradient, Tensor sums,
                   const LossFollowUp& then) {
  const Profiler::Scope scope(profiler_, "loss", Phase::kLoss);
  Tensor* const dlogits = gradient ? &flat_ : nullptr;
  if (whole_) poison(flat_, *pass.stream);
  if (whole_) return whole_->run(pass, logits.reshaped(flat_.shape()), labels, dlogits, sums, then);
  sharded_->finish(pass, logits_, labels, all_stats_, dlogits, &sums, then);
}

}  // namespace owt
