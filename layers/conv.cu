#include "layers/conv.h"

#include <utility>
#include <vector>

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
  ConvPasses(ConvPlans plans, Cuda cuda, const ConvGeometry& geometry, Param& weight, Param* bias, bool relu)
      : dtype_(activation_type(cuda.precision)),
        weight_(weight),
        bias_(bias),
        epilogue_{.bias = bias != nullptr, .relu = relu},
        plans_(std::move(plans)) {
    const ConvGeometry& used = plans_.packing ? plans_.packing->packed() : geometry;
    const int64_t weights = used.out_c * used.kernel_h * used.kernel_w * used.in_c / used.groups;
    const bool none_beside = !plans_.packing && (!plans_.weight_gradient || weight.grad_type == DType::kBF16);
    workspace_bytes_ = cuda_aligned(plans_.workspace_bytes());
    scratch_bytes_ = cuda_aligned(workspace_bytes_ + (none_beside ? 0 : weights * size_of(dtype_)));
  }

  // The first part of Pass::scratch: cuDNN's workspace, then the packed weights or their gradient.
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
  void backward_data(const Pass& pass, const Tensor& dy, Tensor* dx) {
    if (!dx) return;
    if (plans_.own_data_gradient) {
      plans_.own_data_gradient->queue(dy.raw(), operand(weight_), nullptr, false, dx->raw(), *pass.stream);
      return;
    }
    if (!plans_.data_gradient)
      fail("cuDNN has no plan for the gradient of the input of a convolution with weights ", weight_.shape(),
           "; use another precision or --device cpu");
    const CudnnPlan::Binding bindings[] = {{kConvY, dy.raw()}, {kConvW, operand(weight_)}, {kConvX, dx->raw()}};
    plans_.data_gradient->run(*pass.stream, bindings, pass.scratch_at(0));
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
      add(*plans_.packing, dw, beta, stream);
    else
      add(Unpacked{}, dw, beta, stream);
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

  template <class Packing>
  void add(const Packing& packing, const void* dw, float beta, const Stream& stream) {
    const int64_t count = weight_.grad.elements();
    with_element(dtype_, [&](auto from) {
      with_element(weight_.grad_type, [&](auto to) {
        using T = decltype(from);
        using Sum = decltype(to);
        launch(add_weight_gradient<T, Sum, Packing>, dim3(blocks_for(count)), dim3(kBlockThreads), stream, packing,
               count, static_cast<const T*>(dw), beta, weight_.grad.data<Sum>());
      });
    });
  }

  DType dtype_;
  Param& weight_;
  Param* bias_;
  ConvEpilogue epilogue_;
  ConvPlans plans_;
  Tensor packed_x_;  // written by forward, read by backward; allocated for the first plain images
  int64_t workspace_bytes_ = 0, scratch_bytes_ = 0;
};

Shape out_shape(const ConvGeometry& geometry, int64_t rows) {
  return {rows, geometry.out_h, geometry.out_w, geometry.out_c};
}

class CudaConv : public Op {
 public:
  CudaConv(ConvPlans plans, Cuda cuda, const ConvGeometry& geometry, int64_t rows, Param& weight, Param* bias,
           bool relu)
      : passes_(std::move(plans), cuda, geometry, weight, bias, relu),
        epilogue_(make_bias_gradient(rows * geometry.out_h * geometry.out_w, geometry.out_c, bias,
                                     relu ? std::optional(FollowingRelu{}) : std::nullopt)) {}

  std::optional<ImageLayout> wanted_images() const override { return passes_.wanted_images(); }
  int64_t scratch_bytes(Phase) const override { return passes_.scratch_bytes(); }

  void forward(const Pass& pass, const Tensor& x, Tensor& y) override { passes_.forward(pass, x, y); }

  // With a relu, the bias-gradient kernel masks dy, which both passes read.
  void backward_data(const Pass& pass, const Tensor&, const Tensor& y, const Tensor& dy, Tensor* dx) override {
    if (epilogue_) epilogue_->queue(*pass.stream, y, dy);
    passes_.backward_data(pass, dy, dx);
  }
  void backward_weights(const Pass& pass, const Tensor& x, const Tensor& dy) override {
    passes_.backward_weights(pass, x, dy);
  }

 private:
  ConvPasses passes_;
  std::unique_ptr<BiasGradient> epilogue_;  // null if there is neither a bias nor a relu
};

// Whether the input of the pool is stored. Max pooling does not need it, because backward uses only its indexes.
enum class BeforePool { kKept, kForgotten };

class ConvReluPoolOp : public Op {
 public:
  ConvReluPoolOp(ConvPlans plans, Cuda cuda, const ConvGeometry& geometry, int64_t rows, Param& weight, Param* bias,
                 std::unique_ptr<Op> pool, BeforePool before)
      : passes_(std::move(plans), cuda, geometry, weight, bias, true),
        pool_(std::move(pool)),
        dtype_(activation_type(cuda.precision)),
        shape_(out_shape(geometry, rows)) {
    if (before == BeforePool::kKept) kept_ = Tensor(shape_, dtype_, Device::kCuda);
  }

  std::optional<ImageLayout> wanted_images() const override { return passes_.wanted_images(); }
  int64_t scratch_bytes(Phase) const override { return passes_.scratch_bytes() + bytes(); }
  int64_t inner_bytes() const override { return kept_.defined() ? bytes() : 0; }

  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    Tensor unpooled = kept_.defined() ? kept_ : scratch_after_passes(pass);
    passes_.forward(pass, x, unpooled);
    pool_->forward(pass, unpooled, y);
  }

  void backward_data(const Pass& pass, const Tensor&, const Tensor& y, const Tensor& dy, Tensor* dx) override {
    Tensor gradient = scratch_after_passes(pass);
    pool_->backward_data(pass, kept_.defined() ? kept_ : gradient, y, dy, &gradient);
    passes_.backward_data(pass, gradient, dx);
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
