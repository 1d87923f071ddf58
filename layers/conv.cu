#include "layers/conv.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "layers/base/masking_op.h"
#include "layers/gpu/bias_gradient.h"
#include "layers/gpu/conv_kernels.cuh"
#include "layers/gpu/conv_plans.h"
#include "src/core/cuda.h"
#include "src/system/check.h"

namespace owt {
namespace {

// The passes of a convolution: forward includes the epilogue, backward does not.
class ConvPasses {
 public:
  ConvPasses(ConvPlans plans, Cuda cuda, const ConvGeometry& geometry, int64_t rows, Param& weight, Param* bias,
             bool relu)
      : cuda_(cuda),
        geometry_(geometry),
        rows_(rows),
        dtype_(activation_type(cuda.precision)),
        weight_(weight),
        bias_(bias),
        epilogue_{.bias = bias != nullptr, .relu = relu},
        plans_(std::move(plans)) {
    measure_scratch();
  }

  // MaskingOp::mask_dx(). A mask without a bias stays with the op before. So does each mask where our own kernel
  // computes dx, because only cuDNN's plan masks.
  bool mask_dx(const MaskingOp::Mask& before) {
    if (!before.bias || plans_.own_data_gradient) return false;
    std::optional<CudnnPlan> plan = choose_masked_data_gradient(cuda_, geometry_, rows_);
    if (!plan) return false;
    plans_.data_gradient = std::move(plan);
    bias_before_ = before.bias;
    measure_scratch();
    return true;
  }

  // The first part of Pass::scratch: cuDNN's workspace, then the packed weights, their gradient, or the gradient of the
  // bias before.
  int64_t scratch_bytes() const { return scratch_bytes_; }

  std::optional<ImageLayout> wanted_images() const {
    return plans_.packing ? std::optional(plans_.packing->layout()) : std::nullopt;
  }

  void forward(const Pass& pass, const Tensor& x, Tensor& y) {
    const Stream& stream = *pass.stream;
    const void* weights = operand(weight_);
    if (plans_.packing && !packed(x)) pack(x, stream);
    if (plans_.own_forward) {
      plans_.own_forward->queue(images(x).raw(), weights, bias_ ? bias_->value.data() : nullptr, epilogue_.relu,
                                y.raw(), stream);
      return;
    }
    if (plans_.packing) {
      queue_pack_weights(*plans_.packing, dtype_, weights, pass.scratch_at(workspace_bytes_), stream);
      weights = pass.scratch_at(workspace_bytes_);
    }
    std::vector<CudnnPlan::Binding> bindings{{kConvX, images(x).raw()}, {kConvW, weights}, {kConvY, y.raw()}};
    if (plans_.fused && bias_) bindings.push_back({kConvBias, operand(*bias_)});
    plans_.forward->run(stream, bindings, pass.scratch_at(0));
    if (!plans_.fused && (epilogue_.bias || epilogue_.relu))
      queue_epilogue(epilogue_, bias_ ? bias_->value.data() : nullptr, y, stream);
  }

  // dy: the gradient of the epilogue's input.
  void backward_data(const Pass& pass, const Tensor& x, const Tensor& dy, Tensor* dx) {
    if (!dx) return;
    if (plans_.own_data_gradient) {
      plans_.own_data_gradient->queue(dy.raw(), operand(weight_), nullptr, false, dx->raw(), *pass.stream);
      return;
    }
    if (!plans_.data_gradient)
      fail("cuDNN has no plan for the gradient of the input of a convolution with weights ", weight_.shape(),
           "; use another precision or --device cpu");
    std::vector<CudnnPlan::Binding> bindings{{kConvY, dy.raw()}, {kConvW, operand(weight_)}, {kConvX, dx->raw()}};
    if (!bias_before_) return plans_.data_gradient->run(*pass.stream, bindings, pass.scratch_at(0));
    const float beta = bias_before_->take_beta();
    void* sums = beta == 0 ? bias_before_->grad.raw() : pass.scratch_at(workspace_bytes_);
    bindings.push_back({kConvSeen, x.raw()});
    bindings.push_back({kConvBias, sums});
    plans_.data_gradient->run(*pass.stream, bindings, pass.scratch_at(0));
    if (beta != 0) add(Unpacked{}, DType::kF32, sums, beta, *bias_before_, *pass.stream);
  }

  void backward_weights(const Pass& pass, const Tensor& x, const Tensor& dy) {
    const Stream& stream = *pass.stream;
    const float beta = weight_.take_beta();
    if (plans_.own_weight_gradient) {
      plans_.own_weight_gradient->queue(images(x).raw(), dy.raw(), beta, weight_.grad, pass.scratch_at(0), stream);
      return;
    }
    const bool direct = beta == 0 && dtype_ == weight_.grad_type && !plans_.packing;
    void* dw = direct ? weight_.grad.raw() : pass.scratch_at(workspace_bytes_);
    const CudnnPlan::Binding bindings[] = {{kConvX, images(x).raw()}, {kConvY, dy.raw()}, {kConvW, dw}};
    plans_.weight_gradient->run(stream, bindings, pass.scratch_at(0));
    if (direct) return;
    if (plans_.packing)
      add(*plans_.packing, dtype_, dw, beta, weight_, stream);
    else
      add(Unpacked{}, dtype_, dw, beta, weight_, stream);
  }

