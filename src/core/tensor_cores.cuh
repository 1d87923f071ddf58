// Instructions of tensor cores for a warp, with operands in bf16 and sums in f32. All 32 lanes take part.
// (tests/simulated_gpu has its own version, hence the include guard.)
#ifndef OWT_SRC_CORE_TENSOR_CORES_CUH
#define OWT_SRC_CORE_TENSOR_CORES_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace owt {

// ldmatrix.x4.trans: four matrices of 8 x 8. Lane l gives the address of row l % 8 of matrix l / 8 in shared memory, a
// multiple of 16 bytes. It gets elements [2 (l % 4)] and [2 (l % 4) + 1] of column l / 4 of each matrix.
__device__ inline void load_transposed(uint32_t (&matrices)[4], const __nv_bfloat16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row))));
}

// mma.m16n8k16: sums += A * B of 16 x 16 and 16 x 8. Lane l has, with g = l / 4 and t = 2 (l % 4):
//   sums  [g, t] [g, t + 1] [g + 8, t] [g + 8, t + 1]
//   a     A[g, t...] A[g + 8, t...] A[g, t + 8...] A[g + 8, t + 8...], two neighbours of a row each
//   b0    B[t, g] B[t + 1, g];   b1  B[t + 8, g] B[t + 9, g]
__device__ inline void add_product(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  __trap();  // these GPUs have no products in bf16
#endif
}

}  // namespace owt

#endif
