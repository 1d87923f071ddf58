#include "layers/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>

#include "layers/base/summing_op.h"
#include "layers/batch_norm_method.h"
#include "layers/branch_sums.h"
#include "layers/gpu/batch_norm_kernels.cuh"
#include "layers/gpu/cudnn.h"
#include "layers/gpu/plan_choice.h"
#include "layers/relu.h"
#include "src/core/cuda.h"
#include "src/core/grid.h"
#include "src/core/memory.h"
#include "src/core/row_groups.h"
#include "src/system/check.h"

namespace owt {
namespace {

Tensor per_channel(int64_t channels, int64_t groups = 1) {
  return Tensor({groups * channels}, DType::kF32, Device::kCuda);
}

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

// Calls to.put() for every channel with the sums over all ranks. positions: the number over all ranks.
template <class Outputs>
__global__ void put_totals(Outputs to, const double* totals, double positions, int channels) {
  wait_for_previous_kernel();
  const int channel = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (channel >= channels) return;
  if constexpr (std::is_same_v<Outputs, NormOutputs>)
    to.put(channel, 0, totals[channel], totals[channels + channel], positions);
  else
    to.put(channel, totals[channel], totals[channels + channel], positions);
}

// The sums of a group of which other ranks have rows too.
struct SharedSums {
  StepSums* ranks = nullptr;  // null: no other rank has rows of the group
  Tensor totals{};            // f64, [2, channels]
  double positions = 0;       // over all ranks

  double* place() const { return ranks ? Tensor(totals).data<double>() : nullptr; }
  // Sums the values at place() over all ranks and stores the result in `to`.
  template <class Outputs>
  void exchange(const Outputs& to, const Stream& stream) const {
    if (!ranks) return;
    Tensor sums = totals;
    ranks->add_up(sums, stream);
    const int64_t channels = sums.elements() / 2;
    launch(put_totals<Outputs>, dim3(blocks_for(channels)), dim3(kBlockThreads), stream, to, sums.data<double>(),
           positions, static_cast<int>(channels));
  }
};

// Stored by forward for backward, for each group.
struct Statistics {
  Tensor mean, inverse_std;
  Tensor scale{}, bias{};  // our own forward with a relu stores them, for the signs of y
};

// The numbers that normalise a channel. Either inverse_std or variance is null.
struct Norm {
  const float *weight, *bias, *mean, *inverse_std, *variance;
};

template <class Function>
void with_flag(bool flag, const Function& function) {
  flag ? function(std::true_type{}) : function(std::false_type{});
}

// What follows normalisation in the same kernel. other: for a sum, else null.
struct Following {
  bool relu = false;
  const Tensor* other = nullptr;
};
template <NormThen kThen>
using Then = std::integral_constant<NormThen, kThen>;

template <class Function>
void with_following(const Following& following, const Function& function) {
  if (following.other)
    following.relu ? function(Then<NormThen::kPositiveSum>{}) : function(Then<NormThen::kSum>{});
  else
    following.relu ? function(Then<NormThen::kRelu>{}) : function(Then<NormThen::kNothing>{});
}

// Both directions by our own kernels; works for any shape. Each direction sums, then passes over the same elements
// again. If it takes few groups at a time, the GPU's L2 cache still holds them.
class OwnNorm {
 public:
  struct AtOnce {
    int forward, backward;  // groups
  };

  OwnNorm(const BatchNormParams& params, double eps, const PositionGroups& positions, int64_t channels, DType dtype)
      : params_(params),
        eps_(eps),
        positions_(positions),
        channels_(channels),
        dtype_(dtype),
        dy_mean_(per_channel(channels, positions.count)),
        tilt_(per_channel(channels, positions.count)),
        dweight_(per_channel(channels, positions.count)),
        dbias_(per_channel(channels, positions.count)),
        arrived_(arrived_blocks(channels, positions.count)),
        at_once_{positions.count, positions.count} {}

  void set_at_once(const AtOnce& groups) { at_once_ = groups; }

  int64_t scratch_bytes() const {
    int64_t most = 0;
    for (const int groups : {positions_.count, at_once_.forward, at_once_.backward})
      most = std::max(most, partial_sums(positions_.part(0, groups), channels_, 2, NormSums<float, 1>::kResident));
    return most * size_of(DType::kF32);
  }

  // Normalises with the statistics of each group, and stores these.
  void forward(const Tensor& x, const Statistics& statistics, const SharedSums& shared, const Following& following,
               Tensor& y, float* partial, const Stream& stream) {
    const Norm norm{params_.weight.value.data(), params_.bias.value.data(), statistics.mean.data(),
                    statistics.inverse_std.data(), nullptr};
    for_parts(at_once_.forward, [&](const PositionGroups& part) {
      measure(x, part, statistics, shared, partial, stream);
      normalize(x, norm, part, following, &statistics, y, stream);
    });
  }

  // Normalises with the running averages.
  void evaluate(const Tensor& x, const Following& following, Tensor& y, const Stream& stream) const {
    const Norm norm{params_.weight.value.data(), params_.bias.value.data(), params_.running_mean.value.data(), nullptr,
                    params_.running_var.value.data()};
    normalize(x, norm, all(), following, nullptr, y, stream);
  }

