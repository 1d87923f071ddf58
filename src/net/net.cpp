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
    Run run{std::move(bound.op), i, i + bound.layers, net.layer(i).name(),
            bound.layers == 1 && net.layer(i).in_place()};
    Shape out = in;
    for (int64_t l = run.begin; l < run.end; ++l) {
      out = net.layer(l).out_shape(out);
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

const Tensor& Tape::forward(const Pass& pass, const Tensor& x) {
  const Tensor* in = &x;
  for (Run& run : runs_) {
    Tensor& y = y_[static_cast<size_t>(run.end - 1)];
    if (rows_ > 0) {
      const Profiler::Scope scope(profiler_, run.name, Phase::kForward);
      run.op->forward(pass, *in, y);
    }
    in = &y;
  }
  return *in;
}

void Tape::backward(const Pass& pass, const Tensor& x, const Tensor& dy, Tensor* dx, const BackwardHooks& hooks) {
  bool dx_done = !hooks.dx_done;
  Pass first_pass = pass;
  const auto tell_dx_done = [&] {
    if (!dx_done) hooks.dx_done();
    dx_done = true;
  };
  first_pass.dx_done = tell_dx_done;
  if (net_.size() == 0 && dx) dx->copy_from(dy, *pass.stream);
  Tensor gradient = dy;  // at the output of the run being run
  int next = 0;          // the buffer that does not hold it
  bool ours = false;     // it lies in a buffer, so an in-place layer may overwrite it
  for (size_t r = runs_.size(); r-- > 0;) {
    Run& run = runs_[r];
    const Tensor& in = r > 0 ? y_[static_cast<size_t>(run.begin - 1)] : x;
    if (rows_ > 0) {
      Tensor below;
      if (r > 0 && ours && run.in_place) {
        below = gradient;
      } else if (r > 0) {
        below = gradients_[next].part(0, in.shape());
        next = 1 - next;
        ours = true;
      }
      const Profiler::Scope scope(profiler_, run.name, Phase::kBackward);
      run.op->backward(r > 0 ? pass : first_pass, in, y_[static_cast<size_t>(run.end - 1)], gradient,
                       r > 0 ? &below : dx);
      gradient = below;
    }
    if (r == 0) tell_dx_done();
    if (hooks.layer_done)
      for (int64_t i = run.end - 1; i >= run.begin; --i) hooks.layer_done(i);
  }
  tell_dx_done();
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
