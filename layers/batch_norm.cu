#include "layers/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "layers/base/summing_op.h"
#include "layers/batch_norm_method.h"
#include "layers/branch_sums.h"
#include "layers/gpu/cudnn.h"
#include "layers/gpu/plan_choice.h"
#include "layers/own_norm.cuh"
#include "layers/relu.h"
#include "src/core/cuda.h"
#include "src/core/grid.h"
#include "src/core/memory.h"
#include "src/core/row_groups.h"
#include "src/system/check.h"

namespace owt {
namespace {

// Adds cuDNN's gradients of weight and bias, and the gradients of the running averages.
__global__ void add_norm_gradients(const float* dweight, const float* dbias, const float* mean,
                                   const float* inverse_std, NormParamGradients params, int channels) {
  wait_for_previous_kernel();
  const int channel = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (channel >= channels) return;
  NormParamGradients::Terms terms;
  params.take(static_cast<double>(dweight[channel]), static_cast<double>(dbias[channel]), mean[channel],
              inverse_std[channel], params.last_factors, terms);
  params.add(channel, terms);
}

enum NormTensor : CudnnGraph::Id { kX = 1, kScale, kMean, kInverseStd, kBias, kEpsilon, kY };  // forward
enum NormGradientTensor : CudnnGraph::Id { kDy = 5, kDScale, kDBias, kDx };  // backward, after the first four

// A graph with x, scale, mean and inverse_std.
CudnnGraph graph_of(const Shape& image, DType dtype) {
  CudnnGraph graph;
  OWT_CHECK_EQ(graph.image(dtype, image), kX);
  for (const NormTensor id : {kScale, kMean, kInverseStd}) OWT_CHECK_EQ(graph.channels(DType::kF32, image[3]), id);
  return graph;
}

CudnnGraph forward_graph(const Shape& image, DType dtype) {
  CudnnGraph graph = graph_of(image, dtype);
  OWT_CHECK_EQ(graph.channels(DType::kF32, image[3]), kBias);
  OWT_CHECK_EQ(graph.number(), kEpsilon);
  OWT_CHECK_EQ(graph.image(dtype, image), kY);
  graph.norm_forward(kX, kScale, kBias, kEpsilon, kMean, kInverseStd, kY);
  return graph;
}

CudnnGraph backward_graph(const Shape& image, DType dtype) {
  CudnnGraph graph = graph_of(image, dtype);
  OWT_CHECK_EQ(graph.image(dtype, image), kDy);
  for (const NormGradientTensor id : {kDScale, kDBias}) OWT_CHECK_EQ(graph.channels(DType::kF32, image[3]), id);
  OWT_CHECK_EQ(graph.image(dtype, image), kDx);
  graph.norm_backward(kX, kDy, kScale, kMean, kInverseStd, kDScale, kDBias, kDx);
  return graph;
}

class CudaBatchNorm : public SummingOp {
 public:
  CudaBatchNorm(Cuda cuda, BatchNormParams params, const BatchNormSettings& settings, const Shape& in,
                NormMethod method)
      : params_(params),
        eps_(settings.eps),
        eps_number_(static_cast<float>(settings.eps)),
        frozen_(!learns(params.weight.role)),
        relu_(settings.relu ? bind_relu(cuda) : nullptr),
        groups_{in[0], settings.rows > 0 ? settings.rows : std::max<int64_t>(in[0], 1)},
        channels_(in[in.rank() - 1]),
        pixels_(in.row_elements() / channels_),
        own_(params, settings.eps, {in[0] * pixels_, groups_.size * pixels_, static_cast<int>(groups_.count())},
             channels_, activation_type(cuda.precision)),
        statistics_{per_channel(channels_, groups_.count()), per_channel(channels_, groups_.count())} {
    if (relu_ && !frozen_) {
      statistics_.scale = per_channel(channels_, groups_.count());
      statistics_.bias = per_channel(channels_, groups_.count());
    }
    if (frozen_)
      (zeros_ = per_channel(channels_)).zero();
    else
      choose(cuda, in, method);
    if (settings.rows == kRowsOfStep) totals_ = Tensor({2 * channels_}, DType::kF64, Device::kCuda);
    dscale_ = cuda_aligned(
        std::max(forward_ ? forward_->workspace_bytes() : 0, backward_ ? backward_->workspace_bytes() : 0));
    dbias_ = dscale_ + cuda_aligned(channels_ * size_of(DType::kF32));
  }

