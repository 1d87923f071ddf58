#include "src/core/conversions.h"

#include "src/core/bf16.h"
#include "src/core/threads.h"
#include "src/system/check.h"

namespace owt {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements per thread

void check_pair(const Tensor& f32, const Tensor& bf16) {
  OWT_CHECK(f32.dtype() == DType::kF32 && bf16.dtype() == DType::kBF16, "from or to f32 and bf16, not ",
            name_of(f32.dtype()), " and ", name_of(bf16.dtype()));
  OWT_CHECK_EQ(f32.elements(), bf16.elements());
}

}  // namespace

void round_to_bf16(Cpu, const Tensor& f32, Tensor& bf16, const Stream&) {
  check_pair(f32, bf16);
  const float* const from = f32.data();
  auto* const to = static_cast<uint16_t*>(bf16.raw());
  parallel_for(f32.elements(), kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) to[i] = to_bf16(from[i]);
  });
}

void widen_to_f32(Cpu, const Tensor& bf16, Tensor& f32, const Stream&) {
  check_pair(f32, bf16);
  const auto* const from = static_cast<const uint16_t*>(bf16.raw());
  float* const to = f32.data();
  parallel_for(f32.elements(), kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) to[i] = from_bf16(from[i]);
  });
}

void round_as_bf16(Cpu, const Tensor& f32, Tensor& rounded_f32, const Stream&) {
  OWT_CHECK_EQ(f32.elements(), rounded_f32.elements());
  const float* const from = f32.data();
  float* const to = rounded_f32.data();
  parallel_for(f32.elements(), kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) to[i] = from_bf16(to_bf16(from[i]));
  });
}

void round_to_f32(Cpu, const Tensor& f64, Tensor& f32, const Stream&) {
  OWT_CHECK_EQ(f64.elements(), f32.elements());
  const double* const from = f64.data<double>();
  float* const to = f32.data();
  parallel_for(f32.elements(), kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) to[i] = static_cast<float>(from[i]);
  });
}

Tensor f32_on_host(const Tensor& values) {
  const Tensor here = values.to(Device::kCpu);
  if (here.dtype() == DType::kF32) return here;
  Tensor wide(here.shape());
  widen_to_f32(Cpu{}, here, wide, Stream());
  return wide;
}

}  // namespace owt
