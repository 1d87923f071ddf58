#include "layers/conv_cpu/conv_trial.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "layers/conv_cpu/depthwise_conv.h"
#include "layers/conv_cpu/few_channel_conv.h"
#include "layers/conv_cpu/onednn_conv.h"
#include "layers/conv_cpu/winograd.h"
#include "src/core/bf16.h"

namespace owt {
namespace {

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

class Trial {
 public:
  Trial(const ConvShape& shape, PassKind kind, ConvAlgorithm algorithm)
      : kind_(kind),
        pass_(make_conv_pass(shape, kind, algorithm)),
        x_(pattern({shape.rows, shape.geometry.in_h, shape.geometry.in_w, shape.geometry.in_c}, shape.images)),
        y_(pattern({shape.rows, shape.geometry.out_h, shape.geometry.out_w, shape.geometry.out_c}, shape.images)),
        w_(pattern(weight_shape(shape.geometry), DType::kF32)),
        packed_({static_cast<int64_t>(pass_->packed_bytes())}, DType::kU8) {
    if (shape.with_bias) b_ = pattern({shape.geometry.out_c}, DType::kF32);
  }

  // Time of one pass as in a training step.
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

}  // namespace

std::unique_ptr<ConvPass> make_conv_pass(const ConvShape& shape, PassKind kind, ConvAlgorithm algorithm) {
  if (algorithm == ConvAlgorithm::kDirect) return make_onednn_conv(shape, kind);
  if (algorithm == ConvAlgorithm::kFewChannels) return make_few_channel_conv(shape, kind);
  if (algorithm == ConvAlgorithm::kDepthwise) return make_depthwise_conv(shape, kind);
  return make_winograd(shape, kind, algorithm == ConvAlgorithm::kWinogradBf16 ? DType::kBF16 : DType::kF32);
}

ConvChoices::Candidates conv_candidates(const ConvShape& shape, PassKind kind) {
  ConvChoices::Candidates found{ConvAlgorithm::kDirect};
  if (shape.geometry.dilated()) return found;  // only oneDNN's algorithm has a dilation
  for (const auto algorithm :
       {ConvAlgorithm::kFewChannels, ConvAlgorithm::kDepthwise, ConvAlgorithm::kWinogradBf16, ConvAlgorithm::kWinograd})
    if (make_conv_pass(shape, kind, algorithm)) found.push_back(algorithm);
  return found;
}

std::vector<ConvChoices::Timing> measure_conv(const ConvShape& shape, PassKind kind,
                                              const ConvChoices::Candidates& candidates, int rounds) {
  std::vector<Trial> trials;
  std::vector<ConvChoices::Timing> measured;
  for (const ConvAlgorithm algorithm : candidates) {
    trials.emplace_back(shape, kind, algorithm).milliseconds();
    measured.push_back({algorithm, std::numeric_limits<double>::infinity(),
                        relative_error(trials.back().result(), trials.front().result())});
  }
  for (int round = 0; round < rounds; ++round)
    for (size_t k = 0; k < trials.size(); ++k) measured[k].ms = std::min(measured[k].ms, trials[k].milliseconds());
  return measured;
}

}  // namespace owt
