#include "layers/dense.h"

#include <optional>

#include "layers/gpu/bias_gradient.h"
#include "layers/relu.h"
#include "src/core/cuda.h"
#include "src/core/matmul.h"
#include "src/system/check.h"

namespace owt {
namespace {

class CudaDense : public Op {
 public:
  // What follows the product, in place on y.
  struct Epilogue {
    ReluDropout forward = {};
    std::optional<FollowingRelu> relu = {};
  };

  CudaDense(Cuda cuda, int64_t rows, Param& weight, Param* bias, Epilogue epilogue)
      : dtype_(activation_type(cuda.precision)),
        rows_(rows),
        out_(weight.part.size()),
        features_(weight.shape().row_elements()),
        weight_(weight),
        bias_(bias),
        keeps_grad_(weight.keeps_grad),
        epilogue_(std::move(epilogue)),
        leaves_bias_(!keeps_grad_ && !epilogue_.relu && bias && learns(bias->role)) {
    if (out_ == 0 || features_ == 0) return;
    constexpr auto kNo = Transpose::kNo, kYes = Transpose::kYes;
    const Precision p = cuda.precision;
    forward_.emplace(
        MatmulForm{rows_, out_, features_, kNo, kYes, features_, features_, out_, p, dtype_, bias != nullptr});
    to_input_.emplace(MatmulForm{rows_, features_, out_, kNo, kNo, out_, features_, features_, p, dtype_});
    if (keeps_grad_)
      to_weight_.emplace(
          MatmulForm{out_, features_, rows_, kYes, kNo, out_, features_, features_, p, weight.grad_type});
    if (!leaves_bias_) bias_gradient_ = make_bias_gradient(rows_, out_, bias, epilogue_.relu);
  }

  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    if (out_ == 0) return;
    if (features_ == 0) return y.zero(*pass.stream);
    (*forward_)(x.raw(), operand(weight_), bias_ ? operand(*bias_) : nullptr, 0, y.raw(), *pass.stream);
    if (epilogue_.forward) epilogue_.forward(pass, y);
  }

  // With a relu, the bias-gradient kernel masks dy, which both products read.
  void backward_data(const Pass& pass, const Tensor&, const Tensor& y, const Tensor& dy, Tensor* dx) override {
    const Stream& stream = *pass.stream;
    if (features_ == 0) return;
    if (out_ > 0 && bias_gradient_) bias_gradient_->queue(stream, y, dy);
    if (!dx) return;
    if (out_ == 0) return dx->zero(stream);
    (*to_input_)(dy.raw(), operand(weight_), nullptr, 0, dx->raw(), stream);
  }

  void backward_weights(const Pass& pass, const Tensor& x, const Tensor& dy) override {
    if (features_ == 0 || out_ == 0) return;
    const float beta = weight_.take_beta();
    if (keeps_grad_) return (*to_weight_)(dy.raw(), x.raw(), nullptr, beta, weight_.grad.raw(), *pass.stream);
    weight_.factors = {dy, x};
    if (!leaves_bias_) return;
    bias_->take_beta();
    bias_->factors = {dy, {}};
  }
  bool leaves_factors() const override { return !keeps_grad_; }

 private:
  // A parameter in the type that the products read.
  const void* operand(const Param& param) const {
    return dtype_ == DType::kBF16 ? param.copy16.raw() : param.value.raw();
  }

  DType dtype_;
  int64_t rows_, out_, features_;
  Param& weight_;
  Param* bias_;
  bool keeps_grad_;
  std::optional<Matmul> forward_, to_input_, to_weight_;
  Epilogue epilogue_;
  bool leaves_bias_;  // the update sums the bias's gradient; with a relu, the kernel that masks dy does
  std::unique_ptr<BiasGradient> bias_gradient_;  // null if there is nothing to mask or to sum
};

// cuBLASLt documents its relu as max(x, 0), which turns NaN into 0 and would hide that a run diverges. Ours keeps NaN.
CudaDense::Epilogue relu_epilogue(Cuda cuda) {
  const std::shared_ptr<Op> relu = bind_relu(cuda);
  return {[relu](const Pass& pass, Tensor& y) { relu->forward(pass, y, y); }, FollowingRelu{}};
}

CudaDense::Epilogue relu_dropout_epilogue(Cuda cuda, const DropoutSettings& settings, const Shape& y) {
  return {bind_relu_dropout(cuda, settings, y), FollowingRelu{settings.scale()}};
}

}  // namespace

std::unique_ptr<Op> bind_dense(Cuda cuda, int64_t rows, Param& weight, Param* bias) {
  return std::make_unique<CudaDense>(cuda, rows, weight, bias, CudaDense::Epilogue{});
}

std::unique_ptr<Op> bind_dense_relu(Cuda cuda, int64_t rows, Param& weight, Param* bias,
                                    const DropoutSettings* dropout) {
  return std::make_unique<CudaDense>(
      cuda, rows, weight, bias,
      dropout ? relu_dropout_epilogue(cuda, *dropout, {rows, weight.part.size()}) : relu_epilogue(cuda));
}

}  // namespace owt
