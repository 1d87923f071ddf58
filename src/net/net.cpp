#include "src/net/net.h"

#include <algorithm>

#include "layers/prepared_op.h"

namespace owt {

int64_t aligned_bytes(int64_t bytes) {
  constexpr int64_t kAlignment = 64;  // kernels want 16
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Net::Net(std::vector<std::unique_ptr<Layer>> layers, const Shape& in) : layers_(std::move(layers)), in_(in) {}

Shape Net::out() const {
  Shape batch = in_.batch_of(1);
  for (const auto& layer : layers_) batch = layer->out_shape(batch);
  return batch.row();
}

std::vector<Param*> Net::params() const {
  std::vector<Param*> all;
  for (const auto& layer : layers_)
    for (Param* param : layer->params()) all.push_back(param);
  return all;
}

Tape::Tape(Net& net, int64_t rows, const Compute& on, Profiler* profiler, Scratch scratch)
    : net_(net),
      rows_(rows),
      device_(on.device),
      profiler_(profiler),
      type_(activation_type(on.precision)),
      scratch_(scratch) {
  y_.resize(static_cast<size_t>(net.size()));
  Shape in = net.in().batch_of(rows);
  for (int64_t i = 0; i < net.size();) {
    // Without rows nothing runs, and layers need not be bound.
    Layer::Run bound = rows > 0 ? net.layer(i).bind_run(net.layers_from(i + 1), in, on) : Layer::Run{nullptr, 1};
    Run run{std::move(bound.op),
            i,
            i + bound.layers,
            net.layer(i).name(),
            bound.layers == 1 && net.layer(i).in_place(),
            false};
    Shape out = in;
    for (int64_t l = run.begin; l < run.end; ++l) {
      out = net.layer(l).out_shape(out);
      run.learns = run.learns || !net.layer(l).params().empty();
      run_of_layer_.push_back(runs_.size());
      if (l > run.begin) run.name += "+" + net.layer(l).name();
    }
    const size_t last = static_cast<size_t>(run.end - 1);
    y_[last] = run.in_place && i > 0 ? y_[last - 1] : Tensor(out, type_, on.device);
    largest_ = std::max({largest_, i > 0 ? in.elements() : 0, out.elements()});
    in = out;
    i = run.end;
    runs_.push_back(std::move(run));
  }
  if (scratch == Scratch::kLent) return;
  for (Tensor& gradient : gradients_) gradient = Tensor({largest_}, type_, device_);
  ops_scratch_ = Tensor({ops_scratch_bytes()}, DType::kU8, device_);
  lend_to_ops(ops_scratch_);
}

int64_t Tape::ops_scratch_bytes() const {
  int64_t most = 0;
  for (const Run& run : runs_)
    if (run.op) most = std::max(most, run.op->scratch_bytes());
  return most;
}

void Tape::lend_to_ops(const Tensor& memory) {
  for (Run& run : runs_)
    if (run.op) run.op->use_scratch(memory);
}

int64_t Tape::scratch_bytes() const { return 2 * aligned_bytes(largest_ * size_of(type_)) + ops_scratch_bytes(); }

void Tape::use_scratch(const Tensor& memory) {
  const int64_t each = aligned_bytes(largest_ * size_of(type_));
  for (int64_t i = 0; i < 2; ++i) gradients_[i] = memory.part(i * each, {largest_ * size_of(type_)}).viewed_as(type_);
  lend_to_ops(memory.part(2 * each, {memory.elements() - 2 * each}));
}

void Tape::prepare_backward(bool wants_dx) {
  for (size_t r = 0; r < runs_.size(); ++r)
    if (auto* const op = dynamic_cast<PreparedOp*>(runs_[r].op.get())) op->prepare_backward(r > 0 || wants_dx);
}

std::optional<ImageLayout> Tape::wanted_images() const {
  return runs_.empty() || !runs_[0].op ? std::nullopt : runs_[0].op->wanted_images();
}

const Tensor& Tape::input_of(const Run& run) const {
  return run.begin > 0 ? y_[static_cast<size_t>(run.begin - 1)] : x_;
}

void Tape::begin_forward(const Tensor& x) { x_ = x; }

void Tape::forward(const Pass& pass, int64_t layer) {
  Run& run = run_of(layer);
  if (rows_ == 0 || layer != run.begin) return;
  const Profiler::Scope scope(profiler_, run.name, Phase::kForward);
  run.op->forward(pass, input_of(run), y_[static_cast<size_t>(run.end - 1)]);
}

const Tensor& Tape::output() const { return y_.empty() ? x_ : y_.back(); }

const Tensor& Tape::forward(const Pass& pass, const Tensor& x) {
  begin_forward(x);
  for (int64_t i = 0; i < net_.size(); ++i) forward(pass, i);
  return output();
}

void Tape::begin_backward(const Tensor& x, const Tensor& dy, Tensor* dx) {
  x_ = x;
  gradient_ = dy;
  dx_ = dx ? *dx : Tensor();
  next_gradient_ = 0;
}

// The gradient goes from one buffer to the other; an in-place layer leaves it where it is, unless that is the caller's.
Tensor Tape::place_below(const Run& run) {
  if (run.begin == 0) return dx_;
  if (run.in_place && run.end < net_.size()) return gradient_;
  const Tensor below = gradients_[next_gradient_].part(0, input_of(run).shape());
  next_gradient_ = 1 - next_gradient_;
  return below;
}

void Tape::backward_data(const Pass& pass, int64_t layer) {
  Run& run = run_of(layer);
  if (rows_ == 0 || layer != run.end - 1) return;
  if (run.end < net_.size()) gradient_ = below_;
  below_ = place_below(run);
  const Profiler::Scope scope(profiler_, run.name, Phase::kBackward);
  run.op->backward_data(pass, input_of(run), y_[static_cast<size_t>(layer)], gradient_,
                        below_.defined() ? &below_ : nullptr);
}

void Tape::backward_weights(const Pass& pass, int64_t layer) {
  Run& run = run_of(layer);
  if (rows_ == 0 || layer != run.begin || !run.learns) return;
  const Profiler::Scope scope(profiler_, run.name, Phase::kBackward);
  run.op->backward_weights(pass, input_of(run), gradient_);
}

void Tape::backward(const Pass& pass, const Tensor& x, const Tensor& dy, Tensor* dx) {
  if (net_.size() == 0 && dx) dx->copy_from(dy, *pass.stream);
  begin_backward(x, dy, dx);
  for (int64_t i = net_.size(); i-- > 0;) {
    backward_data(pass, i);
    backward_weights(pass, i);
  }
}

std::vector<Watched> Tape::watched(int64_t first_layer) const {
  std::vector<Watched> all;
  for (const Run& run : runs_)
    if (rows_ > 0 && (!run.in_place || run.begin == 0))  // else its values are those of the layer before
      all.push_back({y_[static_cast<size_t>(run.end - 1)], static_cast<int32_t>(first_layer + run.begin)});
  return all;
}

int64_t Tape::bytes() const {
  int64_t total = scratch_ == Scratch::kLent ? 0 : gradients_[0].bytes() + gradients_[1].bytes() + ops_scratch_.bytes();
  for (const Run& run : runs_)
    if (run.op) total += run.op->inner_bytes();
  for (const Run& run : runs_)
    if (run.begin == 0 || !run.in_place) total += y_[static_cast<size_t>(run.end - 1)].bytes();
  return total;
}

}  // namespace owt
