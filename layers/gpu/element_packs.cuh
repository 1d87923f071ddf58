// Kernels that map each element of a tensor to an element of another. Each thread handles a pack of elements. For .cu
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

// to[i] = function(from[i]...) for the elements of the calling thread: a pack of N elements. Threads after the last
// pack handle one remaining element each. The function takes and returns f32.
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

// Calls function(std::integral_constant<int, N>{}, blocks): N is the number of elements in 16 bytes, or 1 if an address
// is not aligned for that; `blocks` is the number of blocks that covers all elements.
template <class T, class Function, class... Addresses>
void with_packs(int64_t elements, const Function& function, const Addresses*... addresses) {
  constexpr int kMost = kPack<T>;
  if (hold_packs<kMost>(addresses...))
    function(std::integral_constant<int, kMost>{}, blocks_for(elements / kMost + elements % kMost));
  else
    function(std::integral_constant<int, 1>{}, blocks_for(elements));
}

}  // namespace owt
