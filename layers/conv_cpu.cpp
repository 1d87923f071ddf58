#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>

#include "layers/conv.h"
#include "layers/conv_algorithm.h"
#include "layers/onednn_conv.h"
#include "layers/prepared_op.h"
#include "layers/widened.h"
#include "src/core/check.h"
#include "src/core/log.h"
#include "src/core/threads.h"

namespace owt {
namespace {

using dnnl::memory;
using onednn::ConvPass;
using onednn::ConvProblem;
using onednn::PassKind;

// Without the rows of the batch, so that a last, smaller batch uses the same algorithm.
std::string key_of(const ConvGeometry& g, PassKind kind) {
  const std::string geometry =
      format("{}x{}x{} -> {}x{}x{}, kernel {}x{}, stride {}x{}, pad {} {} {} {}, groups {}, {}", g.in_h, g.in_w, g.in_c,
             g.out_h, g.out_w, g.out_c, g.kernel_h, g.kernel_w, g.stride_h, g.stride_w, g.top, g.left, g.bottom,
             g.right, g.groups, name_of(kind));
  return ConvChoices::key(geometry, team_size());
}

Tensor pattern(const memory::desc& layout) {
  Tensor tensor({static_cast<int64_t>(layout.get_size() / sizeof(float))});
  uint32_t state = 1;
  float* values = tensor.data();
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    state = state * 1664525u + 1013904223u;
    values[i] = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
  }
  return tensor;
}

// Runs one pass as a training step does, on tensors of its own.
class Trial {
 public:
  Trial(const ConvProblem& problem, PassKind kind)
      : kind_(kind), x_(pattern(problem.src)), w_(pattern(problem.weights)), y_(pattern(problem.dst)) {
    if (problem.bias.get_size() > 0) b_ = pattern(problem.bias);
  }

  // A step's worth of one pass; the first one is for the caches.
  double milliseconds(const ConvPass& pass) {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    run(pass);
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  }

  const Tensor& result() const { return kind_ == PassKind::kForward ? y_ : kind_ == PassKind::kBackwardData ? x_ : w_; }

 private:
  void run(const ConvPass& pass) {
    float* bias = b_.defined() ? b_.data() : nullptr;
    if (kind_ == PassKind::kBackwardWeights) {
      const void* src = pass.enter_src(stream_, x_.raw());
      pass.backward_weights(stream_, src, pass.enter_dst(stream_, y_.raw()), 0, w_.raw(), 0, bias);
      return;
    }
    if (!packed_.defined() || packed_.bytes() != static_cast<int64_t>(pass.packed_bytes()))
      packed_ = Tensor({static_cast<int64_t>(pass.packed_bytes())}, DType::kU8);
    pass.pack(stream_, w_.raw(), packed_.raw());
    if (kind_ == PassKind::kForward)
      pass.forward(stream_, pass.enter_src(stream_, x_.raw()), packed_.raw(), bias, y_.raw());
    else
      pass.backward_data(stream_, pass.enter_dst(stream_, y_.raw()), packed_.raw(), x_.raw());
  }

  PassKind kind_;
  Tensor x_, w_, y_, b_, packed_;
  dnnl::stream stream_{onednn::engine()};
};

double relative_error(const Tensor& found, const Tensor& exact) {
  double difference = 0, norm = 0;
  const float *f = found.data(), *e = exact.data();
  for (int64_t i = 0; i < exact.elements(); ++i) {
    difference += (static_cast<double>(f[i]) - e[i]) * (static_cast<double>(f[i]) - e[i]);
    norm += static_cast<double>(e[i]) * e[i];
  }
  return norm == 0 ? 0 : std::sqrt(difference / norm);
}

// Enough rows that transforming the weights weighs as little as in a step, few enough to be done in a second.
int64_t rows_to_measure(const ConvGeometry& g, int64_t rows) {
  const double enough = 8e9 * team_size() / g.flops(1);
  return std::min(rows, std::max<int64_t>(team_size(), static_cast<int64_t>(enough)));
}

ConvChoices::Measured measure(const ConvGeometry& g, int64_t rows, bool bias, PassKind kind) {
  const ConvProblem problem(g, rows_to_measure(g, rows), bias);
  const auto direct = ConvPass::make(problem, kind, false), winograd = ConvPass::make(problem, kind, true);
  ConvChoices::Measured measured;
  if (!direct || !winograd) return measured;
  Trial by_direct(problem, kind), by_winograd(problem, kind);
  by_direct.milliseconds(*direct);
  by_winograd.milliseconds(*winograd);
  measured.error = relative_error(by_winograd.result(), by_direct.result());
  // In turn, so that a disturbance hits both; the least time is the one without.
  measured.direct_ms = measured.winograd_ms = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) {
    measured.direct_ms = std::min(measured.direct_ms, by_direct.milliseconds(*direct));
    measured.winograd_ms = std::min(measured.winograd_ms, by_winograd.milliseconds(*winograd));
  }
  return measured;
}

class ConvOp : public PreparedOp {
 public:
  ConvOp(const ConvGeometry& geometry, DType images, int64_t rows, Param& weight, Param* bias)
      : geometry_(geometry), images_(images), rows_(rows), weight_(weight), bias_(bias) {
    pass(PassKind::kForward);
  }

