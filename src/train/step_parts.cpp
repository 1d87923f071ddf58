// What a step is made of; the order in which it runs is in step.cpp.
#include <algorithm>
#include <numeric>

#include "src/train/step.h"

namespace owt {

Step::Step(const Plan& plan, RankModel& model, Sgd& sgd, Communicator& comm, Profiler* profiler, uint64_t seed)
    : plan_(plan),
      model_(model),
      sgd_(sgd),
      comm_(comm),
      profiler_(profiler),
      seed_(seed),
      grad_sync_(plan, model.front(), comm, profiler) {
  for (Param* param : model.params()) param->allocate();
}

Step::Bound::Bound(Step& step, int64_t step_rows)
    : front(step.model_.front(),
            StepRows(step.plan_.rounds_strategy(), step.plan_.ranks(), step_rows).of(step.comm_.rank()).size(),
            Device::kCpu, step.profiler_),
      boundary(step.plan_, step_rows, step.comm_, step.profiler_) {
  const StepRows rows(step.plan_.rounds_strategy(), step.plan_.ranks(), step_rows);
  const Slice mine = rows.of(step.comm_.rank());
  front_rows.resize(static_cast<size_t>(mine.size()));
  std::iota(front_rows.begin(), front_rows.end(), mine.begin);
  for (int r = 0; r < boundary.rounds(); ++r) {
    dense_rows.emplace_back();
    for (const RowRange& range : boundary.round(r))
      for (int64_t row = range.begin; row < range.end; ++row)
        dense_rows.back().push_back(rows.of(range.rank).begin + row);
  }
}

Step::Bound& Step::bound(int64_t step_rows) {
  const auto found = bound_.find(step_rows);
  if (found != bound_.end()) return found->second;
  return bound_.try_emplace(step_rows, *this, step_rows).first->second;
}

Step::Dense& Step::dense(int64_t rows) {
  const auto found = dense_.find(rows);
  if (found != dense_.end()) return found->second;
  const int64_t classes = plan_.layers.back().out.elements();
  return dense_
      .try_emplace(rows, Dense{BackTape(plan_, model_, rows, comm_, profiler_), SoftmaxLoss(static_cast<int>(classes)),
                               Tensor({rows, classes})})
      .first->second;
}

LossSums Step::loss(const Pass& pass, Dense& dense, const Tensor& logits, const Tensor& labels, bool gradient) {
  const Profiler::Scope scope(profiler_, "loss", Phase::kLoss);
  return dense.loss.run(pass, logits, labels, gradient ? &dense.dlogits : nullptr);
}

void Step::update_back(double rate, double gradient_scale) {
  for (int64_t s = 0; s < model_.stages(); ++s) update(model_.stage(s), rate, gradient_scale);
}

void Step::update(Net& net, double rate, double gradient_scale) {
  for (int64_t i = 0; i < net.size(); ++i) {
    if (net.layer(i).params().empty()) continue;
    const Profiler::Scope scope(profiler_, net.layer(i).name(), Phase::kUpdate);
    for (Param& param : net.layer(i).params()) {
      Param* const one = &param;
      sgd_.update({&one, 1}, rate, gradient_scale);
    }
  }
}

void Step::find_bad_layer(const Bound& bound, const Dense& dense) {
  if (bad_layer_ >= 0) return;
  bad_layer_ = bound.front.first_bad_layer();
  if (bad_layer_ >= 0) return;
  const std::string name = dense.tape.first_bad_layer();
  for (size_t i = 0; i < plan_.layers.size(); ++i)
    if (plan_.layers[i].name == name) bad_layer_ = static_cast<int64_t>(i);
}

void Step::report_bad_loss(const StepResult& result, const Pass& pass) {
  Tensor mine({1}, DType::kI32), all({comm_.ranks()}, DType::kI32);
  const int32_t none = static_cast<int32_t>(plan_.layers.size());
  mine.data<int32_t>()[0] = bad_layer_ < 0 ? none : static_cast<int32_t>(bad_layer_);
  comm_.all_gather(mine, all, {}).wait();
  const int32_t first = *std::min_element(all.data<int32_t>(), all.data<int32_t>() + comm_.ranks());
  fail(pass.mode == Mode::kTrain ? concat("step ", pass.step + 1) : std::string("evaluation"), ": the loss is ",
       result.sums.loss, "; ",
       first == none ? std::string("every layer's output is finite, so it grew in the loss")
                     : concat("the first layer with a value that is not finite is '",
                              plan_.layers[static_cast<size_t>(first)].name, "'"),
       ". Lower the learning rate, add warmup_epochs, or look at the data; the last checkpoint is kept");
}

int64_t Step::bytes() const {
  int64_t total = 0;
  for (const auto& [rows, b] : bound_) total += b.front.bytes();
  for (const auto& [rows, d] : dense_) total += d.tape.bytes() + d.dlogits.bytes();
  return total;
}

}  // namespace owt
