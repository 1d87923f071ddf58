// Kernels in which every element of a tensor becomes one of another: threads have a pack of elements each. For .cu
// files.
#pragma once

#include <type_traits>

#include "src/core/elements.cuh"
#include "src/core/grid.h"
#include "src/core/launch.cuh"

namespace owt {

template <class T, int N, class Function, class... Packs>
__device__ void map_lanes(const Function& function, Pack<T, N>& to, const Packs&... from) {
#pragma unroll
  for (int j = 0; j < N; ++j) to.at[j] = from_float<T>(function(to_float(from.at[j])...));
}

// to[i] = function(from[i]...) for what the calling thread has: a pack of N elements; the threads behind the last pack
// have one each of the elements behind it. The function takes and gives f32.
template <class T, int N, class Function, class... From>
__device__ void map_pack(int64_t elements, const Function& function, T* to, const From*... from) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x, packs = elements / N;
  if (thread < packs) {
    Pack<T, N> result;
    map_lanes(function, result, load_pack<T, N>(from + thread * N)...);
    store_pack(to + thread * N, result);
  } else if (const int64_t i = packs * N + thread - packs; i < elements) {
    to[i] = from_float<T>(function(to_float(from[i])...));
  }
}

// function(std::integral_constant<int, N>{}, blocks) with as many elements N in a pack as 16 bytes have, or 1 where an
// address allows no more, and the blocks whose threads have all elements.
template <class T, class Function, class... Addresses>
void with_packs(int64_t elements, const Function& function, const Addresses*... addresses) {
  constexpr int kMost = kPack<T>;
  if (hold_packs<kMost>(addresses...))
    function(std::integral_constant<int, kMost>{}, blocks_for(elements / kMost + elements % kMost));
  else
    function(std::integral_constant<int, 1>{}, blocks_for(elements));
}

}  // namespace owt
