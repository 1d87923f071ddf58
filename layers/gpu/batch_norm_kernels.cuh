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

// y = weight * (x - mean) * inverse_std + bias. If variance is given, inverse_std is 1 / sqrt(variance + eps).
template <class T, int kPackWidth>
struct Normalize {
  static constexpr int kWidth = kPackWidth, kSums = 0, kResident = 5;
  struct ScaleAndShift {
    float mean[kWidth], scale[kWidth], bias[kWidth];
  };
  const T* x;
  T* y;
  const float *weight, *bias, *mean, *inverse_std, *variance;
  float eps;

  __device__ void enter(const PositionGroup& group) {
    mean += int64_t{group.index} * group.channels;
    inverse_std += int64_t{group.index} * group.channels;
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
    return local;
  }
  __device__ void at(int64_t, int64_t index, const ScaleAndShift& local, float (&)[kMaxSums][kWidth]) const {
    Pack<T, kWidth> pack = load_pack<T, kWidth>(x + index);
    for (int i = 0; i < kWidth; ++i)
      pack.at[i] = from_float<T>((to_float(pack.at[i]) - local.mean[i]) * local.scale[i] + local.bias[i]);
    store_pack(y + index, pack);
  }
};

// Sums of dy and of dy * (x - mean).
template <class T, int kPackWidth>
struct NormGradientSums {
  static constexpr int kWidth = kPackWidth, kSums = 2, kResident = 4;
  struct Means {
    float mean[kWidth];
  };
  const T *x, *dy;
  const float* mean;

  __device__ void enter(const PositionGroup& group) { mean += int64_t{group.index} * group.channels; }
  __device__ Means prepare(int channel) const {
    Means local;
    load_numbers(mean + channel, local.mean);
    return local;
  }
  __device__ void at(int64_t, int64_t index, const Means& local, float (&sums)[kMaxSums][kWidth]) const {
    const Pack<T, kWidth> in = load_pack<T, kWidth>(x + index), gradient = load_pack<T, kWidth>(dy + index);
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

// Computes the inputs of NormInputGradient from NormGradientSums, and the gradients of all parameters. With one group
// they are added directly; with several the contributions to weight and bias are stored in dweight and dbias. If other
// ranks have rows of the group too, it writes the sums to `totals`, [2, channels], for the sum over all ranks.
struct NormGradients {
  const float *mean, *inverse_std;
  NormParamGradients params;
  float *dy_mean, *tilt, *dweight, *dbias;
  double* totals = nullptr;
  double positions = 0;  // size of the group
  int channels = 0;

  __device__ void enter(const PositionGroup& group) {
    const int64_t first = int64_t{group.index} * group.channels;
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
    if (gridDim.z > 1) {
      dweight[channel] = static_cast<float>(sums[1] * inverse);
      dbias[channel] = static_cast<float>(sums[0]);
      return;
    }
    NormParamGradients::Terms terms;
    params.take(sums[1] * inverse, sums[0], mean[channel], inverse_std[channel], params.last_factors, terms);
    params.add(channel, terms);
  }
};

// dx = weight * inverse_std * (dy - mean of dy - (x - mean) * tilt)
template <class T, int kPackWidth>
struct NormInputGradient {
  static constexpr int kWidth = kPackWidth, kSums = 0, kResident = 1;
  struct InputGradientTerms {
    float scale[kWidth], mean[kWidth], dy_mean[kWidth], tilt[kWidth];
  };
  const T *x, *dy;
  T* dx;
  const float *weight, *inverse_std, *mean, *dy_mean, *tilt;

  __device__ void enter(const PositionGroup& group) {
    const int64_t first = int64_t{group.index} * group.channels;
    inverse_std += first;
    mean += first;
    dy_mean += first;
    tilt += first;
  }
  __device__ InputGradientTerms prepare(int channel) const {
    InputGradientTerms local;
    float factor[kWidth];
    load_numbers(weight + channel, factor);
    load_numbers(inverse_std + channel, local.scale);
    load_numbers(mean + channel, local.mean);
    load_numbers(dy_mean + channel, local.dy_mean);
    load_numbers(tilt + channel, local.tilt);
    for (int i = 0; i < kWidth; ++i) local.scale[i] *= factor[i];
    return local;
  }
  __device__ void at(int64_t, int64_t index, const InputGradientTerms& local, float (&)[kMaxSums][kWidth]) const {
    const Pack<T, kWidth> in = load_pack<T, kWidth>(x + index), gradient = load_pack<T, kWidth>(dy + index);
    Pack<T, kWidth> out;
    for (int i = 0; i < kWidth; ++i) {
      const float centered = (to_float(in.at[i]) - local.mean[i]) * local.tilt[i];
      out.at[i] = from_float<T>(local.scale[i] * (to_float(gradient.at[i]) - local.dy_mean[i] - centered));
    }
    store_pack(dx + index, out);
  }
};

}  // namespace owt
