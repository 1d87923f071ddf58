#include "src/parallel/dense_tape.h"

#include "src/core/canonical.h"
#include "src/plan/back_part.h"

namespace owt {

DenseTape::DenseTape(const Plan& plan, RankModel& model, int64_t rows, Communicator& comm, Profiler* profiler,
                     const DenseTape* lender)
    : profiler_(profiler) {
  const Compute& on = plan.request.on;
  const auto layer = [&](int64_t i) -> const LayerPlan& { return plan.layer(i); };
  for (int64_t s = 0; s < model.stages(); ++s) {
    const int64_t begin = model.first_layer(s), end = begin + model.stage(s).size();
    const bool take = gradient_layout(plan, begin) == Layout::kReplicated;
    const Tape* larger = lender ? &lender->stages_[static_cast<size_t>(s)].tape : nullptr;
    Tape tape(model.stage(s), rows, on, profiler, Tape::Scratch::kOwn, layer(begin).wants_dx, larger);
    Stage stage{begin, end, {}, take, std::move(tape), {}};
    const DType gradient = take ? activation_type(on.precision) : input_sum_type(on);
    if (layer(begin).gather_before)
      stage.gather.emplace(layer(begin - 1).parts, rows, on, comm, layer(begin - 1).out, gradient);
    if (layer(end - 1).by_inputs()) stage.scatter.emplace(layer(end - 1).parts, rows, on, comm);
    if (s > 0 && layer(begin).wants_dx)
      stage.dx = Tensor(model.stage(s).in().batch_of(rows), stage.gather ? gradient : activation_type(on.precision),
                        on.device);
    stages_.push_back(std::move(stage));
  }
  if (plan.of_step.logits != kNoTransfer)
    logits_.emplace(plan.layers.back().parts, rows, on, comm, plan.layers.back().out);
  add_moves(plan);
}

void DenseTape::add_moves(const Plan& plan) {
  for (Stage& stage : stages_) {
    const LayerTransfers& first = plan.layer(stage.begin).transfers;
    const LayerTransfers& last = plan.layer(stage.end - 1).transfers;
    if (stage.gather) {
      moves_[first.input] = {&*stage.gather, Way::kGather};
      if (!stage.take) moves_[first.input_gradient] = {&*stage.gather, Way::kReduce};
    }
    if (!stage.scatter) continue;
    moves_[last.output] = {&*stage.scatter, Way::kReduce};
    if (last.output_gradient != kNoTransfer) moves_[last.output_gradient] = {&*stage.scatter, Way::kGather};
  }
  if (logits_) moves_[plan.of_step.logits] = {&*logits_, Way::kGather};
}

DenseTape::Stage& DenseTape::stage_of(int64_t layer) {
  size_t s = stages_.size() - 1;
  while (stages_[s].begin > layer) --s;
  return stages_[s];
}

void DenseTape::prepare_backward(bool wants_dx) {
  for (Stage& stage : stages_) stage.tape.prepare_backward(&stage == &stages_.front() ? wants_dx : stage.dx.defined());
}

void DenseTape::begin_forward(const Tensor& x) {
  x_ = x;
  at_ = &x_;
}

void DenseTape::forward(const Pass& pass, int64_t layer) {
  Stage& stage = stage_of(layer);
  if (layer == stage.begin) {
    stage.x = at_;
    stage.tape.begin_forward(*at_);
  }
  stage.tape.forward(pass, layer - stage.begin);
  if (layer + 1 == stage.end) at_ = &stage.tape.output();
}

void DenseTape::begin_backward(const Tensor& dlogits, Tensor* dx, const Stream& stream) {
  dx_ = dx;
  at_ = logits_ && !stages_.back().scatter ? &logits_->take(dlogits, stream) : &dlogits;
}

void DenseTape::backward_data(const Pass& pass, int64_t layer) {
  Stage& stage = stage_of(layer);
  Tensor* const dx = &stage == &stages_.front() ? dx_ : stage.dx.defined() ? &stage.dx : nullptr;
  if (layer + 1 == stage.end) stage.tape.begin_backward(*stage.x, *at_, dx);
  stage.tape.backward_data(pass, layer - stage.begin);
  if (layer > stage.begin || !dx) return;
  at_ = stage.gather && stage.take ? &stage.gather->take(*dx, *pass.stream) : dx;
}

void DenseTape::backward_weights(const Pass& pass, int64_t layer) {
  Stage& stage = stage_of(layer);
  stage.tape.backward_weights(pass, layer - stage.begin);
}

void DenseTape::start(TransferId transfer, const Stream& stream) {
  const Move& move = moves_.at(transfer);
  if (move.way == Way::kGather)
    move.features->start_gather(*at_, stream);
  else
    move.features->start_reduce(*at_, stream);
}

void DenseTape::wait(TransferId transfer, const Stream& stream) {
  const Move& move = moves_.at(transfer);
  at_ = &(move.way == Way::kGather ? move.features->finish_gather(stream) : move.features->finish_reduce(stream));
}

std::optional<int32_t> DenseTape::find_bad_layer(const Pass& pass) {
  for (Stage& stage : stages_)
    if (const auto bad = stage.tape.find_bad_layer(pass)) return static_cast<int32_t>(stage.begin) + *bad;
  return {};
}

std::vector<Watched> DenseTape::watched() const {
  std::vector<Watched> all;
  for (const Stage& stage : stages_)
    for (Watched& one : stage.tape.watched(stage.begin)) all.push_back(std::move(one));
  return all;
}

}  // namespace owt
