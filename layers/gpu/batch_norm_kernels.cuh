// Batch normalisation per channel on a GPU; layers/batch_norm.h has the formulas.
#pragma once

#include "layers/gpu/channels.cuh"

namespace owt {

// Sums of x and of x^2, both after subtracting the first element of the channel in the group. Without the subtraction
// f32 would lose a variance that is small compared to the mean.
template <class T, int kPackWidth>
struct NormSums {
  static constexpr int kWidth = kPackWidth, kSums = 2, kResident = 4;
  struct Pivots {
    float pivot[kWidth];
  };
  const T *x, *pivots;  // pivots: x at the first position of the group

  __device__ void enter(const PositionGroup& group) { pivots += group.first * group.channels; }
  __device__ Pivots prepare(int channel) const {
    Pivots local;
    const Pack<T, kWidth> first = load_pack<T, kWidth>(pivots + channel);
    for (int i = 0; i < kWidth; ++i) local.pivot[i] = to_float(first.at[i]);
    return local;
  }
  __device__ void at(int64_t, int64_t index, const Pivots& local, float (&sums)[kMaxSums][kWidth]) const {
    const Pack<T, kWidth> in = load_pack<T, kWidth>(x + index);
    for (int i = 0; i < kWidth; ++i) {
      const float value = to_float(in.at[i]) - local.pivot[i];
      sums[0][i] += value;
      sums[1][i] += value * value;
    }
  }
};

// Stores the statistics of a group.
struct NormOutputs {
  double eps;
  float *mean, *inverse_std;

  // `pivot` was subtracted from the summed values.
  __device__ void put(int channel, double pivot, double sum, double squares, double positions) const {
    const double shifted = sum / positions;
    const double variance = squares / positions - shifted * shifted;
    mean[channel] = static_cast<float>(pivot + shifted);
    inverse_std[channel] = static_cast<float>(1 / sqrt((variance < 0 ? 0 : variance) + eps));  // NaN stays
  }
};

// Computes mean and 1 / sqrt(variance + eps) from NormSums. If other ranks have rows of the group too, it writes the
// sums of x and x^2 to `totals`, [2, channels], for the sum over all ranks.
template <class T>
struct NormStatistics {
  const T* pivots;
  NormOutputs to;
  double* totals = nullptr;
  double positions = 0;  // size of the group
  int channels = 0;

  __device__ void enter(const PositionGroup& group) {
    pivots += group.first * group.channels;
    to.mean += int64_t{group.index} * group.channels;
    to.inverse_std += int64_t{group.index} * group.channels;
    positions = static_cast<double>(group.last - group.first);
    channels = group.channels;
  }
  __device__ void operator()(int channel, const double* sums) const {
    const auto pivot = static_cast<double>(to_float(pivots[channel]));
    if (!totals) return to.put(channel, pivot, sums[0], sums[1], positions);
    totals[channel] = sums[0] + positions * pivot;
    totals[channels + channel] = sums[1] + pivot * (2 * sums[0] + positions * pivot);
  }
};

// The result of normalisation, by the same instructions wherever it is computed.
template <class T>
__device__ T normalized(T x, float mean, float scale, float bias) {
  return from_float<T>(fmaf(to_float(x) - mean, scale, bias));
}

// What Normalize does with the result before it stores it: its positive part; the sum with `other`; that sum's positive
// part.
enum class NormThen { kNothing, kRelu, kSum, kPositiveSum };

// y = weight * (x - mean) * inverse_std + bias, then kThen. If variance is given, inverse_std is
// 1 / sqrt(variance + eps). Unless they are null, kept_scale and kept_bias get weight * inverse_std and bias of each
// group, because the parameters may be others in backward.
template <class T, int kPackWidth, NormThen kThen>
struct Normalize {
  static constexpr int kWidth = kPackWidth, kSums = 0, kResident = 5;
  struct ScaleAndShift {
    float mean[kWidth], scale[kWidth], bias[kWidth];
  };
  const T *x, *other;  // other: null without a sum
  T* y;
  const float *weight, *bias, *mean, *inverse_std, *variance;
  float eps;
  float *kept_scale, *kept_bias;