 private:
  // Whether x has the layout of wanted_images(). A packed pixel has more channels than a plain one.
  bool packed(const Tensor& x) const { return x.shape()[3] == plans_.packing->packed().in_c; }

  // The images in the form that cuDNN reads.
  const Tensor& images(const Tensor& x) const { return plans_.packing && !packed(x) ? packed_x_ : x; }

  void pack(const Tensor& x, const Stream& stream) {
    const ImageLayout layout = plans_.packing->layout();
    if (!packed_x_.defined()) packed_x_ = Tensor(layout.batch_of(x.shape().rows()), dtype_, Device::kCuda);
    queue_pack_images(layout, x, packed_x_.raw(), stream);
  }

  // A parameter in the type that cuDNN reads.
  const void* operand(const Param& param) const {
    return dtype_ == DType::kBF16 ? param.copy16.raw() : param.value.raw();
  }

  // param.grad = beta * param.grad + from, which has elements of `type`.
  template <class Packing>
  static void add(const Packing& packing, DType type, const void* from, float beta, Param& param,
                  const Stream& stream) {
    const int64_t count = param.grad.elements();
    with_element(type, [&](auto element) {
      with_element(param.grad_type, [&](auto to) {
        using T = decltype(element);
        using Sum = decltype(to);
        launch(add_weight_gradient<T, Sum, Packing>, dim3(blocks_for(count)), dim3(kBlockThreads), stream, packing,
               count, static_cast<const T*>(from), beta, param.grad.template data<Sum>());
      });
    });
  }

  void measure_scratch() {
    const ConvGeometry& used = plans_.packing ? plans_.packing->packed() : geometry_;
    const int64_t weights = used.out_c * used.kernel_h * used.kernel_w * used.in_c / used.groups;
    const bool none_beside = !plans_.packing && (!plans_.weight_gradient || weight_.grad_type == DType::kBF16);
    const int64_t beside = none_beside ? 0 : weights * size_of(dtype_);
    const int64_t sums = bias_before_ ? geometry_.in_c * size_of(DType::kF32) : 0;
    workspace_bytes_ = cuda_aligned(plans_.workspace_bytes());
    scratch_bytes_ = cuda_aligned(workspace_bytes_ + std::max(beside, sums));
  }

  Cuda cuda_;
  ConvGeometry geometry_;
  int64_t rows_;
  DType dtype_;
  Param& weight_;
  Param* bias_;
  ConvEpilogue epilogue_;
  ConvPlans plans_;
  Param* bias_before_ = nullptr;  // if plans_.data_gradient masks dx, its gradient is the sum of dx
  Tensor packed_x_;               // written by forward, read by backward; allocated for the first plain images
  int64_t workspace_bytes_ = 0, scratch_bytes_ = 0;
};

Shape out_shape(const ConvGeometry& geometry, int64_t rows) {
  return {rows, geometry.out_h, geometry.out_w, geometry.out_c};
}

class CudaConv : public Op, public MaskingOp {
 public:
  CudaConv(ConvPlans plans, Cuda cuda, const ConvGeometry& geometry, int64_t rows, Param& weight, Param* bias,
           bool relu)
      : passes_(std::move(plans), cuda, geometry, rows, weight, bias, relu),
        bias_before_relu_(relu && bias && learns(bias->role) ? bias : nullptr),
        epilogue_(make_bias_gradient(rows * geometry.out_h * geometry.out_w, geometry.out_c, bias,
                                     relu ? std::optional(FollowingRelu{}) : std::nullopt)) {}

  std::optional<ImageLayout> wanted_images() const override { return passes_.wanted_images(); }
  int64_t scratch_bytes(Phase) const override { return passes_.scratch_bytes(); }

  // Without a trained bias it keeps the mask, because cuDNN's plan always sums.
  std::optional<Mask> mask() const override {
    return bias_before_relu_ ? std::optional(Mask{bias_before_relu_}) : std::nullopt;
  }
  bool mask_dx(const Mask& before) override { return passes_.mask_dx(before); }

  void forward(const Pass& pass, const Tensor& x, Tensor& y) override { passes_.forward(pass, x, y); }

  // With a relu, the bias-gradient kernel masks dy, which both passes read.
  void backward_data(const Pass& pass, const Tensor& x, const Tensor& y, const Tensor& dy, Tensor* dx) override {
    if (epilogue_ && !dy_is_masked()) epilogue_->queue(*pass.stream, y, dy);
    passes_.backward_data(pass, x, dy, dx);
  }
  void backward_weights(const Pass& pass, const Tensor& x, const Tensor& dy) override {
    passes_.backward_weights(pass, x, dy);
  }

