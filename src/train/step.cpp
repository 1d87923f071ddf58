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

  b.boundary.gather_labels(batch.labels, stream);
  const Tensor& y = b.front.forward(front_pass, batch.images);
  b.boundary.gather(0, y, stream);
  for (int r = 0; r < b.boundary.rounds(); ++r) {
    if (r + 1 < b.boundary.rounds()) b.boundary.gather(r + 1, y, stream);
    const std::vector<int64_t>& rows = b.dense_rows[static_cast<size_t>(r)];
    const int64_t count = static_cast<int64_t>(rows.size());
    dense_pass.rows = rows;
    Dense& d = dense(count);
    const Tensor x = b.boundary.gathered(r, stream).rows(0, count);
    const Tensor logits = d.tape.forward(dense_pass, x).reshaped(d.dlogits.shape());
    const Tensor& labels = b.boundary.labels(r, stream);
    const LossSums sums = loss(dense_pass, d, logits, labels, rates != nullptr);
    if (plan_.counts_rows(comm_.rank())) mine.sums += sums;
    if (!std::isfinite(sums.loss)) find_bad_layer(b, d);
    if (!rates) continue;

    Tensor* dx = b.boundary.dense_gradient(r, stream);
    Tensor dx_rows = dx ? dx->rows(0, count) : Tensor();
    d.tape.backward(dense_pass, d.dlogits, dx ? &dx_rows : nullptr);
    b.boundary.scatter(r, stream);
    if (plan_.request.dense_update == DenseUpdate::kRound && count > 0)
      // The loss carries 1/N; a round stands for itself.
      update_back(rates->back, static_cast<double>(batch.step_rows) / static_cast<double>(count));
  }
  if (rates) {
    const Tensor& dy = b.boundary.finish(stream);
    if (plan_.front_learns)
      b.front.backward(front_pass, batch.images, dy, nullptr,
                       [&](int64_t layer) { grad_sync_.layer_done(layer, stream); });
    if (plan_.request.dense_update == DenseUpdate::kStep) update_back(rates->back, 1);
    grad_sync_.finish(stream);
    update(model_.front(), rates->front, 1);
  }
  const StepResult all = share_result(mine, comm_, stream, profiler_);
  if (!std::isfinite(all.sums.loss)) report_bad_loss(all, pass);
  return all;
}

}  // namespace owt