  void forward(const Pass&, const Tensor& x, Tensor& y) override {
    const ConvPass& forward = pass(PassKind::kForward);
    const void* packed = packed_weights(PassKind::kForward);
    forward.forward(stream_, forward.enter_src(stream_, x.raw()), packed, bias_ ? bias_->value.raw() : nullptr,
                    y.raw());
  }

  void backward_data(const Pass&, const Tensor&, const Tensor&, const Tensor& dy, Tensor* dx) override {
    prepare_backward(dx != nullptr);  // before the workspace holds anything: measuring uses it, too
    entered_dy_ = nullptr;
    if (!dx) return;
    const ConvPass& by_data = pass(PassKind::kBackwardData);
    const void* dst = by_data.enter_dst(stream_, dy.raw());
    by_data.backward_data(stream_, dst, packed_weights(PassKind::kBackwardData), dx->raw());
    if (by_data.dst_layout() == pass(PassKind::kBackwardWeights).dst_layout()) entered_dy_ = dst;
  }

  void backward_weights(const Pass&, const Tensor& x, const Tensor& dy) override {
    const ConvPass& by_weights = pass(PassKind::kBackwardWeights);
    const void* dst = entered_dy_ ? entered_dy_ : by_weights.enter_dst(stream_, dy.raw());
    by_weights.backward_weights(stream_, by_weights.enter_src(stream_, x.raw()), dst, weight_.take_beta(),
                                weight_.grad.raw(), bias_ ? bias_->take_beta() : 0,
                                bias_ ? bias_->grad.data() : nullptr);
  }

  void prepare_backward(bool wants_dx) override {
    pass(PassKind::kBackwardWeights);
    if (wants_dx) pass(PassKind::kBackwardData);
  }

 private:
  struct Prepared {
    std::optional<ConvPass> pass;
    Tensor packed;
    std::optional<uint64_t> version;  // the one that was packed
  };

  Prepared& prepared(PassKind kind) { return passes_[static_cast<size_t>(kind)]; }

  // oneDNN divides the work of a primitive when it makes it, so it must run with the team it was made with.
  const ConvPass& pass(PassKind kind) {
    if (team_ != team_size()) {
      passes_ = {};
      team_ = team_size();
    }
    Prepared& here = prepared(kind);
    if (!here.pass) {
      here.pass = make_pass(kind);
      if (kind != PassKind::kBackwardWeights)
        here.packed = Tensor({static_cast<int64_t>(here.pass->packed_bytes())}, DType::kU8);
    }
    return *here.pass;
  }

  ConvPass make_pass(PassKind kind) const {
    const ConvProblem problem(geometry_, rows_, bias_ != nullptr, images_);
    ConvChoices& choices = ConvChoices::process();
    if (images_ == DType::kF32 && choices.mode() != ConvAlgorithm::kDirect) {  // Winograd is for f32
      std::optional<ConvPass> winograd = ConvPass::make(problem, kind, true);
      const auto race = [&] { return measure(geometry_, rows_, bias_ != nullptr, kind); };
      if (!winograd)
        choices.has_no_winograd(key_of(geometry_, kind));
      else if (choices.choose(key_of(geometry_, kind), race) == ConvAlgorithm::kWinograd)
        return std::move(*winograd);
    }
    std::optional<ConvPass> direct = ConvPass::make(problem, kind, false);
    OWT_CHECK(direct.has_value(), "no ", name_of(kind), " convolution for ", key_of(geometry_, kind));
    return std::move(*direct);
  }

  const void* packed_weights(PassKind kind) {
    Prepared& here = prepared(kind);
    if (here.version != weight_.version) {
      here.pass->pack(stream_, weight_.value.raw(), here.packed.raw());
      here.version = weight_.version;
    }
    return here.packed.raw();
  }

  ConvGeometry geometry_;
  DType images_;
  int64_t rows_;
  Param& weight_;
  Param* bias_;
  int team_ = 0;
  std::array<Prepared, 3> passes_;
  // dy as both passes read it, which they do where both are direct or both by Winograd; else null. It lies in the
  // workspace or is dy itself, and lasts until another op runs.
  const void* entered_dy_ = nullptr;
  dnnl::stream stream_{onednn::engine()};
};

}  // namespace

std::string why_no_winograd() {
  const ConvGeometry favourite{14, 14, 64, 14, 14, 64, 3, 3, 1, 1, 1, 1, 1, 1, 1};
  if (ConvPass::make(ConvProblem(favourite, 1, true), PassKind::kForward, true)) return "";
  return "oneDNN " + onednn::version() + " has no Winograd convolution for this processor";
}

std::unique_ptr<Op> bind_conv(Cpu cpu, const ConvGeometry& geometry, int64_t rows, Param& weight, Param* bias) {
  if (must_widen(cpu))
    return widened(weight, [&](Param& rounded) { return bind_conv(Cpu{}, geometry, rows, rounded, bias); });
  return std::make_unique<ConvOp>(geometry, activation_type(cpu.precision), rows, weight, bias);
}

}  // namespace owt
