// The arithmetic of cuBLASLt's products.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/simulated_gpu/elements.h"

namespace simulated_gpu {

// The memory layout of a matrix.
struct Matrix {
  ElementType type = ElementType::kNone;
  bool row_order = false;
  int64_t rows = 0, cols = 0, ld = 0, batch_stride = 0;  // ld and batch_stride in elements

  int64_t index(int64_t row, int64_t col) const { return row_order ? row * ld + col : col * ld + row; }
  size_t bytes(int64_t batches) const {
    return static_cast<size_t>((batches - 1) * batch_stride + index(rows - 1, cols - 1) + 1) * bytes_of(type);
  }
};

// D = epilogue(alpha * A' * B' + beta * C); A' and B' are A and B or their transposes. The epilogue is one of
// cublasLtEpilogue_t.
struct Product {
  Matrix a, b, c, d;
  bool transpose_a = false, transpose_b = false;
  int64_t batches = 1;
  bool tf32 = false, bf16 = false;  // the type to which f32 factors are rounded
  bool in_single_precision = false;
  uint32_t epilogue = 1;
  const void *a_data = nullptr, *b_data = nullptr, *c_data = nullptr;
  void *d_data = nullptr, *bias = nullptr, *mask = nullptr;
  int64_t mask_ld = 0;  // bits
  float alpha = 1, beta = 0;

  int64_t m() const { return transpose_a ? a.cols : a.rows; }
  int64_t n() const { return transpose_b ? b.rows : b.cols; }
  int64_t k() const { return transpose_b ? b.cols : b.rows; }

  void run() const;

 private:
  template <class Sum>
  void run_batch(int64_t batch) const;
  float factor(const void* data, const Matrix& matrix, int64_t row, int64_t col, int64_t offset) const;
  void finish_column(int64_t column, const double* sums, int64_t batch, std::vector<double>* bias_gradient) const;
  void store_bias_gradient(const std::vector<double>& sums) const;
};

}  // namespace simulated_gpu
