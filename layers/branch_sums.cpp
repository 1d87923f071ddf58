#include "layers/branch_sums.h"

#include "src/core/bf16.h"
#include "src/core/threads.h"

namespace owt {
namespace {

constexpr int64_t kSumGrain = 1 << 14;  // elements per thread that are worth waking it for

// Calls function(i) for every element, shared among the threads.
template <class Function>
void for_each_element(int64_t elements, const Function& function) {
  parallel_for(elements, kSumGrain, [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) function(i);
  });
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

}  // namespace owt