  // Partial sums of our own kernels; or cuDNN's workspace, followed by its gradients.
  int64_t scratch_bytes(Phase) const override {
    return std::max(own_.scratch_bytes(), forward_ || backward_ ? dbias_ + channels_ * size_of(DType::kF32) : 0);
  }

  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    if (!by_cudnn(forward_, pass)) return own_forward(x, {.relu = relu_ != nullptr}, y, pass);
    forward_by(*forward_, x, y, pass);
    if (relu_) relu_->forward(pass, y, y);
  }

  void forward_sum(const Pass& pass, const Tensor& x, const Tensor& b, bool relu, Tensor& y) override {
    if (!by_cudnn(forward_, pass)) return own_forward(x, {.relu = relu, .other = &b}, y, pass);
    forward_by(*forward_, x, y, pass);
    add_branches(Cuda{}, y, b, relu, y, *pass.stream);
  }

  void backward_data(const Pass& pass, const Tensor& x, const Tensor& y, const Tensor& dy, Tensor* dx) override {
    if (frozen_ && !dx) return;
    const bool backward_by_cudnn = dx && by_cudnn(backward_, pass);
    const bool masks_first = frozen_ || backward_by_cudnn || by_cudnn(forward_, pass);
    if (relu_ && masks_first) {
      Tensor masked = dy;
      relu_->backward_data(pass, y, y, dy, &masked);
    }
    if (frozen_) return own_.scale(dy, zeros_, *dx, *pass.stream);
    const NormParamGradients params = gradients(pass);
    if (backward_by_cudnn)
      backward_by(*backward_, x, dy, params, *dx, pass);
    else
      own_.backward(x, dy, relu_ && !masks_first, statistics_, params, shared(pass), dx, sums(pass), *pass.stream);
  }

 private:
  static float* sums(const Pass& pass) { return reinterpret_cast<float*>(pass.scratch_at(0)); }
  bool exchanges(const Pass& pass) const { return totals_.defined() && pass.sums; }
  bool by_cudnn(const std::optional<CudnnPlan>& plan, const Pass& pass) const {
    return plan && pass.mode == Mode::kTrain && !exchanges(pass);
  }
  SharedNormSums shared(const Pass& pass) const {
    if (!exchanges(pass)) return {};
    return {pass.sums, totals_, static_cast<double>(pass.step_rows * pixels_)};
  }

  // Includes each group's share of the rows of the step.
  NormParamGradients gradients(const Pass& pass) {
    return {AddToGrad(&params_.weight),
            AddToGrad(&params_.bias),
            AddToGrad(&params_.running_mean),
            AddToGrad(&params_.running_var),
            factors(0, pass),
            factors(groups_.count() - 1, pass),
            eps_};
  }

  NormFactors factors(int64_t group, const Pass& pass) const {
    const auto rows = static_cast<double>(groups_.of(group).size()), step_rows = static_cast<double>(pass.step_rows);
    const double share = rows / step_rows, count = (exchanges(pass) ? step_rows : rows) * static_cast<double>(pixels_);
    return {share, count > 1 ? share * count / (count - 1) : 0};
  }

  void own_forward(const Tensor& x, const NormFollower& following, Tensor& y, const Pass& pass) {
    const bool averages = pass.mode == Mode::kEval || frozen_;
    if (averages)
      own_.evaluate(x, following, y, *pass.stream);
    else
      own_.forward(x, statistics_, shared(pass), following, y, sums(pass), *pass.stream);
  }

  // The statistics are cuDNN's. Its rounding may differ from ours, so backward takes the signs of y from y.
  void forward_by(const CudnnPlan& plan, const Tensor& x, Tensor& y, const Pass& pass) {
    const CudnnPlan::Binding bindings[] = {{kX, x.raw()},
                                           {kScale, params_.weight.value.raw()},
                                           {kBias, params_.bias.value.raw()},
                                           {kEpsilon, &eps_number_},
                                           {kMean, statistics_.mean.raw()},
                                           {kInverseStd, statistics_.inverse_std.raw()},
                                           {kY, y.raw()}};
    plan.run(*pass.stream, bindings, pass.scratch_at(0));
  }

