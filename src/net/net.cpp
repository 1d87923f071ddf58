#include "src/net/net.h"

#include <algorithm>
#include <map>

#include "layers/base/in_place.h"
#include "layers/base/masking_op.h"
#include "layers/base/prepared_op.h"
#include "layers/base/summing_op.h"
#include "src/core/poison.h"
#include "src/system/check.h"

namespace owt {

int64_t aligned_bytes(int64_t bytes) {
  constexpr int64_t kAlignment = 64;  // kernels need 16
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Net::Net(std::vector<std::unique_ptr<Layer>> layers, const Shape& in)
    : layers_(std::move(layers)), in_place_(work_in_place(layers_)), in_(in) {}

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

namespace {

// Scratch memory of at least `bytes` bytes, in which the ops of all tapes of the calling host thread run one after the
// other. When a later tape needs more, earlier ones keep their memory, because recorded work (src/core/graph.h)
// contains its address. It is freed with the last tape that uses it.
std::shared_ptr<const Tensor> scratch_of_thread(Device device, int64_t bytes) {
  thread_local std::map<Device, std::weak_ptr<const Tensor>> latest;
  std::shared_ptr<const Tensor> memory = latest[device].lock();
  if (!memory || memory->bytes() < bytes)
    latest[device] = memory = std::make_shared<const Tensor>(Shape{bytes}, DType::kU8, device);
  return memory;
}

}  // namespace

Tape::Tape(Net& net, int64_t rows, const Compute& on, Profiler* profiler, Scratch scratch, bool wants_dx,
           const Tape* lender)
    : net_(net),
      rows_(rows),
      may_want_dx_(wants_dx),
      device_(on.device),
      profiler_(profiler),
      type_(activation_type(on.precision)),
      scratch_(scratch) {
  Shape in = net.in().batch_of(rows);
  for (int64_t i = 0; i < net.size();) {
    const bool after_learning = !runs_.empty() && (runs_.back().learns || runs_.back().wants_dx);
    const Layer::BindOptions options{.wants_dx = after_learning || wants_dx,
                                     .lender = lender ? lender->op_at(i) : nullptr};
    // Without rows or columns nothing runs, and layers need not be bound.
    const bool nothing = net.layer(i).out_shape(in).elements() == 0;
    Layer::BoundOp bound =
        nothing ? Layer::BoundOp{nullptr, 1} : net.layer(i).bind_at(options, net.layers_from(i + 1), in, on);
    Run run{std::move(bound.op), i, i + bound.layers, net.layer(i).name(), bound.layers == 1 && net.in_place(i), false,
            after_learning,      in};
    Shape& out = run.out;
    for (int64_t l = run.begin; l < run.end; ++l) {
      out = net.layer(l).out_shape(out);
      run.learns = run.learns || net.layer(l).learns();
      run_of_layer_.push_back(runs_.size());
      if (l > run.begin) run.name += "+" + net.layer(l).name();
    }
    // Plans do not know which layers run in one op, so an output of several layers counts as if they did not.
    const bool only_output = scratch_ == Scratch::kOwn && run.end == net.size() && run.end - run.begin == 1;
    largest_ = std::max({largest_, i > 0 ? in.elements() : 0, only_output ? 0 : out.elements()});
    in = out;
    i = run.end;
    runs_.push_back(std::move(run));
  }
  if (scratch_ != Scratch::kOwnForForward) hand_masks_over();
  allocate(lender);
}

void Tape::hand_masks_over() {
  for (size_t r = 1; r < runs_.size(); ++r) {
    auto* const before = dynamic_cast<MaskingOp*>(runs_[r - 1].op.get());
    auto* const after = dynamic_cast<MaskingOp*>(runs_[r].op.get());
    if (!before || !after || !may_run_backward(runs_[r - 1])) continue;
    const std::optional<MaskingOp::Mask> mask = before->mask();
    if (mask && after->mask_dx(*mask)) before->expect_masked_dy();
  }
}

Tensor Tape::in_memory_of(const Tensor* larger, const Shape& shape) const {
  return larger && larger->defined() ? larger->part(0, shape) : Tensor(shape, type_, device_);
}

void Tape::allocate(const Tape* lender) {
  OWT_CHECK(!lender || (lender->rows_ >= rows_ && lender->scratch_ == scratch_));
  y_.resize(static_cast<size_t>(net_.size()));
  const std::vector<bool> kept = kept_runs();
  for (size_t r = 0; r < runs_.size(); ++r) {
    const auto last = static_cast<size_t>(runs_[r].end - 1);
    if (kept[r])
      y_[last] = runs_[r].in_place && last > 0 ? y_[last - 1]
                                               : in_memory_of(lender ? &lender->y_[last] : nullptr, runs_[r].out);
  }
  if (!y_.empty()) out_ = y_.back();
  keep_factors(lender);
  if (scratch_ == Scratch::kOfPass) return;
  for (size_t i = 0; i < std::size(gradients_); ++i)
    gradients_[i] = in_memory_of(lender ? &lender->gradients_[i] : nullptr, {largest_});
  ops_scratch_ = scratch_of_thread(device_, own_ops_scratch_bytes());
}

Tape::Run& Tape::owner_of(size_t run) {
  while (run > 0 && runs_[run].in_place) --run;
  return runs_[run];
}

// The last dy and the first x belong to the caller.
void Tape::keep_factors(const Tape* lender) {
  for (size_t r = 0; r < runs_.size() && scratch_ == Scratch::kOwn; ++r) {
    Run& run = runs_[r];
    if (!run.learns || !run.op || !run.op->leaves_factors()) continue;
    if (r > 0) owner_of(r - 1).y_is_factor = true;
    if (r + 1 < runs_.size()) run.dy = in_memory_of(lender ? &lender->runs_[r].dy : nullptr, run.out);
  }
}

// Backward of a run reads its input and its output. The last output belongs to the caller.
std::vector<bool> Tape::kept_runs() const {
  std::vector<bool> kept(runs_.size());
  for (size_t r = runs_.size(); r-- > 0 && scratch_ != Scratch::kOwnForForward;) {
    const bool last = r + 1 == runs_.size();
    kept[r] = last || may_run_backward(runs_[r + 1]) || (runs_[r + 1].in_place && kept[r + 1]);
  }
  return kept;
}

const Op* Tape::op_at(int64_t layer) const {
  const Run& run = runs_[run_of_layer_[static_cast<size_t>(layer)]];
  return run.begin == layer ? run.op.get() : nullptr;
}

int64_t Tape::own_ops_scratch_bytes() const {
  if (scratch_ == Scratch::kOfPass) return 0;
  const int64_t forward = ops_scratch_bytes(Phase::kForward);
  return scratch_ == Scratch::kOwn ? std::max(forward, ops_scratch_bytes(Phase::kBackward)) : forward;
}

int64_t Tape::ops_scratch_bytes(Phase phase) const {
  int64_t most = 0;
  for (const Run& run : runs_)
    if (run.op) most = std::max(most, run.op->scratch_bytes(phase));
  return most;
}

int64_t Tape::gradients_bytes() const { return 2 * aligned_bytes(largest_ * size_of(type_)); }

int64_t Tape::scratch_bytes(Phase phase) const {
  const bool forgets = device_ == Device::kCpu || (!y_.empty() && !y_[static_cast<size_t>(runs_[0].end - 1)].defined());
  const bool gradients = phase == Phase::kBackward || forgets;
  return aligned_bytes(ops_scratch_bytes(phase)) + (gradients ? gradients_bytes() : 0);
}

void Tape::take_gradients(const Pass& pass, Phase phase) {
  if (scratch_ != Scratch::kOfPass) return;
  int64_t begin = aligned_bytes(ops_scratch_bytes(phase));
  for (Tensor& gradient : gradients_) {
    gradient = pass.scratch_at(begin, {largest_}, type_);
    begin += aligned_bytes(gradient.bytes());
  }
}

Pass Tape::with_scratch(Pass pass) const {
  if (ops_scratch_) pass.scratch = *ops_scratch_;
  return pass;
}

void Tape::prepare_backward(bool wants_dx) {
  for (const Run& run : runs_) {
    auto* const op = dynamic_cast<PreparedOp*>(run.op.get());
    const bool wanted = run.wants_dx || wants_dx;
    if (op && (run.learns || wanted)) op->prepare_backward(wanted);
  }
}

std::optional<ImageLayout> Tape::wanted_images() const {
  return runs_.empty() || !runs_[0].op ? std::nullopt : runs_[0].op->wanted_images();
}

const Tensor& Tape::input_of(const Run& run) const {
  return run.begin > 0 ? y_[static_cast<size_t>(run.begin - 1)] : x_;
}

void Tape::begin_forward(const Tensor& x) {
  x_ = x;
  next_gradient_ = 0;
}

bool Tape::forgets(const Pass& pass) const {
  return forgets_in_evaluation_ && pass.mode == Mode::kEval && device_ == Device::kCpu;
}

// The gradients have room for an output that shares the memory of the activation before it, but not for others.
bool Tape::keeps(const Pass& pass, const Run& run) const {
  if (!y_[static_cast<size_t>(run.end - 1)].defined()) return false;
  const bool needs_own = scratch_ == Scratch::kOwn && run.end == net_.size() && (!run.in_place || run.begin == 0);
  return !forgets(pass) || needs_own;
}

Tensor Tape::place_above(const Pass& pass, const Run& run) {
  if (keeps(pass, run)) return y_[static_cast<size_t>(run.end - 1)];
  if (run.in_place && run.begin > 0) return out_;
  if (run.begin == 0) take_gradients(pass, Phase::kForward);
  const Tensor above = gradients_[next_gradient_].part(0, run.out);
  next_gradient_ = 1 - next_gradient_;
  return above;
}

void Tape::forward(const Pass& pass, int64_t layer) {
  Run& run = run_of(layer);
  if (rows_ == 0 || layer != run.begin) return;
  const Profiler::Scope scope(profiler_, run.name, Phase::kForward);
  const Tensor x = run.begin > 0 ? out_ : x_;
  out_ = place_above(pass, run);
  if (!run.op) return;
  if (!run.in_place) poison(out_, *pass.stream);
  run.op->forward(with_scratch(pass), x, out_);
  poison_after_forward(pass, run, x);
}

void Tape::poison_scratch(const Pass& pass, const Run& run, Phase phase) const {
  if (const int64_t bytes = run.op->scratch_bytes(phase); bytes > 0 && poisons())
    poison(with_scratch(pass).scratch.part(0, {bytes}), *pass.stream);
}

// Also poisons the previous output if it is not kept.
void Tape::poison_after_forward(const Pass& pass, const Run& run, const Tensor& x) const {
  poison_scratch(pass, run, Phase::kForward);
  if (run.begin > 0 && !run.in_place && !keeps(pass, runs_[run_of_layer_[static_cast<size_t>(run.begin - 1)]]))
    poison(x, *pass.stream);
}

// Poisons the run's gradient, unless it belongs to the caller or to the update, and the run's output, which earlier
// runs do not read. In-place runs use the memory of the run before them. The last output is valid until the next
// forward, also if in-place runs wrote it.
void Tape::poison_after_backward(const Pass& pass, const Run& run) const {
  poison_scratch(pass, run, Phase::kBackward);
  if (run.in_place || run.end == net_.size()) return;
  if (!run.dy.defined()) poison(gradient_, *pass.stream);
  const Tensor& y = y_[static_cast<size_t>(run.end - 1)];
  const bool last_output = y.defined() && y_.back().defined() && y.raw() == y_.back().raw();
  if (!run.y_is_factor && !last_output) poison(y, *pass.stream);
}

const Tensor& Tape::output() const { return y_.empty() ? x_ : out_; }

std::optional<int32_t> Tape::find_bad_layer(const Pass& pass) {
  if (rows_ == 0 || !x_.defined()) return {};
  begin_forward(x_);
  int64_t named = 0;
  for (const Run& run : runs_) {
    if (keeps(pass, run) && !forgets(pass)) break;
    if (!run.in_place) named = run.begin;
    forward(pass, run.begin);
    pass.stream->synchronize();
    if (!all_finite(out_)) return static_cast<int32_t>(named);
  }
  return {};
}

const Tensor& Tape::forward(const Pass& pass, const Tensor& x) {
  begin_forward(x);
  for (int64_t i = 0; i < net_.size(); ++i) forward(pass, i);
  return output();
}

bool Tape::sum_in_last_op() {
  if (runs_.empty() || runs_.back().end - runs_.back().begin > 1) return false;
  if (!dynamic_cast<SummingOp*>(runs_.back().op.get())) return false;
  y_.back() = out_ = Tensor();
  return true;
}

void Tape::forward_sum(const Pass& pass, const Tensor& x, const Tensor& b, bool relu, Tensor& y) {
  begin_forward(x);
  for (int64_t i = 0; i + 1 < net_.size(); ++i) forward(pass, i);
  const Run& last = runs_.back();
  const Profiler::Scope scope(profiler_, last.name, Phase::kForward);
  const Tensor in = last.begin > 0 ? out_ : x_;
  dynamic_cast<SummingOp&>(*last.op).forward_sum(with_scratch(pass), in, b, relu, y);
  poison_after_forward(pass, last, in);
}

void Tape::begin_backward(const Tensor& x, const Tensor& dy, Tensor* dx) {
  OWT_CHECK(!dx || may_want_dx_);
  x_ = x;
  gradient_ = dy;
  dx_ = dx ? *dx : Tensor();
  next_gradient_ = 0;
}

// The gradients alternate between two buffers, except gradients for the update. An in-place layer overwrites its
// gradient, unless that belongs to the caller.
Tensor Tape::place_below(const Run& run) {
  if (run.begin == 0 || !wants_dx(run)) return dx_;
  if (run.in_place && run.end < net_.size()) return gradient_;
  if (const Run& owner = owner_of(run_of_layer_[static_cast<size_t>(run.begin - 1)]); owner.dy.defined())
    return owner.dy;
  const Tensor below = gradients_[next_gradient_].part(0, input_of(run).shape());
  next_gradient_ = 1 - next_gradient_;
  return below;
}

void Tape::backward_data(const Pass& pass, int64_t layer) {
  Run& run = run_of(layer);
  if (rows_ == 0 || layer != run.end - 1 || !(run.learns || wants_dx(run))) return;
  if (run.end < net_.size()) gradient_ = below_;
  below_ = place_below(run);
  const Profiler::Scope scope(profiler_, run.name, Phase::kBackward);
  if (!run.op && below_.defined()) below_.zero(*pass.stream);
  if (!run.op) return;
  run.op->backward_data(with_scratch(pass), input_of(run), y_[static_cast<size_t>(layer)], gradient_,
                        below_.defined() ? &below_ : nullptr);
}

void Tape::backward_weights(const Pass& pass, int64_t layer) {
  Run& run = run_of(layer);
  if (!run.op || layer != run.begin) return;
  if (run.learns) {
    const Profiler::Scope scope(profiler_, run.name, Phase::kBackward);
    run.op->backward_weights(with_scratch(pass), input_of(run), gradient_);
  }
  if (run.learns || wants_dx(run)) poison_after_backward(pass, run);
}

void Tape::backward(const Pass& pass, const Tensor& x, const Tensor& dy, Tensor* dx) {
  if (net_.size() == 0 && dx) dx->copy_from(dy, *pass.stream);
  begin_backward(x, dy, dx);
  take_gradients(pass, Phase::kBackward);
  for (int64_t i = net_.size(); i-- > 0;) {
    backward_data(pass, i);
    backward_weights(pass, i);
  }
}

std::vector<Watched> Tape::watched(int64_t first_layer) const {
  std::vector<Watched> all;
  for (const Run& run : runs_) {
    const Tensor& y = y_[static_cast<size_t>(run.end - 1)];
    if (rows_ > 0 && y.defined() && (!run.in_place || run.begin == 0))  // otherwise its values are the previous layer's
      all.push_back({y, static_cast<int32_t>(first_layer + run.begin)});
  }
  return all;
}

int64_t Tape::bytes() const {
  int64_t total = own_ops_scratch_bytes();
  if (scratch_ != Scratch::kOfPass) total += gradients_[0].bytes() + gradients_[1].bytes();
  for (const Run& run : runs_) total += (run.op ? run.op->inner_bytes() : 0) + (run.dy.defined() ? run.dy.bytes() : 0);
  for (const Run& run : runs_)
    if (y_[static_cast<size_t>(run.end - 1)].defined() && (run.begin == 0 || !run.in_place))
      total += y_[static_cast<size_t>(run.end - 1)].bytes();
  return total;
}

}  // namespace owt