  // dx = weight / sqrt(running_var + eps) * dy: the gradient of normalisation with the running averages.
  void scale(const Tensor& dy, const Tensor& zeros, Tensor& dx, const Stream& stream) const {
    const float *weight = params_.weight.value.data(), *none = zeros.data();
    normalize(dy, {weight, none, none, nullptr, params_.running_var.value.data()}, all(), {}, nullptr, dx, stream);
  }

  // dy: the gradient of y, with `through_relu` before the relu, which then masks it. dx may be null.
  void backward(const Tensor& x, const Tensor& dy, bool through_relu, const Statistics& statistics,
                const NormParamGradients& params, const SharedSums& shared, Tensor* dx, float* partial,
                const Stream& stream) {
    const float* scale = params_.weight.value.data();
    with_packs({x.raw(), dy.raw(), dx ? dx->raw() : nullptr, scale}, [&](auto t, auto width) {
      with_flag(through_relu, [&](auto relu) {
        using T = decltype(t);
        const float *mean = statistics.mean.data(), *inverse_std = statistics.inverse_std.data();
        NormOutputGradient<T, width, relu> gradient{dy.data<T>(), nullptr, nullptr};
        if (relu) gradient = {dy.data<T>(), statistics.scale.data(), statistics.bias.data()};
        for_parts(dx ? at_once_.backward : positions_.count, [&](const PositionGroups& part) {
          queue_over_channels(NormGradientSums<T, width, relu>{x.data<T>(), gradient, mean}, part, channels_, stream,
                              NormGradients{mean, inverse_std, params, dy_mean_.data(), tilt_.data(), dweight_.data(),
                                            dbias_.data(), dx ? shared.place() : nullptr},
                              memory(partial));
          if (!dx) return;
          shared.exchange(NormSlopes{inverse_std, dy_mean_.data(), tilt_.data()}, stream);
          queue_over_channels(NormInputGradient<T, width, relu>{x.data<T>(), gradient, dx->data<T>(), scale,
                                                                inverse_std, mean, dy_mean_.data(), tilt_.data()},
                              part, channels_, stream);
        });
      });
    });
  }

 private:
  template <class Function>
  void for_parts(int groups, const Function& function) const {
    for (int first = 0; first < positions_.count; first += groups)
      function(positions_.part(first, std::min(groups, positions_.count - first)));
  }

  void measure(const Tensor& x, const PositionGroups& part, const Statistics& to, const SharedSums& shared,
               float* partial, const Stream& stream) {
    Tensor mean = to.mean, inverse_std = to.inverse_std;
    const NormOutputs outputs{eps_, mean.data(), inverse_std.data()};
    with_packs({x.raw()}, [&](auto t, auto width) {
      using T = decltype(t);
      queue_over_channels(NormSums<T, width>{x.data<T>(), x.data<T>()}, part, channels_, stream,
                          NormStatistics<T>{x.data<T>(), outputs, shared.place()}, memory(partial));
    });
    shared.exchange(outputs, stream);
  }

  PositionGroups all() const { return PositionGroups(positions_.positions); }

  // keeps: for scale and bias, if it has memory for them; may be null.
  void normalize(const Tensor& x, const Norm& by, const PositionGroups& positions, const Following& following,
                 const Statistics* keeps, Tensor& y, const Stream& stream) const {
    Tensor scale, bias;
    if (keeps) scale = keeps->scale, bias = keeps->bias;
    const void* const other = following.other ? following.other->raw() : nullptr;
    with_packs({x.raw(), y.raw(), other, by.weight, by.bias, by.mean, by.inverse_std, by.variance}, [&](auto t,
                                                                                                        auto width) {
      with_following(following, [&](auto then) {
        using T = decltype(t);
        queue_over_channels(
            Normalize<T, width, then>{x.data<T>(), static_cast<const T*>(other), y.data<T>(), by.weight, by.bias,
                                      by.mean, by.inverse_std, by.variance, static_cast<float>(eps_),
                                      scale.defined() ? scale.data() : nullptr, bias.defined() ? bias.data() : nullptr},
            positions, channels_, stream);
      });
    });
  }

  SumMemory memory(float* partial) { return {partial, static_cast<unsigned*>(arrived_.raw())}; }

  template <class Function>
  void with_packs(std::initializer_list<const void*> addresses, const Function& function) const {
    with_element(dtype_, [&](auto t) { with_width<decltype(t)>(channels_, addresses, function); });
  }

  BatchNormParams params_;
  double eps_;
  PositionGroups positions_;
  int64_t channels_;
  DType dtype_;
  Tensor dy_mean_, tilt_, dweight_, dbias_, arrived_;
  AtOnce at_once_;
};

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
  SharedSums shared(const Pass& pass) const {
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

  void own_forward(const Tensor& x, const Following& following, Tensor& y, const Pass& pass) {
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
  Statistics statistics_;
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
