#include "src/comm/sums.h"

#include <algorithm>

#include "src/core/bf16.h"
#include "src/core/check.h"
#include "src/core/threads.h"

namespace owt {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements per thread
constexpr int64_t kBlock = 2048;     // elements whose growing sum stays in the cache

struct Bf16 {
  uint16_t bits;
};

float widened(float value) { return value; }
double widened(double value) { return value; }
float widened(Bf16 value) { return from_bf16(value.bits); }

void narrow(float value, float& to) { to = value; }
void narrow(double value, double& to) { to = value; }
void narrow(float value, Bf16& to) { to.bits = to_bf16(value); }

template <class T>
void sum_block(const std::vector<const void*>& addends, int64_t begin, int64_t count, T* sum) {
  decltype(widened(T{})) total[kBlock];
  for (size_t r = 0; r < addends.size(); ++r) {
    const T* more = static_cast<const T*>(addends[r]) + begin;
    if (r == 0)
      for (int64_t i = 0; i < count; ++i) total[i] = widened(more[i]);
    else
      for (int64_t i = 0; i < count; ++i) total[i] += widened(more[i]);
  }
  for (int64_t i = 0; i < count; ++i) narrow(total[i], sum[begin + i]);
}

template <class T>
void sum_all(const std::vector<const void*>& addends, int64_t elements, void* sum) {
  parallel_for(elements, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += kBlock)
      sum_block(addends, first, std::min(kBlock, end - first), static_cast<T*>(sum));
  });
}

}  // namespace

void sum_up(Cpu, DType dtype, const std::vector<const void*>& addends, int64_t elements, void* sum, const Stream&) {
  switch (dtype) {
    case DType::kF32:
      return sum_all<float>(addends, elements, sum);
    case DType::kF64:
      return sum_all<double>(addends, elements, sum);
    case DType::kBF16:
      return sum_all<Bf16>(addends, elements, sum);
    default:
      OWT_CHECK(false, "sums are of f32, f64 or bf16, not ", name_of(dtype));
  }
}

}  // namespace owt
