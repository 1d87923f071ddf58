#include <algorithm>
#include <array>
#include <optional>

#include "layers/base/prepared_op.h"
#include "layers/base/widened.h"
#include "layers/conv.h"
#include "layers/conv_cpu/canonical_conv.h"
#include "layers/conv_cpu/conv_algorithm.h"
#include "layers/conv_cpu/conv_trial.h"
#include "src/core/threads.h"
#include "src/system/check.h"
#include "src/system/log.h"

namespace owt {
namespace {

// Does not depend on the number of rows, so that a smaller last batch uses the same algorithm.
std::string key_of(const ConvShape& shape, PassKind kind) {
  const ConvGeometry& g = shape.geometry;
  const std::string dilation = g.dilated() ? format(", dilation {}x{}", g.dilation_h, g.dilation_w) : "";
  const std::string geometry =
      format("{}x{}x{} -> {}x{}x{}, kernel {}x{}, stride {}x{}, pad {} {} {} {}, groups {}{}, {}{}", g.in_h, g.in_w,
             g.in_c, g.out_h, g.out_w, g.out_c, g.kernel_h, g.kernel_w, g.stride_h, g.stride_w, g.top, g.left, g.bottom,
             g.right, g.groups, dilation, name_of(kind), shape.images == DType::kBF16 ? " in bf16" : "");
  return ConvChoices::key(geometry, team_size());
}

// Enough rows that transforming the weights costs as small a part as in a step, but few enough to measure in a second.
ConvShape shape_to_measure(ConvShape shape) {
  const double enough = 8e9 * team_size() / shape.geometry.flops(1);
  shape.rows = std::min(shape.rows, std::max<int64_t>(team_size(), static_cast<int64_t>(enough)));
  return shape;
}

// Limit on the error of an algorithm. bf16 rounding alone makes two results differ by 2.5e-3.
double largest_error(DType images) { return images == DType::kBF16 ? 1e-2 : 1e-4; }

class ConvOp : public PreparedOp {
 public:
  // canonical_rows: see Cpu.
  ConvOp(const ConvShape& shape, int64_t canonical_rows, Param& weight, Param* bias)
      : shape_(shape), canonical_rows_(canonical_rows), weight_(weight), bias_(bias) {
    prepared(PassKind::kForward);
  }

  void forward(const Pass&, const Tensor& x, Tensor& y) override {
    PackedPass& forward = packed(PassKind::kForward);
    forward.pass->forward(x.raw(), forward.packed.raw(), bias_ ? bias_->value.data() : nullptr, y.raw());
  }

  void backward_data(const Pass&, const Tensor&, const Tensor&, const Tensor& dy, Tensor* dx) override {
    prepare_backward(dx != nullptr);
    if (!dx) return;
    PackedPass& by_data = packed(PassKind::kBackwardData);
    by_data.pass->backward_data(dy.raw(), by_data.packed.raw(), dx->raw());
  }

  void backward_weights(const Pass&, const Tensor& x, const Tensor& dy) override {
    const ConvPass& pass = *prepared(PassKind::kBackwardWeights).pass;
    const float beta = weight_.take_beta(), bias_beta = bias_ ? bias_->take_beta() : 0;
    if (canonical_rows_ > 0)
      pass.canonical_gradients(x.data(), dy.data(), beta, weight_.grad.data<double>(), bias_beta,
                               bias_ ? bias_->grad.data<double>() : nullptr);
    else
      pass.backward_weights(x.raw(), dy.raw(), beta, weight_.grad.data(), bias_beta,
                            bias_ ? bias_->grad.data() : nullptr);
  }

  void prepare_backward(bool wants_dx) override {
    if (learns(weight_.role)) prepared(PassKind::kBackwardWeights);
    if (wants_dx) prepared(PassKind::kBackwardData);
  }

 private:
  struct PackedPass {
    std::unique_ptr<ConvPass> pass;
    Tensor packed;
    std::optional<uint64_t> version;  // version of the weight that was packed
  };

  PackedPass& prepared(PassKind kind) {
    if (team_ != team_size()) {
      passes_ = {};
      team_ = team_size();
    }
    PackedPass& here = passes_[static_cast<size_t>(kind)];
    if (!here.pass) {
      const ConvChoices::Candidates all = conv_candidates(shape_, kind);
      const auto race = [&] { return measure_conv(shape_to_measure(shape_), kind, all, 3); };
      const ConvAlgorithm chosen =
          ConvChoices::process().choose(key_of(shape_, kind), all, largest_error(shape_.images), race);
      here.pass = canonical_rows_ > 0 ? make_canonical_conv(shape_, kind, chosen, canonical_rows_)
                                      : make_conv_pass(shape_, kind, chosen);
      if (kind != PassKind::kBackwardWeights)
        here.packed = Tensor({static_cast<int64_t>(here.pass->packed_bytes())}, DType::kU8);
    }
    return here;
  }

  PackedPass& packed(PassKind kind) {
    PackedPass& here = prepared(kind);
    if (here.version != weight_.version) {
      here.pass->pack(weight_.value.data(), here.packed.raw());
      here.version = weight_.version;
    }
    return here;
  }

  ConvShape shape_;
  int64_t canonical_rows_;
  Param& weight_;
  Param* bias_;
  int team_ = 0;
  std::array<PackedPass, 3> passes_;
};

}  // namespace

std::unique_ptr<Op> bind_conv(Cpu cpu, const ConvGeometry& geometry, int64_t rows, Param& weight, Param* bias) {
  if (must_widen(cpu))
    return widened(weight, [&](Param& rounded) { return bind_conv(Cpu{}, geometry, rows, rounded, bias); });
  const ConvShape shape{geometry, rows, bias != nullptr, activation_type(cpu.precision)};
  return std::make_unique<ConvOp>(shape, cpu.canonical_rows, weight, bias);
}

}  // namespace owt