  __device__ void enter(const PositionGroup& group) {
    const int64_t first = int64_t{group.index} * group.channels;
    mean += first;
    inverse_std += first;
    if (!kept_scale) return;
    kept_scale += first;
    kept_bias += first;
  }
  __device__ ScaleAndShift prepare(int channel) const {
    ScaleAndShift local;
    float factor[kWidth];
    load_numbers(weight + channel, factor);
    load_numbers((variance ? variance : inverse_std) + channel, local.scale);
    load_numbers(mean + channel, local.mean);
    load_numbers(bias + channel, local.bias);
    for (int i = 0; i < kWidth; ++i)
      local.scale[i] = factor[i] * (variance ? 1 / sqrtf(local.scale[i] + eps) : local.scale[i]);
    if (kept_scale && blockIdx.y == 0 && threadIdx.y == 0) {
      store_numbers(local.scale, kept_scale + channel);
      store_numbers(local.bias, kept_bias + channel);
    }
    return local;
  }
  __device__ void at(int64_t, int64_t index, const ScaleAndShift& local, float (&)[kMaxSums][kWidth]) const {
    constexpr bool kSums = kThen == NormThen::kSum || kThen == NormThen::kPositiveSum;
    Pack<T, kWidth> pack = load_pack<T, kWidth>(x + index), addend;
    if constexpr (kSums) addend = load_pack<T, kWidth>(other + index);
    for (int i = 0; i < kWidth; ++i) {
      T value = normalized(pack.at[i], local.mean[i], local.scale[i], local.bias[i]);
      if constexpr (kSums) value = from_float<T>(to_float(value) + to_float(addend.at[i]));
      if constexpr (kThen == NormThen::kRelu || kThen == NormThen::kPositiveSum)
        if (to_float(value) < 0) value = from_float<T>(0);  // NaN stays NaN
      pack.at[i] = value;
    }
    store_pack(y + index, pack);
  }
};

// The gradient of the result of normalisation: dy, or with kRelu dy where the result was positive. The sign is computed
// from x, which the kernels read in any case, so that neither y nor a masked dy moves through memory.
template <class T, int kWidth, bool kRelu>
struct NormOutputGradient {
  struct ForwardTerms {
    float scale[kRelu ? kWidth : 1], bias[kRelu ? kWidth : 1];
  };
  const T* dy;
  const float *scale, *bias;  // forward used them, for each group; null without kRelu

  __device__ void enter(int64_t first) {
    if constexpr (!kRelu) return;
    scale += first;
    bias += first;
  }
  __device__ ForwardTerms prepare(int channel) const {
    ForwardTerms local{};
    if constexpr (kRelu) {
      load_numbers(scale + channel, local.scale);
      load_numbers(bias + channel, local.bias);
    }
    return local;
  }
  __device__ Pack<T, kWidth> at(int64_t index, const Pack<T, kWidth>& x, const float (&mean)[kWidth],
                                const ForwardTerms& local) const {
    Pack<T, kWidth> gradient = load_pack<T, kWidth>(dy + index);
    if constexpr (kRelu)
      for (int i = 0; i < kWidth; ++i)
        if (!(to_float(normalized(x.at[i], mean[i], local.scale[i], local.bias[i])) > 0))
          gradient.at[i] = from_float<T>(0);
    return gradient;
  }
};

// Sums of dy and of dy * (x - mean).
template <class T, int kPackWidth, bool kRelu>
struct NormGradientSums {
  static constexpr int kWidth = kPackWidth, kSums = 2, kResident = 4;
  using Gradient = NormOutputGradient<T, kWidth, kRelu>;
  struct MeansAndForward {
    float mean[kWidth];
    typename Gradient::ForwardTerms forward;
  };
  const T* x;
  Gradient dy;
  const float* mean;

  __device__ void enter(const PositionGroup& group) {
    const int64_t first = int64_t{group.index} * group.channels;
    mean += first;
    dy.enter(first);
  }
  __device__ MeansAndForward prepare(int channel) const {
    MeansAndForward local;
    load_numbers(mean + channel, local.mean);
    local.forward = dy.prepare(channel);
    return local;
  }
  __device__ void at(int64_t, int64_t index, const MeansAndForward& local, float (&sums)[kMaxSums][kWidth]) const {
    const Pack<T, kWidth> in = load_pack<T, kWidth>(x + index), gradient = dy.at(index, in, local.mean, local.forward);
    for (int i = 0; i < kWidth; ++i) {
      const float slope = to_float(gradient.at[i]);
      sums[0][i] += slope;
      sums[1][i] += slope * (to_float(in.at[i]) - local.mean[i]);
    }
  }
};

// Factors for a group's mean and variance in the gradients of the running averages.
struct NormFactors {
  double mean = 0, variance = 0;
};

// The gradients of a channel's parameters, and the contributions of all groups.
struct NormParamGradients {
  AddToGrad weight, bias, running_mean, running_var;
  NormFactors factors, last_factors;  // for all groups but the last, and for the last
  double eps = 0;

  struct Terms {
    double weight = 0, bias = 0, mean = 0, variance = 0;
  };
  // Recovers the variance from inverse_std, with an error of 1e-7 of variance + eps.
  __device__ void take(double weight_gradient, double bias_gradient, float mean, float inverse_std,
                       const NormFactors& factors, Terms& terms) const {
    const auto inverse = static_cast<double>(inverse_std);
    const double variance = 1 / (inverse * inverse) - eps;
    terms.weight += weight_gradient;
    terms.bias += bias_gradient;
    terms.mean += factors.mean * static_cast<double>(mean);
    terms.variance += factors.variance * (variance < 0 ? 0 : variance);
  }
  __device__ void add(int channel, const Terms& terms) const {
    weight(channel, &terms.weight);
    bias(channel, &terms.bias);
    running_mean(channel, &terms.mean);
    running_var(channel, &terms.variance);
  }
};

// Computes the inputs of NormInputGradient for a group.
struct NormSlopes {
  const float* inverse_std;
  float *dy_mean, *tilt;

