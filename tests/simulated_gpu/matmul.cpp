#include "tests/simulated_gpu/matmul.h"

#include <cublasLt.h>

#include <cmath>

namespace simulated_gpu {

void Product::run() const {
  for (int64_t batch = 0; batch < batches; ++batch)
    if (in_single_precision)
      run_batch<float>(batch);
    else
      run_batch<double>(batch);
}

float Product::factor(const void* data, const Matrix& matrix, int64_t row, int64_t col, int64_t offset) const {
  const float value = load(data, matrix.type, offset + matrix.index(row, col));
  return tf32 ? round_to_tf32(value) : bf16 ? bf16_to_float(float_to_bf16(value)) : value;
}

template <class Sum>
void Product::run_batch(int64_t batch) const {
  const int64_t rows = m(), depth = k();
  std::vector<float> left(static_cast<size_t>(rows * depth)), right(static_cast<size_t>(depth));
  std::vector<Sum> sums(static_cast<size_t>(rows));
  std::vector<double> finished(sums.size());
  std::vector<double> bias_gradient;
  if (epilogue == CUBLASLT_EPILOGUE_BGRADB) bias_gradient.assign(static_cast<size_t>(n()), 0);
  if (epilogue == CUBLASLT_EPILOGUE_BGRADA || epilogue == CUBLASLT_EPILOGUE_DRELU_BGRAD)
    bias_gradient.assign(static_cast<size_t>(rows), 0);
  for (int64_t p = 0; p < depth; ++p)
    for (int64_t i = 0; i < rows; ++i) {
      const float value = transpose_a ? factor(a_data, a, p, i, batch * a.batch_stride)
                                      : factor(a_data, a, i, p, batch * a.batch_stride);
      left[static_cast<size_t>(p * rows + i)] = value;
      if (epilogue == CUBLASLT_EPILOGUE_BGRADA) bias_gradient[static_cast<size_t>(i)] += static_cast<double>(value);
    }
  for (int64_t j = 0; j < n(); ++j) {
    for (int64_t p = 0; p < depth; ++p) {
      right[static_cast<size_t>(p)] = transpose_b ? factor(b_data, b, j, p, batch * b.batch_stride)
                                                  : factor(b_data, b, p, j, batch * b.batch_stride);
      if (epilogue == CUBLASLT_EPILOGUE_BGRADB)
        bias_gradient[static_cast<size_t>(j)] += static_cast<double>(right[static_cast<size_t>(p)]);
    }
    sums.assign(sums.size(), 0);
    for (int64_t p = 0; p < depth; ++p) {
      const Sum of_b = static_cast<Sum>(right[static_cast<size_t>(p)]);
      const float* of_a = left.data() + p * rows;
      Sum* to = sums.data();
#pragma omp simd
      for (int64_t i = 0; i < rows; ++i) to[i] += of_b * static_cast<Sum>(of_a[i]);
    }
    finished.assign(sums.begin(), sums.end());
    finish_column(j, finished.data(), batch, &bias_gradient);
  }
  if (!bias_gradient.empty()) store_bias_gradient(bias_gradient);
}

void Product::finish_column(int64_t column, const double* sums, int64_t batch,
                            std::vector<double>* bias_gradient) const {
  auto* bits = static_cast<uint8_t*>(mask);
  for (int64_t i = 0; i < m(); ++i) {
    float value = alpha * static_cast<float>(sums[i]);
    if (beta != 0) value += beta * load(c_data, c.type, batch * c.batch_stride + c.index(i, column));
    if (epilogue & CUBLASLT_EPILOGUE_BIAS) value += load(bias, d.type, i);
    const int64_t bit = column * mask_ld + i;
    const auto bit_mask = static_cast<uint8_t>(1 << bit % 8);
    if (epilogue & CUBLASLT_EPILOGUE_RELU) {
      if ((epilogue & 128) != 0)
        bits[bit / 8] = static_cast<uint8_t>(value > 0 ? bits[bit / 8] | bit_mask : bits[bit / 8] & ~bit_mask);
      value = std::fmax(value, 0.0f);
    }
    if ((epilogue & CUBLASLT_EPILOGUE_DRELU) == CUBLASLT_EPILOGUE_DRELU && (bits[bit / 8] & bit_mask) == 0) value = 0;
    if (epilogue == CUBLASLT_EPILOGUE_DRELU_BGRAD)
      (*bias_gradient)[static_cast<size_t>(i)] += static_cast<double>(value);
    store(d_data, d.type, batch * d.batch_stride + d.index(i, column), value);
  }
}

void Product::store_bias_gradient(const std::vector<double>& sums) const {
  for (size_t i = 0; i < sums.size(); ++i) store(bias, d.type, static_cast<int64_t>(i), static_cast<float>(sums[i]));
}

}  // namespace simulated_gpu
