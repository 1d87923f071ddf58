// Matrix products of single precision, row major (oneDNN).
#pragma once

#include <cstdint>
#include <string>

namespace owt {

enum class Transpose { kNo, kYes };

// The library, and the instructions that it uses on this processor: "oneDNN 2.6.0, isa 1023". The bits of products
// depend on both.
std::string instructions_of_products();

// C (m x n) = A' (m x k) * B' (k x n) + beta * C, where A' is A or its transpose, and B' is B or its transpose.
// lda, ldb, ldc: elements from one stored row to the next. beta = 0 never reads C. Extents of 0 are allowed.
void gemm(Transpose a_form, Transpose b_form, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
          const float* b, int64_t ldb, float beta, float* c, int64_t ldc);

}  // namespace owt
