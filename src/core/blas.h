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

// Orthogonalises a matrix X of rows x columns: with the singular value decomposition X = U S V', the result is about
// U V'. Each step of the Newton-Schulz iteration is
//   A = X X';  X = (a I + b A + c A A) X,   a = 3.4445, b = -4.775, c = 2.0315
// after a division by max(|X|, 1e-7), the Frobenius norm; a matrix with more rows than columns is transposed. The
// singular values become about 0.7 to 1.2 in 5 steps, except for very small ones. The bits depend on the processor, but
// not on the number of threads. scratch: orthogonalise_scratch() values.
// Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks".
constexpr float kMatrixA = 3.4445f, kMatrixB = -4.775f, kMatrixC = 2.0315f;
constexpr double kLeastMatrixNorm = 1e-7;
void orthogonalise(int64_t rows, int64_t columns, int steps, float* x, float* scratch);
int64_t orthogonalise_scratch(int64_t rows, int64_t columns);

// The sum of squares in f64, in an order that depends on the count alone.
double sum_of_squares(const float* values, int64_t count);

}  // namespace owt
