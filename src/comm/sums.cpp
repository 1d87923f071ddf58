#include "src/comm/sums.h"

#include <algorithm>
#include <type_traits>

#include "src/core/bf16.h"
#include "src/core/threads.h"
#include "src/system/check.h"

namespace owt {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements per thread
constexpr int64_t kBlock = 2048;     // elements per block; its partial sum stays in the cache

template <class T>
void sum_block(const std::vector<const void*>& addends, int64_t begin, int64_t count, T* sum) {
  std::conditional_t<std::is_same_v<T, double>, double, float> total[kBlock];
  for (size_t r = 0; r < addends.size(); ++r) {
    const T* more = static_cast<const T*>(addends[r]) + begin;
    if (r == 0)
      for (int64_t i = 0; i < count; ++i) total[i] = more[i];
    else
      for (int64_t i = 0; i < count; ++i) total[i] += more[i];
  }
  for (int64_t i = 0; i < count; ++i) sum[begin + i] = T(total[i]);
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
