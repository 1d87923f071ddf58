// Batch normalisation on a GPU by our own kernels.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <type_traits>

#include "layers/base/summing_op.h"
#include "layers/batch_norm.h"
#include "layers/gpu/batch_norm_kernels.cuh"
#include "src/core/cuda.h"
#include "src/core/grid.h"
#include "src/core/memory.h"

namespace owt {

// f32, [groups, channels].
inline Tensor per_channel(int64_t channels, int64_t groups = 1) {
  return Tensor({groups * channels}, DType::kF32, Device::kCuda);
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
struct SharedNormSums {
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
struct KeptStatistics {
  Tensor mean, inverse_std;
  Tensor scale{}, bias{};  // our own forward with a relu stores them, for the signs of y
};

// The numbers that normalise a channel. Either inverse_std or variance is null.
struct NormNumbers {
  const float *weight, *bias, *mean, *inverse_std, *variance;
};

template <class Function>
void with_flag(bool flag, const Function& function) {
  flag ? function(std::true_type{}) : function(std::false_type{});
}

// What follows normalisation in the same kernel. other: for a sum, else null.
struct NormFollower {
  bool relu = false;
  const Tensor* other = nullptr;
};
template <NormThen kThen>
using ThenConstant = std::integral_constant<NormThen, kThen>;

template <class Function>
void with_following(const NormFollower& following, const Function& function) {
  if (following.other)
    following.relu ? function(ThenConstant<NormThen::kPositiveSum>{}) : function(ThenConstant<NormThen::kSum>{});
  else
    following.relu ? function(ThenConstant<NormThen::kRelu>{}) : function(ThenConstant<NormThen::kNothing>{});
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
  void forward(const Tensor& x, const KeptStatistics& statistics, const SharedNormSums& shared,
               const NormFollower& following, Tensor& y, float* partial, const Stream& stream) {
    const NormNumbers norm{params_.weight.value.data(), params_.bias.value.data(), statistics.mean.data(),
                           statistics.inverse_std.data(), nullptr};
    for_parts(at_once_.forward, [&](const PositionGroups& part) {
      measure(x, part, statistics, shared, partial, stream);
      normalize(x, norm, part, following, &statistics, y, stream);
    });
  }

  // Normalises with the running averages.
  void evaluate(const Tensor& x, const NormFollower& following, Tensor& y, const Stream& stream) const {
    const NormNumbers norm{params_.weight.value.data(), params_.bias.value.data(), params_.running_mean.value.data(),
                           nullptr, params_.running_var.value.data()};
    normalize(x, norm, all(), following, nullptr, y, stream);
  }

  // dx = weight / sqrt(running_var + eps) * dy: the gradient of normalisation with the running averages.
  void scale(const Tensor& dy, const Tensor& zeros, Tensor& dx, const Stream& stream) const {
    const float *weight = params_.weight.value.data(), *none = zeros.data();
    normalize(dy, {weight, none, none, nullptr, params_.running_var.value.data()}, all(), {}, nullptr, dx, stream);
  }

  // dy: the gradient of y, with `through_relu` before the relu, which then masks it. dx may be null.
  void backward(const Tensor& x, const Tensor& dy, bool through_relu, const KeptStatistics& statistics,
                const NormParamGradients& params, const SharedNormSums& shared, Tensor* dx, float* partial,
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

  void measure(const Tensor& x, const PositionGroups& part, const KeptStatistics& to, const SharedNormSums& shared,
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
  void normalize(const Tensor& x, const NormNumbers& by, const PositionGroups& positions, const NormFollower& following,
                 const KeptStatistics* keeps, Tensor& y, const Stream& stream) const {
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

}  // namespace owt