  void backward_by(const CudnnPlan& plan, const Tensor& x, const Tensor& dy, const NormParamGradients& params,
                   Tensor& dx, const Pass& pass) {
    auto *dscale = reinterpret_cast<float*>(pass.scratch_at(dscale_)),
         *dbias = reinterpret_cast<float*>(pass.scratch_at(dbias_));
    const CudnnPlan::Binding bindings[] = {{kX, x.raw()},
                                           {kDy, dy.raw()},
                                           {kScale, params_.weight.value.raw()},
                                           {kMean, statistics_.mean.raw()},
                                           {kInverseStd, statistics_.inverse_std.raw()},
                                           {kDScale, dscale},
                                           {kDBias, dbias},
                                           {kDx, dx.raw()}};
    plan.run(*pass.stream, bindings, pass.scratch_at(0));
    launch(add_norm_gradients, dim3(blocks_for(channels_)), dim3(kBlockThreads), *pass.stream, dscale, dbias,
           statistics_.mean.data(), statistics_.inverse_std.data(), params, static_cast<int>(channels_));
  }

  void choose(Cuda cuda, const Shape& in, NormMethod method) {
    const DType dtype = activation_type(cuda.precision);
    const auto groups = static_cast<int>(groups_.count());
    if (method == NormMethod::kOwnKernelsByTwos)
      own_.set_at_once({std::min(groups, 2), std::min(groups, 2)});
    else if (groups == 1 && in[0] * pixels_ > 1 && method != NormMethod::kOwnKernels)
      choose_plans(cuda, in, method);
    else if (groups > 1 && method == NormMethod::kFastest)
      choose_parts(in, dtype);
  }

  void choose_parts(const Shape& in, DType dtype) {
    const MeasuringTurn turn;
    const int forward = groups_at_once("forward", 1, in, dtype, [&](const Pass& pass, Tensor& x, Tensor&, Tensor& y) {
      own_forward(x, {.relu = relu_ != nullptr}, y, pass);
    });
    const int backward =
        groups_at_once("backward", 2, in, dtype, [&](const Pass& pass, Tensor& x, Tensor& dy, Tensor& dx) {
          own_.backward(x, dy, relu_ != nullptr, statistics_, {}, {}, &dx, sums(pass), *pass.stream);
        });
    own_.set_at_once({forward, backward});
  }

  // Returns how many groups to take at a time: as many as half of the L2 cache holds of the first `tensors` of three
  // tensors, if queue(pass, tensors...) is faster so than with all groups; else all.
  template <class Queue>
  int groups_at_once(const char* pass, int tensors, const Shape& in, DType dtype, const Queue& queue) {
    const auto all = static_cast<int>(groups_.count());
    const int64_t cached = attribute_of_gpu(cudaDevAttrL2CacheSize) / 2;
    const int64_t part = cached / (tensors * groups_.size * in.row_elements() * size_of(dtype));
    if (part < 1 || part >= all) return all;
    const std::string what = concat("groups of a norm at once, ", pass, relu_ ? " with relu, " : ", ", name_of(dtype),
                                    ", ", in, " in groups of ", groups_.size, ", ", part);
    const std::string choice = remembered(what, [&]() -> std::string {
      try {
        Tensor x(in, dtype, Device::kCuda), dy(in, dtype, Device::kCuda), to(in, dtype, Device::kCuda);
        const auto ms_with = [&](int groups) {
          own_.set_at_once({groups, groups});
          Pass trial;
          trial.stream = &setup_stream(Device::kCuda);
          trial.scratch = Tensor({own_.scratch_bytes()}, DType::kU8, Device::kCuda);
          return time_work(*trial.stream, [&] { queue(trial, x, dy, to); });
        };
        const double all_ms = ms_with(all);
        return ms_with(static_cast<int>(part)) < all_ms ? "part" : "all";
      } catch (const OutOfMemory&) {
        return "";
      }
    });
    return choice == "part" ? static_cast<int>(part) : all;
  }

