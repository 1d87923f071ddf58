// Products of small matrices by a warp on tensor cores, and loads of their factors. For .cu files. (tests/simulated_gpu
// has its own version, hence the include guard.)
#ifndef OWT_SRC_CORE_MMA_CUH
#define OWT_SRC_CORE_MMA_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace owt {

// c += a * b: a is 16 x 16 and b is 16 x 8, both bf16; c is 16 x 8 in f32. All lanes of a warp call it together. Lane
// 4 * g + t holds these elements; a word is two bf16, the first one in its lower half:
//   a[0]: row g, columns 2t and 2t + 1     a[1]: row g + 8, the same columns
//   a[2]: row g, columns 2t + 8 and 2t + 9 a[3]: row g + 8, the same columns
//   b[0]: rows 2t and 2t + 1 of column g   b[1]: rows 2t + 8 and 2t + 9 of column g
//   c[0], c[1]: row g, columns 2t, 2t + 1  c[2], c[3]: row g + 8, the same columns
// The order of the sum is the GPU's, the same in every run. Requires compute capability 8.0.
__device__ inline void mma_16x8x16(const uint32_t (&a)[4], const uint32_t (&b)[2], float (&c)[4]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  __trap();
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// Loads four 8 x 8 matrices of bf16 from shared memory, transposed. All lanes of a warp call it together. Lane
// 8 * i + r gives the address of row r of matrix i: 16 bytes, aligned to 16. Lane 4 * g + t gets, in words[i], the
// elements of column g in rows 2t and 2t + 1 of matrix i. Requires compute capability 7.5.
__device__ inline void load_transposed(const __nv_bfloat16* row, uint32_t (&words)[4]) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}

}  // namespace owt

#endif
