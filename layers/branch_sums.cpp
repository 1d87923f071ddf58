#include "layers/branch_sums.h"

#include <algorithm>

#include "src/core/bf16.h"
#include "src/core/threads.h"

namespace owt {
namespace {

constexpr int64_t kSumGrain = 1 << 14;  // elements per thread that are worth waking it for
constexpr int64_t kProductBlock = 512;  // channels whose products are summed together
constexpr int64_t kPartPositions = 32;  // positions that are summed in f32

// Calls function(i) for every element, shared among the threads.
template <class Function>
void for_each_element(int64_t elements, const Function& function) {
  parallel_for(elements, kSumGrain, [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) function(i);
  });
}

// The sums for at most kProductBlock channels of one image. Sums of few positions are f32; these are added in f64.
template <class T>
void sum_products(const T* x, const T* dy, int64_t positions, int64_t stride, int64_t channels, T* sums) {
  double whole[kProductBlock] = {};
  for (int64_t first = 0; first < positions; first += kPartPositions) {
    float part[kProductBlock] = {};
    for (int64_t p = first; p < std::min(first + kPartPositions, positions); ++p) {
      const T *a = x + p * stride, *b = dy + p * stride;
#pragma omp simd
      for (int64_t c = 0; c < channels; ++c) part[c] += a[c] * b[c];
    }
    for (int64_t c = 0; c < channels; ++c) whole[c] += static_cast<double>(part[c]);
  }
  for (int64_t c = 0; c < channels; ++c) keep(static_cast<float>(whole[c]), sums[c]);
}

}  // namespace

void add_branches(Cpu, const Tensor& a, const Tensor& b, bool relu, Tensor& y, const Stream&) {
  with_cpu_element(y.dtype(), [&](auto element) {
    using T = decltype(element);
    const T *first = a.data<T>(), *second = b.data<T>();
    T* to = y.data<T>();
    if (!relu) return for_each_element(y.elements(), [=](int64_t i) { keep(first[i] + second[i], to[i]); });
    for_each_element(y.elements(), [=](int64_t i) {
      const float sum = first[i] + second[i];
      keep(sum < 0 ? 0.0f : sum, to[i]);
    });
  });
}

void scale_difference(Cpu, const Tensor& a, const Tensor& b, float factor, Tensor& y, const Stream&) {
  with_cpu_element(y.dtype(), [&](auto element) {
    using T = decltype(element);
    const T *first = a.data<T>(), *second = b.data<T>();
    T* to = y.data<T>();
    for_each_element(y.elements(), [=](int64_t i) { keep(factor * (first[i] - second[i]), to[i]); });
  });
}

void add_where_positive(Cpu, const Tensor& a, const Tensor& b, const Tensor& x, Tensor& dx, const Stream&) {
  with_cpu_element(dx.dtype(), [&](auto element) {
    using T = decltype(element);
    const T *first = a.data<T>(), *second = b.data<T>(), *in = x.data<T>();
    T* to = dx.data<T>();
    for_each_element(dx.elements(), [=](int64_t i) {
      const float sum = first[i] + second[i];  // always computed, so that the choice needs no branch
      keep(in[i] > 0 ? sum : 0.0f, to[i]);
    });
  });
}

void scale_channels(Cpu, const Tensor& x, const Tensor& factors, bool adds, Tensor& y, const Stream&) {
  const int64_t channels = factors.shape()[1], positions = x.shape().row_elements() / channels;
  with_cpu_element(y.dtype(), [&](auto element) {
    using T = decltype(element);
    const T *from = x.data<T>(), *by = factors.data<T>();
    T* to = y.data<T>();
    parallel_for(x.shape().rows() * positions, kSumGrain / channels, [=](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        const T *of = from + p * channels, *factor = by + p / positions * channels;
        T* sum = to + p * channels;
        if (adds)
#pragma omp simd
          for (int64_t c = 0; c < channels; ++c) keep(sum[c] + of[c] * factor[c], sum[c]);
        else
#pragma omp simd
          for (int64_t c = 0; c < channels; ++c) keep(of[c] * factor[c], sum[c]);
      }
    });
  });
}

void sum_channel_products(Cpu, const Tensor& x, const Tensor& dy, Tensor& sums, const Stream&) {
  const int64_t channels = sums.shape()[1], row = x.shape().row_elements();
  with_cpu_element(x.dtype(), [&](auto element) {
    using T = decltype(element);
    const T *a = x.data<T>(), *b = dy.data<T>();
    T* to = sums.data<T>();
    parallel_for(x.shape().rows(), kSumGrain / row, [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n)
        for (int64_t c = 0; c < channels; c += kProductBlock)
          sum_products(a + n * row + c, b + n * row + c, row / channels, channels,
                       std::min(kProductBlock, channels - c), to + n * channels + c);
    });
  });
}

}  // namespace owt