  // Uses cuDNN's plans if they are faster than our own kernels; cuDNN does not support groups. Its plans need a launch
  // more for the relu in each direction.
  void choose_plans(Cuda cuda, const Shape& in, NormMethod method) {
    const DType dtype = activation_type(cuda.precision);
    const MeasuringTurn turn;
    const Stream& stream = setup_stream(Device::kCuda);
    const Shape image = in.rank() == 4 ? in : Shape{in[0], 1, 1, channels_};
    const PlanRules rules = rules_for({Precision::kTf32, cuda.deterministic});  // this layer has no matrix products

    Pass trial;
    trial.stream = &stream;
    trial.scratch = Tensor({own_.scratch_bytes()}, DType::kU8, Device::kCuda);
    const CudnnGraph graph = forward_graph(image, dtype), gradient_graph = backward_graph(image, dtype);
    std::optional<ChosenPlan> forward = choose_plan(graph, rules, stream, keeps_nan(image, dtype, stream));
    const bool always = method == NormMethod::kCudnn;
    if (forward && (always || faster(*forward, rules, graph, [&] {
                      const Tensor x(in, dtype, Device::kCuda);
                      Tensor y(in, dtype, Device::kCuda);
                      const double own_ms =
                          time_work(stream, [&] { own_forward(x, {.relu = relu_ != nullptr}, y, trial); });
                      return relu_ ? own_ms - time_work(stream, [&] { relu_->forward(trial, y, y); }) : own_ms;
                    })))
      forward_ = std::move(forward->plan);
    std::optional<ChosenPlan> backward = choose_plan(gradient_graph, rules, stream);
    if (backward && (always || faster(*backward, rules, gradient_graph, [&] {
                       const Tensor x(in, dtype, Device::kCuda), dy(in, dtype, Device::kCuda);
                       Tensor dx(in, dtype, Device::kCuda), masked = dy;
                       const bool masks_first = forward_.has_value();
                       const double own_ms = time_work(stream, [&] {
                         own_.backward(x, dy, relu_ && !masks_first, statistics_, {}, {}, &dx, sums(trial), stream);
                       });
                       if (!relu_ || masks_first) return own_ms;
                       return own_ms - time_work(stream, [&] { relu_->backward_data(trial, x, x, dy, &masked); });
                     })))
      backward_ = std::move(backward->plan);
  }

  // most_ms(): the time of our own kernels, less the time of what cuDNN's plan does not do.
  template <class MostMs>
  bool faster(const ChosenPlan& chosen, const PlanRules& rules, const CudnnGraph& graph, const MostMs& most_ms) const {
    const std::string what = concat("own kernels or cuDNN, ", relu_ ? "relu, " : "", rules.text(), "\n", graph.text());
    return remembered(what, [&]() -> std::string {
             try {
               return chosen.ms == 0 ? "" : chosen.ms < most_ms() ? "cuDNN" : "own";
             } catch (const OutOfMemory&) {
               return "";
             }
           }) == "cuDNN";
  }

  // A NaN must not disappear, so that a network that diverges shows it.
  static PlanCheck keeps_nan(const Shape& image, DType dtype, const Stream& stream) {
    const auto bytes = static_cast<size_t>(image.elements() * size_of(dtype));
    return
        [bytes, dtype, &stream](const std::function<void*(CudnnGraph::Id)>& memory, const std::function<void()>& run) {
          OWT_CUDA(cudaMemsetAsync(memory(kX), 0xff, bytes, cuda_stream(stream)));  // NaN in f32 and bf16
          run();
          OWT_CUDA(cudaMemsetAsync(memory(kX), 0x3c, bytes, cuda_stream(stream)));
          return starts_with_nan(memory(kY), dtype, stream);
        };
  }

  BatchNormParams params_;
  double eps_;
  alignas(16) float eps_number_;  // in the form that cuDNN reads
  bool frozen_;
  std::unique_ptr<Op> relu_;  // for work that has no relu of its own; null: none follows
  RowGroups groups_;
  int64_t channels_, pixels_;  // per row
  OwnNorm own_;
  Tensor zeros_;  // for a frozen layer
  KeptStatistics statistics_;
  Tensor totals_;                                // [2, channels], if all rows of the step are one group
  std::optional<CudnnPlan> forward_, backward_;  // none: our own kernels
  int64_t dscale_ = 0, dbias_ = 0;               // byte offsets of cuDNN's gradients in scratch memory
};

}  // namespace

std::unique_ptr<Op> bind_batch_norm_by(NormMethod method, Cuda cuda, BatchNormParams params,
                                       const BatchNormSettings& settings, const Shape& in) {
  return std::make_unique<CudaBatchNorm>(cuda, params, settings, in, method);
}

std::unique_ptr<Op> bind_batch_norm(Cuda cuda, BatchNormParams params, const BatchNormSettings& settings,
                                    const Shape& in) {
  return bind_batch_norm_by(NormMethod::kFastest, cuda, params, settings, in);
}

}  // namespace owt
