#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>

#include "layers/conv.h"
#include "layers/conv_algorithm.h"
#include "layers/few_channel_conv.h"
#include "layers/onednn_conv.h"
#include "layers/prepared_op.h"
#include "layers/widened.h"
#include "layers/winograd.h"
#include "src/core/bf16.h"
#include "src/core/check.h"
#include "src/core/log.h"
#include "src/core/threads.h"

namespace owt {
namespace {

// Null where the algorithm cannot compute the pass.
std::unique_ptr<ConvPass> make_pass(const ConvShape& shape, PassKind kind, ConvAlgorithm algorithm) {
  if (algorithm == ConvAlgorithm::kDirect) return make_onednn_conv(shape, kind);
  if (algorithm == ConvAlgorithm::kFewChannels) return make_few_channel_conv(shape, kind);
  return make_winograd(shape, kind, algorithm == ConvAlgorithm::kWinogradBf16 ? DType::kBF16 : DType::kF32);
}

ConvChoices::Candidates candidates(const ConvShape& shape, PassKind kind) {
  ConvChoices::Candidates found{ConvAlgorithm::kDirect};
  for (const auto algorithm : {ConvAlgorithm::kFewChannels, ConvAlgorithm::kWinogradBf16, ConvAlgorithm::kWinograd})
    if (make_pass(shape, kind, algorithm)) found.push_back(algorithm);
  return found;
}

// Without the rows of the batch, so that a last, smaller batch uses the same algorithm.
std::string key_of(const ConvShape& shape, PassKind kind) {
  const ConvGeometry& g = shape.geometry;
  const std::string geometry =
      format("{}x{}x{} -> {}x{}x{}, kernel {}x{}, stride {}x{}, pad {} {} {} {}, groups {}, {}{}", g.in_h, g.in_w,
             g.in_c, g.out_h, g.out_w, g.out_c, g.kernel_h, g.kernel_w, g.stride_h, g.stride_w, g.top, g.left, g.bottom,
             g.right, g.groups, name_of(kind), shape.images == DType::kBF16 ? " in bf16" : "");
  return ConvChoices::key(geometry, team_size());
}

Tensor pattern(const Shape& shape, DType type) {
  Tensor tensor(shape, type);
  uint32_t state = 1;
  with_cpu_element(type, [&](auto element) {
    auto* values = tensor.data<decltype(element)>();
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      state = state * 1664525u + 1013904223u;
      values[i] = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
    }
  });
  return tensor;
}

Shape weight_shape(const ConvGeometry& g) { return {g.out_c, g.kernel_h, g.kernel_w, g.in_c / g.groups}; }

// Runs one pass as a training step does, on tensors of its own.
class Trial {
 public:
  Trial(const ConvShape& shape, PassKind kind, ConvAlgorithm algorithm)
      : kind_(kind),
        pass_(make_pass(shape, kind, algorithm)),
        x_(pattern({shape.rows, shape.geometry.in_h, shape.geometry.in_w, shape.geometry.in_c}, shape.images)),
        y_(pattern({shape.rows, shape.geometry.out_h, shape.geometry.out_w, shape.geometry.out_c}, shape.images)),
        w_(pattern(weight_shape(shape.geometry), DType::kF32)),
        packed_({static_cast<int64_t>(pass_->packed_bytes())}, DType::kU8) {
    if (shape.with_bias) b_ = pattern({shape.geometry.out_c}, DType::kF32);
  }

  // A step's worth of one pass; the first one is for the caches.
  double milliseconds() {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    run();
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  }

  const Tensor& result() const { return kind_ == PassKind::kForward ? y_ : kind_ == PassKind::kBackwardData ? x_ : w_; }

 private:
  void run() {
    float* bias = b_.defined() ? b_.data() : nullptr;
    if (kind_ == PassKind::kBackwardWeights) return pass_->backward_weights(x_.raw(), y_.raw(), 0, w_.data(), 0, bias);
    pass_->pack(w_.data(), packed_.raw());
    if (kind_ == PassKind::kForward)
      pass_->forward(x_.raw(), packed_.raw(), bias, y_.raw());
    else
      pass_->backward_data(y_.raw(), packed_.raw(), x_.raw());
  }

