#include "src/train/step.h"

namespace owt {

void Step::start_training(const Batch& batch, int64_t step, const Rates& rates, bool stop) {
  Pass pass;
  pass.step = step;
  start(batch, pass, rates, stop);
}

void Step::start_evaluation(const Batch& batch) {
  Pass pass;
  pass.mode = Mode::kEval;
  start(batch, pass, {}, false);
}

// The order of a step. Evaluation ends with the loss.
void Step::queue(const Batch& batch, const Pass& pass, const Slot& slot) {
  const bool learns = pass.mode == Mode::kTrain;
  const Stream& stream = stream_;
  Bound& b = bound(batch.step_rows);
  Pass front_pass = pass, dense_pass = pass;
  b.front_rows.give_to(front_pass);

  b.boundary.gather_labels(batch.labels, stream);
  const Tensor& y = b.front.forward(front_pass, batch.images);
  b.boundary.gather(0, y, stream);
  Tensor dy;
  for (int r = 0; r < b.boundary.rounds(); ++r) {
    if (r + 1 < b.boundary.rounds()) b.boundary.gather(r + 1, y, stream);
    const Rows& rows = b.dense_rows[static_cast<size_t>(r)];
    const auto count = static_cast<int64_t>(rows.host.size());
    rows.give_to(dense_pass);
    Dense& d = dense(count);
    const Tensor x = b.boundary.gathered(r, stream).rows(0, count);
    const Tensor& logits = d.tape.forward(dense_pass, x);
    d.loss.run(dense_pass, logits, b.boundary.labels(r, stream), learns, my_sums(), after_loss(b, d, slot));
    if (!learns) {
      hand_out(logits, rows);
      continue;
    }

    // Without a boundary the loss is that of the rows before it, and so is its gradient.
    if (!plan_.split()) dy = d.loss.dlogits().reshaped(y.shape());
    Tensor* dx = plan_.split() ? b.boundary.dense_gradient(r, stream) : nullptr;
    Tensor dx_rows = dx ? dx->rows(0, count) : Tensor();
    const bool every_round = plan_.request.dense_update == DenseUpdate::kRound;
    const int64_t round_rows = b.round_rows[static_cast<size_t>(r)];  // the same on all ranks
    const bool complete = every_round ? round_rows > 0 : r + 1 == b.boundary.rounds();
    BackwardHooks hooks;
    hooks.dx_done = [&] { b.boundary.scatter(r, stream); };
    if (complete) hooks.layer_done = [&](int64_t layer) { layer_done(layer); };
    d.tape.backward(dense_pass, d.loss.dlogits(), dx ? &dx_rows : nullptr, hooks);
    // The loss carries 1/N; a round stands for itself.
    if (every_round && complete)
      update_dense(static_cast<double>(batch.step_rows) / static_cast<double>(round_rows), stream);
  }
  if (learns) {
    if (plan_.split()) dy = b.boundary.finish(stream);
    if (plan_.front_learns)
      b.front.backward(front_pass, batch.images, dy, nullptr,
                       {.layer_done = [&](int64_t layer) { layer_done(layer); }});
    finish_updates();
  }
  share_result(sums_, comm_, stream, profiler_);
}

}  // namespace owt
