#include "src/train/step.h"

#include <cmath>

namespace owt {

StepResult Step::train(const Batch& batch, int64_t step, const Rates& rates, bool stop) {
  Pass pass;
  pass.seed = seed_;
  pass.step = step;
  return run(batch, pass, &rates, stop);
}

StepResult Step::evaluate(const Batch& batch) {
  Pass pass;
  pass.mode = Mode::kEval;
  return run(batch, pass, nullptr, false);
}

// The order of a step. rates: null for evaluation, which ends with the loss.
StepResult Step::run(const Batch& batch, Pass pass, const Rates* rates, bool stop) {
  Bound& b = bound(batch.step_rows);
  Stream stream;
  pass.step_rows = batch.step_rows;
  pass.stream = &stream;
  Pass front_pass = pass, dense_pass = pass;
  front_pass.rows = b.front_rows;
  StepResult mine;
  mine.stop = stop;

  b.boundary.gather_labels(batch.labels, stream.record());
  const Tensor& y = b.front.forward(front_pass, batch.images);
  b.boundary.gather(0, y, stream.record());
  for (int r = 0; r < b.boundary.rounds(); ++r) {
    if (r + 1 < b.boundary.rounds()) b.boundary.gather(r + 1, y, stream.record());
    const std::vector<int64_t>& rows = b.dense_rows[static_cast<size_t>(r)];
    const int64_t count = static_cast<int64_t>(rows.size());
    dense_pass.rows = rows;
    Dense& d = dense(count);
    const Tensor x = b.boundary.gathered(r).rows(0, count);
    const Tensor logits = d.tape.forward(dense_pass, x).reshaped(d.dlogits.shape());
    const Tensor& labels = b.boundary.labels(r);
    LossSums sums;
    {
      const Profiler::Scope scope(profiler_, "loss", Phase::kLoss);
      sums = SoftmaxLoss(static_cast<int>(d.dlogits.shape()[1]))
                 .run(dense_pass, logits, labels, rates ? &d.dlogits : nullptr);
    }
    if (counts_rows())
      mine.sums.loss += sums.loss, mine.sums.top1 += sums.top1, mine.sums.top5 += sums.top5,
          mine.sums.rows += sums.rows;
    if (!std::isfinite(sums.loss)) find_bad_layer(b, d);
    if (!rates) continue;

    Tensor* dx = b.boundary.dense_gradient(r);
    Tensor dx_rows = dx ? dx->rows(0, count) : Tensor();
    d.tape.backward(dense_pass, d.dlogits, dx ? &dx_rows : nullptr);
    b.boundary.scatter(r, stream.record());
    if (plan_.request.dense_update == DenseUpdate::kRound && count > 0)
      // The loss carries 1/N; a round stands for itself.
      for (int64_t s = 0; s < model_.stages(); ++s)
        update(model_.stage(s), rates->back,
               static_cast<double>(batch.step_rows) / static_cast<double>(count));
  }
  if (rates) {
    const Tensor& dy = b.boundary.finish();
    b.front.backward(front_pass, batch.images, dy, nullptr,
                     [this](int64_t layer) { grad_sync_.layer_done(layer); });
    if (plan_.request.dense_update == DenseUpdate::kStep)
      for (int64_t s = 0; s < model_.stages(); ++s) update(model_.stage(s), rates->back, 1);
    grad_sync_.finish();
    update(model_.front(), rates->front, 1);
  }
  StepResult all = share_result(mine, comm_, profiler_);
  if (!std::isfinite(all.sums.loss)) report_bad_loss(all, pass);
  return all;
}

}  // namespace owt