 private:
  ConvPasses passes_;
  Param* bias_before_relu_;                 // null if there is no relu, or no trained bias
  std::unique_ptr<BiasGradient> epilogue_;  // null if there is neither a bias nor a relu
};

// Whether the input of the pool is stored. Max pooling does not need it, because backward uses only its indexes.
enum class BeforePool { kKept, kForgotten };

class ConvReluPoolOp : public Op, public MaskingOp {
 public:
  ConvReluPoolOp(ConvPlans plans, Cuda cuda, const ConvGeometry& geometry, int64_t rows, Param& weight, Param* bias,
                 std::unique_ptr<Op> pool, BeforePool before)
      : passes_(std::move(plans), cuda, geometry, rows, weight, bias, true),
        pool_(std::move(pool)),
        dtype_(activation_type(cuda.precision)),
        shape_(out_shape(geometry, rows)) {
    if (before == BeforePool::kKept) kept_ = Tensor(shape_, dtype_, Device::kCuda);
  }

  std::optional<ImageLayout> wanted_images() const override { return passes_.wanted_images(); }
  int64_t scratch_bytes(Phase) const override { return passes_.scratch_bytes() + bytes(); }
  int64_t inner_bytes() const override { return kept_.defined() ? bytes() : 0; }
  std::optional<Mask> mask() const override { return {}; }  // the pool's kernel masks while it writes
  bool mask_dx(const Mask& before) override { return passes_.mask_dx(before); }

  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    Tensor unpooled = kept_.defined() ? kept_ : scratch_after_passes(pass);
    passes_.forward(pass, x, unpooled);
    pool_->forward(pass, unpooled, y);
  }

  void backward_data(const Pass& pass, const Tensor& x, const Tensor& y, const Tensor& dy, Tensor* dx) override {
    Tensor gradient = scratch_after_passes(pass);
    pool_->backward_data(pass, kept_.defined() ? kept_ : gradient, y, dy, &gradient);
    passes_.backward_data(pass, x, gradient, dx);
  }
  void backward_weights(const Pass& pass, const Tensor& x, const Tensor&) override {
    passes_.backward_weights(pass, x, scratch_after_passes(pass));
  }

 private:
  int64_t bytes() const { return shape_.elements() * size_of(dtype_); }

  // The pool's input, or its gradient, in scratch memory after the memory of the passes.
  Tensor scratch_after_passes(const Pass& pass) const {
    return pass.scratch_at(passes_.scratch_bytes(), shape_, dtype_);
  }

  ConvPasses passes_;
  std::unique_ptr<Op> pool_;
  DType dtype_;
  Shape shape_;  // shape of the pool's input
  Tensor kept_;  // the pool's input, if backward needs it
};

ConvPlans chosen_plans(Cuda cuda, const ConvGeometry& geometry, int64_t rows, const Param& weight, const Param* bias,
                       bool relu) {
  return choose_conv_plans(cuda, geometry, rows, {.bias = bias != nullptr, .relu = relu}, learns(weight.role));
}

}  // namespace

std::unique_ptr<Op> bind_conv_with(ConvPlans plans, Cuda cuda, const ConvGeometry& geometry, int64_t rows,
                                   Param& weight, Param* bias, bool relu) {
  return std::make_unique<CudaConv>(std::move(plans), cuda, geometry, rows, weight, bias, relu);
}

std::unique_ptr<Op> bind_conv(Cuda cuda, const ConvGeometry& geometry, int64_t rows, Param& weight, Param* bias) {
  return bind_conv_with(chosen_plans(cuda, geometry, rows, weight, bias, false), cuda, geometry, rows, weight, bias,
                        false);
}

std::unique_ptr<Op> bind_conv_relu(Cuda cuda, const ConvGeometry& geometry, int64_t rows, Param& weight, Param* bias) {
  return bind_conv_with(chosen_plans(cuda, geometry, rows, weight, bias, true), cuda, geometry, rows, weight, bias,
                        true);
}

std::unique_ptr<Op> bind_conv_relu_max_pool(Cuda cuda, const ConvGeometry& geometry, int64_t rows, Param& weight,
                                            Param* bias, const Window& window) {
  return std::make_unique<ConvReluPoolOp>(
      chosen_plans(cuda, geometry, rows, weight, bias, true), cuda, geometry, rows, weight, bias,
      bind_relu_max_pool(cuda, window, out_shape(geometry, rows), bias), BeforePool::kForgotten);
}

std::unique_ptr<Op> bind_conv_relu_avg_pool(Cuda cuda, const ConvGeometry& geometry, int64_t rows, Param& weight,
                                            Param* bias, const Window& window) {
  return std::make_unique<ConvReluPoolOp>(
      chosen_plans(cuda, geometry, rows, weight, bias, true), cuda, geometry, rows, weight, bias,
      bind_relu_avg_pool(cuda, window, out_shape(geometry, rows), bias), BeforePool::kKept);
}

}  // namespace owt
