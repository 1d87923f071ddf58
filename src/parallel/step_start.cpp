// Starts and finishes steps; several may be under way.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "src/comm/on_host.h"
#include "src/core/activity.h"
#include "src/parallel/step.h"
#include "src/plan/plan_rows.h"
#include "src/plan/plan_updates.h"

namespace owt {

void Step::start_training(const Batch& batch, int64_t step, const Rates& rates, bool stop,
                          std::optional<StepKind> kind) {
  Pass pass;
  pass.step = step;
  start(batch, pass, kind.value_or(kind_of(plan_, step)), rates, stop);
}

void Step::start_evaluation(const Batch& batch) {
  Pass pass;
  pass.mode = Mode::kEval;
  start(batch, pass, StepKind::kSynchronous, {}, false);
}

void Step::count_rows(int64_t step_rows, StepKind kind) {
  if (kind == StepKind::kSynchronous) return;
  own_rows_ += rows_of(plan_, step_rows).of(comm_.rank()).size();
  all_rows_ += step_rows;
}

double Step::take_share() {
  return static_cast<double>(std::exchange(own_rows_, 0)) / static_cast<double>(std::exchange(all_rows_, 0));
}

void Step::start(const Batch& batch, Pass pass, StepKind kind, const Rates& rates, bool stop) {
  OWT_CHECK(in_flight_.size() < slots_.size(), "too many steps under way");
  prepare(batch.step_rows, pass.mode);
  Slot& slot = slots_[next_slot_];
  next_slot_ = (next_slot_ + 1) % slots_.size();
  Block& block = slot.block();
  block = {};
  block.step = pass.step;
  block.front = {rates.front, rates.front_biases, static_cast<double>(updates_.front), rates.sgd_share};
  block.back = {rates.back, rates.back_biases, static_cast<double>(updates_.back), rates.sgd_share};
  block.kept = rates.kept;
  count_rows(batch.step_rows, kind);
  block.share = kind == StepKind::kAveraging ? take_share() : 0;
  block.sums[kStopSum] = stop ? 1 : 0;
  block.bad_layer = static_cast<int32_t>(plan_.layers.size());
  pass.seed = options_.seed;
  pass.step_rows = batch.step_rows;
  pass.stream = &stream_;
  pass.device_step = block_part(offsetof(Block, step), DType::kI64, 1).data<int64_t>();

  slot.kind = kind;
  slot.averages = ema_ && rates.kept < 1;
  const bool recorded = records();
  if (recorded)
    recorder_.run(batch, pass.mode, {kind, slot.averages}, static_cast<size_t>(&slot - slots_.data()), stream_,
                  [&] { queue_all(batch, pass, slot); });
  else
    queue_all(batch, pass, slot);
  if (pass.mode == Mode::kTrain) count_updates(bound(batch.step_rows));
  slot.images = batch.images;
  slot.done = recorded ? comm_.watched(stream_.record()) : stream_.record();
  slot.pass = pass;
  in_flight_.push_back(&slot);
}

void Step::queue_all(const Batch& batch, const Pass& pass, Slot& slot) {
  block_.copy_from(slot.host, stream_);
  queue(batch, pass, slot);
  if (!alone()) slot.host.copy_from(block_, stream_);
}

StepResult Step::finish() {
  OWT_CHECK(!in_flight_.empty(), "no step is under way");
  Slot& slot = *in_flight_.front();
  {
    const Waits waits(WaitsFor::kDevice);
    slot.done.wait();
  }
  in_flight_.pop_front();
  ResultSums& sums = slot.block().sums;
  if (slot.pass.mode == Mode::kTrain) sums = front_sync_->result(sums);
  StepResult result = step_result(sums.data());
  result.gradient_norm = slot.block().gradient_norm;
  if (!std::isfinite(result.sums.loss)) report_bad_loss(result, slot.pass, bad_layer(slot));
  slot.images = {};
  return result;
}

// Recomputes outputs that the pass has dropped. On the CPU the images are valid until the caller has this result. On a
// GPU later images may have overwritten them, but in layers before the first one that learns these pass the same
// weights. In the back part only the last round's rows are searched.
int32_t Step::bad_layer(Slot& slot) {
  int32_t first = slot.block().bad_layer;
  const auto look = [&](auto& tape, const RowIndexes& rows) {
    Pass pass = slot.pass;
    rows.give_to(pass);
    first = std::min(first, tape.find_bad_layer(pass).value_or(first));
  };
  for (SliceOfStep& slice : bound(slot.pass.step_rows).slices) {
    slice.front->begin_forward(images_of(slice, slot.images));
    look(*slice.front, slice.front_rows);
    for (size_t round = 0; round < slice.dense_rows.size(); ++round)
      look(dense_of(static_cast<int>(round), slice).tape, slice.dense_rows[round]);
  }
  return first;
}

StepResult Step::train(const Batch& batch, int64_t step, const Rates& rates, bool stop, std::optional<StepKind> kind) {
  start_training(batch, step, rates, stop, kind);
  return finish();
}

void Step::settle() {
  OWT_CHECK(in_flight_.empty(), "a step is under way");
  if (const auto updates = front_sync_->settle(stream_)) updates_ = {*updates, *updates};
}

void Step::average() {
  OWT_CHECK(in_flight_.empty(), "a step is under way");
  if (all_rows_ == 0) return;
  Slot& slot = slots_[next_slot_];
  slot.block() = {};
  slot.block().share = take_share();
  block_.copy_from(slot.host, stream_);
  const int buckets = static_cast<int>(plan_.buckets.size());
  for (int b = 0; b < buckets; ++b) average_->start(b, share_, stream_);
  for (int b = 0; b < buckets; ++b) average_->wait(b, stream_);
  stream_.synchronize();
}

void Step::take(Step& before) {
  const int64_t updates = front_sync_->take(*before.front_sync_, stream_);
  go_on_after({updates, updates});
}

StepResult Step::evaluate(const Batch& batch) {
  start_evaluation(batch);
  return finish();
}

void Step::report_bad_loss(const StepResult& result, const Pass& pass, int32_t bad_layer) {
  const std::vector<int32_t> layers = on_host::gather(comm_, std::vector{bad_layer}, stream_.device());
  const int32_t first = *std::min_element(layers.begin(), layers.end());
  const bool none = first == static_cast<int32_t>(plan_.layers.size());
  throw Diverged(
      concat(pass.mode == Mode::kTrain ? concat("step ", pass.step + 1) : std::string("evaluation"), ": the loss is ",
             std::isnan(result.sums.loss) ? "nan" : concat(result.sums.loss), "; ",
             none ? std::string("every layer's output is finite, so it grew in the loss")
                  : concat("the first layer with a value that is not finite is '", plan_.layer(first).name, "'"),
             options_.weights.empty()
                 ? std::string(". Lower the learning rate, add warmup_epochs, or look at the data")
                 : concat("; look at the weights in ", options_.weights, " and at the data's means and scale")));
}

}  // namespace owt
