#include "src/core/blas.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "src/core/onednn.h"
#include "src/core/threads.h"
#include "src/system/check.h"

namespace owt {

std::string instructions_of_products() {
  const dnnl_version_t* const version = dnnl_version();
  return concat("oneDNN ", version->major, '.', version->minor, '.', version->patch, ", isa ",
                static_cast<int>(dnnl_get_effective_cpu_isa()));
}

void gemm(Transpose a_form, Transpose b_form, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
          const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
    return;
  }
  const dnnl_status_t status = dnnl_sgemm(a_form == Transpose::kYes ? 'T' : 'N', b_form == Transpose::kYes ? 'T' : 'N',
                                          m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc);
  OWT_CHECK_EQ(static_cast<int>(status), 0, "dnnl_sgemm ", m, "x", n, "x", k);
}

// The product of two f32 is exact in f64, with or without a fused multiply-add. The order of the additions depends only
// on the fixed number of lanes.
double sum_of_squares(const float* values, int64_t count) {
  constexpr int64_t kLanes = 16;
  std::array<double, kLanes> lanes{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      lanes[static_cast<size_t>(lane)] += value * value;
    }
  for (; i < count; ++i) lanes[static_cast<size_t>(i % kLanes)] += static_cast<double>(values[i]) * values[i];
  return std::accumulate(lanes.begin(), lanes.end(), 0.0);
}

namespace {

// gemm() with beta = 0. Each thread computes whole blocks of rows, so that the bits do not depend on their number.
void product(Transpose a_form, Transpose b_form, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
             const float* b, int64_t ldb, float* c) {
  constexpr int64_t kRows = 32;
  for_each_alone((m + kRows - 1) / kRows, [&](int64_t block, int) {
    const int64_t first = block * kRows, rows = std::min(kRows, m - first);
    gemm(a_form, b_form, rows, n, k, a + first * (a_form == Transpose::kYes ? 1 : lda), lda, b, ldb, 0, c + first * n,
         n);
  });
}

}  // namespace

int64_t orthogonalise_scratch(int64_t rows, int64_t columns) {
  const int64_t least = std::min(rows, columns);
  return rows * columns + 2 * least * least;
}

void orthogonalise(int64_t rows, int64_t columns, int steps, float* x, float* scratch) {
  constexpr Transpose kNo = Transpose::kNo, kYes = Transpose::kYes;
  const int64_t count = rows * columns, least = std::min(rows, columns);
  const auto factor = static_cast<float>(1 / std::max(std::sqrt(sum_of_squares(x, count)), kLeastMatrixNorm));
  for (int64_t i = 0; i < count; ++i) x[i] *= factor;
  float *const next = scratch, *const gram = next + count, *const polynomial = gram + least * least;
  const bool wide = rows <= columns;
  for (int step = 0; step < steps; ++step) {
    if (wide)
      product(kNo, kYes, rows, rows, columns, x, columns, x, columns, gram);
    else
      product(kYes, kNo, columns, columns, rows, x, columns, x, columns, gram);
    product(kNo, kNo, least, least, least, gram, least, gram, least, polynomial);
    for (int64_t i = 0; i < least * least; ++i) polynomial[i] = kMatrixB * gram[i] + kMatrixC * polynomial[i];
    for (int64_t i = 0; i < least; ++i) polynomial[i * (least + 1)] += kMatrixA;
    if (wide)
      product(kNo, kNo, rows, columns, rows, polynomial, rows, x, columns, next);
    else
      product(kNo, kNo, rows, columns, columns, x, columns, polynomial, columns, next);
    std::copy_n(next, count, x);
  }
}

}  // namespace owt
