#include "src/parallel/boundary.h"

#include <algorithm>

namespace owt {
namespace {

Shape row_at_boundary(const Plan& plan) {
  return plan.split() ? plan.layers[static_cast<size_t>(plan.boundary)].in : plan.layers.back().out;
}

// Between the padded blocks (ranks x longest rows) and the round's rows without gaps.
template <class Copy>
void for_each_block(const Round& round, int64_t longest, const Copy& copy) {
  int64_t row = 0;
  for (const RowRange& range : round) {
    copy(range.rank * longest, row, range.size());
    row += range.size();
  }
}

}  // namespace

Boundary::Boundary(const Plan& plan, int64_t step_rows, const Groups& groups, Profiler* profiler)
    : plan_(plan),
      strategy_(plan.rounds_strategy()),
      comm_(groups.wire(Group::kModel)),
      profiler_(profiler),
      name_(plan.boundary_name() + " input"),
      gradient_name_(name_ + " gradient"),
      features_(row_at_boundary(plan)) {
  const StepRows rows = plan.rows(step_rows);
  rounds_ = rows.rounds(groups.world().rank());
  local_gradient_ = activations(rows.of(groups.world().rank()).size());
  if (!moves_rows()) return;
  my_labels_ = Tensor({rows.most()}, DType::kI32, plan.request.on.device);
  my_labels_.zero();
  all_labels_ = Tensor({rows.most() * plan.model_ranks}, DType::kI32, plan.request.on.device);
  const LayerPlan& first = plan.layers[static_cast<size_t>(plan.boundary)];
  if (first.by_inputs()) {
    std::vector<int64_t> rows_of_ranks;
    for (const RowRange& range : round(0)) rows_of_ranks.push_back(range.size());
    exchange_.emplace(name_, rows_of_ranks, first.inputs, plan.request.on, comm_, profiler);
    round_buffer_ = Tensor({rows_of(round(0))}, DType::kI32, plan.request.on.device);
    return;
  }
  int64_t most_rows = 0, most_padded = 0;
  bool all_even = true;
  for (int r = 0; r < rounds(); ++r) {
    most_rows = std::max(most_rows, rows_of(round(r)));
    most_padded = std::max(most_padded, longest(r));
    all_even = all_even && even(r);
  }
  round_buffer_ = Tensor({most_rows}, DType::kI32, plan.request.on.device);
  for (Slot& s : slots_) {
    s.batch = activations(most_rows);
    s.gradient = activations(most_rows);
    if (all_even) continue;
    s.blocks = activations(most_padded * plan.model_ranks);
    s.part = activations(most_padded);
    s.blocks.zero();
    s.part.zero();
  }
}

Tensor Boundary::activations(int64_t rows) const {
  const Compute& on = plan_.request.on;
  return Tensor(features_.batch_of(rows), activation_type(on.precision), on.device);
}

Slice Boundary::my_rows(int r) const {
  for (const RowRange& range : round(r))
    if (range.rank == comm_.rank()) return {range.begin, range.end};
  return {0, 0};
}

int64_t Boundary::longest(int r) const {
  int64_t most = 0;
  for (const RowRange& range : round(r)) most = std::max(most, range.size());
  return most;
}

bool Boundary::even(int r) const {
  return strategy_ == Strategy::kOwtB || longest(r) * plan_.model_ranks == rows_of(round(r));
}

void Boundary::gather_labels(const Tensor& mine, const Stream& stream) {
  if (!moves_rows()) {
    round_labels_ = mine;
    labels_gathered_ = {};
    return;
  }
  const Profiler::Scope scope(profiler_, "labels", Phase::kTransfer);
  my_labels_.rows(0, mine.shape().rows()).copy_from(mine, stream);
  labels_gathered_ = comm_.all_gather(my_labels_, all_labels_, stream.record());
}

const Tensor& Boundary::labels(int r, const Stream& stream) {
  if (!moves_rows()) {
    stream.wait(labels_gathered_);
    return round_labels_;
  }
  const Profiler::Scope scope(profiler_, "labels", Phase::kTransfer);
  stream.wait(labels_gathered_);
  round_labels_ = round_buffer_.rows(0, rows_of(round(r)));
  int64_t row = 0;
  for (const RowRange& range : round(r)) {
    const int64_t first = range.rank * my_labels_.elements();
    round_labels_.rows(row, row + range.size())
        .copy_from(all_labels_.rows(first + range.begin, first + range.end), stream);
    row += range.size();
  }
  return round_labels_;
}

void Boundary::gather(int r, const Tensor& mine, const Stream& stream) {
  Slot& s = slot(r);
  if (!moves_rows()) {
    s.batch = mine;
    s.gathered = {};
    return;
  }
  if (by_columns()) return exchange_->start_forward(mine, stream);
  const Profiler::Scope scope(profiler_, name_, Phase::kTransfer);
  settle(s, stream);  // the padded buffers serve both ways
  const Slice rows = my_rows(r);
  if (strategy_ == Strategy::kOwtB) {
    const int root = round(r).front().rank;
    Tensor batch = rows_view(s.batch, rows_of(round(r)));
    s.gathered = comm_.broadcast(comm_.rank() == root ? mine : Tensor(), batch, root, stream.record());
  } else if (even(r)) {
    Tensor batch = rows_view(s.batch, rows_of(round(r)));
    s.gathered = comm_.all_gather(mine.rows(rows.begin, rows.end), batch, stream.record());
  } else {
    Tensor part = rows_view(s.part, longest(r)), blocks = rows_view(s.blocks, longest(r) * plan_.model_ranks);
    rows_view(part, rows.size()).copy_from(mine.rows(rows.begin, rows.end), stream);
    s.gathered = comm_.all_gather(part, blocks, stream.record());
  }
}

const Tensor& Boundary::gathered(int r, const Stream& stream) {
  Slot& s = slot(r);
  if (!moves_rows()) {
    stream.wait(s.gathered);
    return s.batch;
  }
  if (by_columns()) return exchange_->finish_forward(stream);
  const Profiler::Scope scope(profiler_, name_, Phase::kTransfer);
  stream.wait(s.gathered);
  if (!even(r))
    for_each_block(round(r), longest(r), [&](int64_t padded, int64_t row, int64_t count) {
      s.batch.rows(row, row + count).copy_from(s.blocks.rows(padded, padded + count), stream);
    });
  return s.batch;
}

Tensor* Boundary::dense_gradient(int r, const Stream& stream) {
  if (!plan_.front_learns) return nullptr;
  if (!moves_rows()) return &local_gradient_;
  if (by_columns()) return &exchange_->gradient();
  const Profiler::Scope scope(profiler_, gradient_name_, Phase::kTransfer);
  settle(slot(r), stream);
  return &slot(r).gradient;
}

void Boundary::scatter(int r, const Stream& stream) {
  if (!plan_.front_learns || !travels()) return;
  if (by_columns()) return exchange_->start_backward(stream);
  const Profiler::Scope scope(profiler_, gradient_name_, Phase::kTransfer);
  Slot& s = slot(r);
  const Slice rows = my_rows(r);
  if (strategy_ == Strategy::kModelParallel) {
    s.scattered = comm_.all_reduce(local_gradient_, stream.record());
  } else if (strategy_ == Strategy::kOwtB) {
    const int root = round(r).front().rank;
    const Tensor gradient = rows_view(s.gradient, rows_of(round(r)));
    Tensor home = comm_.rank() == root ? local_gradient_ : Tensor();
    s.scattered = comm_.reduce(gradient, home, root, stream.record());
  } else if (even(r)) {
    const Tensor gradient = rows_view(s.gradient, rows_of(round(r)));
    Tensor home = local_gradient_.rows(rows.begin, rows.end);
    s.scattered = comm_.reduce_scatter(gradient, home, stream.record());
  } else {
    for_each_block(round(r), longest(r), [&](int64_t padded, int64_t row, int64_t count) {
      s.blocks.rows(padded, padded + count).copy_from(s.gradient.rows(row, row + count), stream);
    });
    Tensor part = rows_view(s.part, longest(r));
    s.scattered = comm_.reduce_scatter(rows_view(s.blocks, longest(r) * plan_.model_ranks), part, stream.record());
    s.home = rows;
    s.unpack_gradient = true;
  }
}

void Boundary::settle(Slot& s, const Stream& stream) {
  stream.wait(s.scattered);
  s.scattered = {};
  if (!s.unpack_gradient) return;
  local_gradient_.rows(s.home.begin, s.home.end).copy_from(s.part.rows(0, s.home.size()), stream);
  s.unpack_gradient = false;
}

const Tensor& Boundary::finish(const Stream& stream) {
  if (!travels()) return local_gradient_;
  if (by_columns()) {
    if (plan_.front_learns) exchange_->finish_backward(local_gradient_, stream);
    return local_gradient_;
  }
  const Profiler::Scope scope(profiler_, gradient_name_, Phase::kTransfer);
  for (Slot& s : slots_) settle(s, stream);
  return local_gradient_;
}

}  // namespace owt