  PassKind kind_;
  std::unique_ptr<ConvPass> pass_;
  Tensor x_, y_, w_, packed_, b_;
};

double relative_error(const Tensor& found, const Tensor& exact) {
  double difference = 0, norm = 0;
  with_cpu_element(exact.dtype(), [&](auto element) {
    const auto *f = found.data<decltype(element)>(), *e = exact.data<decltype(element)>();
    for (int64_t i = 0; i < exact.elements(); ++i) {
      const double wanted = e[i], off = static_cast<double>(f[i]) - wanted;
      difference += off * off;
      norm += wanted * wanted;
    }
  });
  return norm == 0 ? 0 : std::sqrt(difference / norm);
}

// Enough rows that transforming the weights weighs as little as in a step, few enough to be done in a second.
int64_t rows_to_measure(const ConvShape& shape) {
  const double enough = 8e9 * team_size() / shape.geometry.flops(1);
  return std::min(shape.rows, std::max<int64_t>(team_size(), static_cast<int64_t>(enough)));
}

std::vector<ConvChoices::Measured> measure(ConvShape shape, PassKind kind, const ConvChoices::Candidates& candidates) {
  shape.rows = rows_to_measure(shape);
  std::vector<Trial> trials;
  std::vector<ConvChoices::Measured> measured;
  for (const ConvAlgorithm algorithm : candidates) {
    trials.emplace_back(shape, kind, algorithm).milliseconds();
    measured.push_back({algorithm, std::numeric_limits<double>::infinity(),
                        relative_error(trials.back().result(), trials.front().result())});
  }
  // In turn, so that a disturbance hits all; the least time is the one without.
  for (int i = 0; i < 3; ++i)
    for (size_t k = 0; k < trials.size(); ++k) measured[k].ms = std::min(measured[k].ms, trials[k].milliseconds());
  return measured;
}

// The error that an algorithm may have; by bf16's own rounding alone two results differ by 2.5e-3.
double largest_error(DType images) { return images == DType::kBF16 ? 1e-2 : 1e-4; }

class ConvOp : public PreparedOp {
 public:
  ConvOp(const ConvShape& shape, Param& weight, Param* bias) : shape_(shape), weight_(weight), bias_(bias) {
    prepared(PassKind::kForward);
  }

  void forward(const Pass&, const Tensor& x, Tensor& y) override {
    Prepared& forward = packed(PassKind::kForward);
    forward.pass->forward(x.raw(), forward.packed.raw(), bias_ ? bias_->value.data() : nullptr, y.raw());
  }

  void backward_data(const Pass&, const Tensor&, const Tensor&, const Tensor& dy, Tensor* dx) override {
    prepare_backward(dx != nullptr);
    if (!dx) return;
    Prepared& by_data = packed(PassKind::kBackwardData);
    by_data.pass->backward_data(dy.raw(), by_data.packed.raw(), dx->raw());
  }

  void backward_weights(const Pass&, const Tensor& x, const Tensor& dy) override {
    prepared(PassKind::kBackwardWeights)
        .pass->backward_weights(x.raw(), dy.raw(), weight_.take_beta(), weight_.grad.data(),
                                bias_ ? bias_->take_beta() : 0, bias_ ? bias_->grad.data() : nullptr);
  }

  void prepare_backward(bool wants_dx) override {
    prepared(PassKind::kBackwardWeights);
    if (wants_dx) prepared(PassKind::kBackwardData);
  }

 private:
  struct Prepared {
    std::unique_ptr<ConvPass> pass;
    Tensor packed;
    std::optional<uint64_t> version;  // the one that was packed
  };

  Prepared& prepared(PassKind kind) {
    if (team_ != team_size()) {
      passes_ = {};
      team_ = team_size();
    }
    Prepared& here = passes_[static_cast<size_t>(kind)];
    if (!here.pass) {
      const ConvChoices::Candidates all = candidates(shape_, kind);
      const auto race = [&] { return measure(shape_, kind, all); };
      const ConvAlgorithm chosen =
          ConvChoices::process().choose(key_of(shape_, kind), all, largest_error(shape_.images), race);
      here.pass = make_pass(shape_, kind, chosen);
      if (kind != PassKind::kBackwardWeights)
        here.packed = Tensor({static_cast<int64_t>(here.pass->packed_bytes())}, DType::kU8);
    }
    return here;
  }

  Prepared& packed(PassKind kind) {
    Prepared& here = prepared(kind);
    if (here.version != weight_.version) {
      here.pass->pack(weight_.value.data(), here.packed.raw());
      here.version = weight_.version;
    }
    return here;
  }

  ConvShape shape_;
  Param& weight_;
  Param* bias_;
  int team_ = 0;
  std::array<Prepared, 3> passes_;
};

}  // namespace

std::unique_ptr<Op> bind_conv(Cpu cpu, const ConvGeometry& geometry, int64_t rows, Param& weight, Param* bias) {
  if (must_widen(cpu))
    return widened(weight, [&](Param& rounded) { return bind_conv(Cpu{}, geometry, rows, rounded, bias); });
  const ConvShape shape{geometry, rows, bias != nullptr, activation_type(cpu.precision)};
  return std::make_unique<ConvOp>(shape, weight, bias);
}

}  // namespace owt