  __device__ void put(int channel, double sum, double products, double positions) const {
    const auto inverse = static_cast<double>(inverse_std[channel]);
    dy_mean[channel] = static_cast<float>(sum / positions);
    tilt[channel] = static_cast<float>(products / positions * inverse * inverse);
  }
};

// Computes the inputs of NormInputGradient from NormGradientSums, and the gradients of all parameters. With several
// groups the contributions to weight and bias are stored in dweight and dbias, and the last group to be finished adds
// them in the order of the groups. If other ranks have rows of the group too, it writes the sums to `totals`,
// [2, channels], for the sum over all ranks.
struct NormGradients {
  const float *mean, *inverse_std;
  NormParamGradients params;
  float *dy_mean, *tilt, *dweight, *dbias;
  double* totals = nullptr;
  double positions = 0;  // size of the group
  int channels = 0, index = 0, groups = 1;

  __device__ void enter(const PositionGroup& group) {
    const int64_t first = int64_t{group.index} * group.channels;
    index = group.index;
    groups = group.count;
    mean += first;
    inverse_std += first;
    dy_mean += first;
    tilt += first;
    dweight += first;
    dbias += first;
    positions = static_cast<double>(group.last - group.first);
    channels = group.channels;
  }
  __device__ void operator()(int channel, const double* sums) const {
    const auto inverse = static_cast<double>(inverse_std[channel]);
    if (totals) {
      totals[channel] = sums[0];
      totals[channels + channel] = sums[1];
    } else {
      NormSlopes{inverse_std, dy_mean, tilt}.put(channel, sums[0], sums[1], positions);
    }
    if (groups > 1) {
      dweight[channel] = static_cast<float>(sums[1] * inverse);
      dbias[channel] = static_cast<float>(sums[0]);
      return;
    }
    NormParamGradients::Terms terms;
    params.take(sums[1] * inverse, sums[0], mean[channel], inverse_std[channel], params.last_factors, terms);
    params.add(channel, terms);
  }
  __device__ void finish_groups(int channel) const {
    NormParamGradients::Terms terms;
    for (int group = 0; group < groups; ++group) {
      const int64_t i = int64_t{group - index} * channels + channel;
      params.take(static_cast<double>(dweight[i]), static_cast<double>(dbias[i]), mean[i], inverse_std[i],
                  group + 1 < groups ? params.factors : params.last_factors, terms);
    }
    params.add(channel, terms);
  }
};

// dx = weight * inverse_std * (dy - mean of dy - (x - mean) * tilt)
template <class T, int kPackWidth, bool kRelu>
struct NormInputGradient {
  static constexpr int kWidth = kPackWidth, kSums = 0, kResident = 1;
  using Gradient = NormOutputGradient<T, kWidth, kRelu>;
  struct InputGradientTerms {
    float scale[kWidth], mean[kWidth], dy_mean[kWidth], tilt[kWidth];
    typename Gradient::ForwardTerms forward;
  };
  const T* x;
  Gradient dy;
  T* dx;
  const float *weight, *inverse_std, *mean, *dy_mean, *tilt;

  __device__ void enter(const PositionGroup& group) {
    const int64_t first = int64_t{group.index} * group.channels;
    inverse_std += first;
    mean += first;
    dy_mean += first;
    tilt += first;
    dy.enter(first);
  }
  __device__ InputGradientTerms prepare(int channel) const {
    InputGradientTerms local;
    float factor[kWidth];
    load_numbers(weight + channel, factor);
    load_numbers(inverse_std + channel, local.scale);
    load_numbers(mean + channel, local.mean);
    load_numbers(dy_mean + channel, local.dy_mean);
    load_numbers(tilt + channel, local.tilt);
    local.forward = dy.prepare(channel);
    for (int i = 0; i < kWidth; ++i) local.scale[i] *= factor[i];
    return local;
  }
  __device__ void at(int64_t, int64_t index, const InputGradientTerms& local, float (&)[kMaxSums][kWidth]) const {
    const Pack<T, kWidth> in = load_pack<T, kWidth>(x + index), gradient = dy.at(index, in, local.mean, local.forward);
    Pack<T, kWidth> out;
    for (int i = 0; i < kWidth; ++i) {
      const float centered = (to_float(in.at[i]) - local.mean[i]) * local.tilt[i];
      out.at[i] = from_float<T>(local.scale[i] * (to_float(gradient.at[i]) - local.dy_mean[i] - centered));
    }
    store_pack(dx + index, out);
  }
};

}  // namespace owt
