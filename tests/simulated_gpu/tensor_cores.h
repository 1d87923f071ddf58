// The instructions of src/core/tensor_cores.cuh, which this file replaces: which lane gives and gets what is CUDA's
// definition of ldmatrix and mma.
#pragma once

#define OWT_SRC_CORE_TENSOR_CORES_CUH

#include <cuda_bf16.h>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/simulated_gpu/kernels.h"

namespace owt {

inline void load_transposed(uint32_t (&matrices)[4], const __nv_bfloat16* row) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) {
    std::fprintf(stderr, "simulated GPU: a row of ldmatrix at an address that is no multiple of 16\n");
    std::abort();
  }
  const __nv_bfloat16* rows[32];
  simulated_gpu::warp_gather(&row, rows, sizeof row);
  const int lane = simulated_gpu::lane_of_thread();
  for (int matrix = 0; matrix < 4; ++matrix) {
    const __nv_bfloat16* const* first = rows + 8 * matrix + 2 * (lane % 4);
    const uint32_t low = std::bit_cast<uint16_t>(first[0][lane / 4]),
                   high = std::bit_cast<uint16_t>(first[1][lane / 4]);
    matrices[matrix] = low | high << 16;
  }
}

inline void add_product(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct OfLane {
    uint32_t a[4], b[2];
    static float half(uint32_t of, int which) {  // a bf16 has the upper bits of an f32
      return std::bit_cast<float>(which == 0 ? of << 16 : of & 0xffff0000);
    }
  };
  const OfLane mine{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  OfLane all[32];
  simulated_gpu::warp_gather(&mine, all, sizeof mine);
  const int lane = simulated_gpu::lane_of_thread();
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < 16; ++k)
      sums[i] += OfLane::half(all[row % 8 * 4 + k % 8 / 2].a[row / 8 + k / 8 * 2], k % 2) *
                 OfLane::half(all[column * 4 + k % 8 / 2].b[k / 8], k % 2);
  }
}

}  // namespace owt
