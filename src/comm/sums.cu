#include "src/comm/sums.h"

#include <algorithm>

#include "src/core/elements.cuh"
#include "src/core/grid.h"
#include "src/core/launch.cuh"

namespace owt {
namespace {

constexpr size_t kMostAddends = 256;  // 2 KiB of the 4 KiB that kernel parameters may have on every GPU

struct Addends {
  const void* at[kMostAddends];
  int count;
};

__device__ inline float widened(float value) { return value; }
__device__ inline double widened(double value) { return value; }
__device__ inline float widened(__nv_bfloat16 value) { return to_float(value); }

__device__ inline void narrow(float value, float& to) { to = value; }
__device__ inline void narrow(double value, double& to) { to = value; }
__device__ inline void narrow(float value, __nv_bfloat16& to) { to = from_float<__nv_bfloat16>(value); }

// Elements from `first` on, in `packs` packs of N.
template <class T, int N>
__global__ void sum_kernel(Addends addends, int64_t first, int64_t packs, T* sum) {
  wait_for_previous_kernel();
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < packs; i += stride) {
    const int64_t at = first + i * N;
    decltype(widened(T{})) total[N];
    Pack<T, N> pack = load_pack<T, N>(static_cast<const T*>(addends.at[0]) + at);
    for (int k = 0; k < N; ++k) total[k] = widened(pack.at[k]);
    for (int r = 1; r < addends.count; ++r) {
      pack = load_pack<T, N>(static_cast<const T*>(addends.at[r]) + at);
      for (int k = 0; k < N; ++k) total[k] += widened(pack.at[k]);
    }
    for (int k = 0; k < N; ++k) narrow(total[k], pack.at[k]);
    store_pack(sum + at, pack);
  }
}

bool in_packs(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

template <class T>
void sum_group(const Addends& addends, int64_t elements, T* sum, const Stream& stream) {
  const bool wide = in_packs(sum) && std::all_of(addends.at, addends.at + addends.count, in_packs);
  const int64_t packs = wide ? elements / kPack<T> : 0, first = packs * kPack<T>, rest = elements - first;
  launch(sum_kernel<T, kPack<T>>, striding_blocks_for(packs), kBlockThreads, stream, addends, 0, packs, sum);
  launch(sum_kernel<T, 1>, striding_blocks_for(rest), kBlockThreads, stream, addends, first, rest, sum);
}

template <class T>
void sum_all(const std::vector<const void*>& all, int64_t elements, void* sum, const Stream& stream) {
  auto next = all.begin();
  do {
    Addends addends{};
    const auto add = [&](const void* addend) { addends.at[addends.count++] = addend; };
    if (next != all.begin()) add(sum);  // adds the sum of the groups before
    while (next != all.end() && addends.count < static_cast<int>(kMostAddends)) add(*next++);
    sum_group(addends, elements, static_cast<T*>(sum), stream);
  } while (next != all.end());
}

}  // namespace

void sum_up(Cuda, DType dtype, const std::vector<const void*>& addends, int64_t elements, void* sum,
            const Stream& stream) {
  switch (dtype) {
    case DType::kF32:
      return sum_all<float>(addends, elements, sum, stream);
    case DType::kF64:
      return sum_all<double>(addends, elements, sum, stream);
    case DType::kBF16:
      return sum_all<__nv_bfloat16>(addends, elements, sum, stream);
    default:
      OWT_CHECK(false, "sums are of f32, f64 or bf16, not ", name_of(dtype));
  }
}

}  // namespace owt
