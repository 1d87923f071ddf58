#include "tests/simulated_gpu/device.h"

#include <cublasLt.h>
#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "tests/simulated_gpu/elements.h"
#include "tests/simulated_gpu/test_memory.h"

using testing::DoubleNear;
using testing::Pointwise;

namespace simulated_gpu::blas_test {
namespace {

using Doubles = std::vector<double>;

// A matrix of either type and order on the device.
struct DeviceMatrix {
  int64_t rows, cols, ld;
  bool row_order, bf16;
  DeviceArray<uint8_t> memory;
  cublasLtMatrixLayout_t layout = nullptr;

  DeviceMatrix(int64_t r, int64_t c, bool in_rows = false, bool half = false)
      : rows(r),
        cols(c),
        ld((in_rows ? c : r) + 3),
        row_order(in_rows),
        bf16(half),
        memory(static_cast<size_t>(ld * (in_rows ? r : c)) * (half ? 2 : 4)) {
    cublasLtMatrixLayoutCreate(&layout, half ? CUDA_R_16BF : CUDA_R_32F, static_cast<uint64_t>(r),
                               static_cast<uint64_t>(c), ld);
    const int32_t order = in_rows ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
    cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order);
  }
  ~DeviceMatrix() { cublasLtMatrixLayoutDestroy(layout); }
  DeviceMatrix(const DeviceMatrix&) = delete;
  DeviceMatrix& operator=(const DeviceMatrix&) = delete;

  ElementType type() const { return bf16 ? ElementType::kBf16 : ElementType::kF32; }
  int64_t index(int64_t row, int64_t col) const { return row_order ? row * ld + col : col * ld + row; }

  // Fills it with random numbers and returns them as they are stored, in rows.
  Doubles fill(const owt::Stream& stream, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<uint8_t> bytes(memory.count(), 0xff);
    Doubles values;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) {
        store(bytes.data(), type(), index(r, c), static_cast<float>(random() % 2001) / 1000 - 1);
        values.push_back(static_cast<double>(load(bytes.data(), type(), index(r, c))));
      }
    OWT_CUDA(cudaMemcpyAsync(memory.data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice, cuda_stream(stream)));
    return values;
  }
  Doubles read(const owt::Stream& stream) const {
    const auto bytes = memory.read(stream);
    Doubles values;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) values.push_back(static_cast<double>(load(bytes.data(), type(), index(r, c))));
    return values;
  }
};

class Matmul : public testing::Test {
 protected:
  static constexpr int64_t kM = 5, kN = 7, kK = 6;

  Matmul() {
    EXPECT_EQ(cublasLtCreate(&handle_), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatmulDescCreate(&description_, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  }
  ~Matmul() override {
    cublasLtMatmulDescDestroy(description_);
    cublasLtDestroy(handle_);
  }

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(description_, attribute, &value, sizeof value), CUBLAS_STATUS_SUCCESS);
  }
  cublasStatus_t run(const DeviceMatrix& a, const DeviceMatrix& b, const DeviceMatrix& d, float alpha = 1,
                     float beta = 0, const cublasLtMatmulAlgo_t* algorithm = nullptr) {
    return cublasLtMatmul(handle_, description_, &alpha, a.memory.data(), a.layout, b.memory.data(), b.layout, &beta,
                          d.memory.data(), d.layout, d.memory.data(), d.layout, algorithm, nullptr, 0,
                          cuda_stream(stream_));
  }
  static Doubles product(const Doubles& a, bool ta, const Doubles& b, bool tb) {
    Doubles d;
    for (int64_t i = 0; i < kM; ++i)
      for (int64_t j = 0; j < kN; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < kK; ++p) sum += a[ta ? p * kM + i : i * kK + p] * b[tb ? j * kK + p : p * kN + j];
        d.push_back(sum);
      }
    return d;
  }

  owt::Stream stream_{owt::Device::kCuda};
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t description_ = nullptr;
};

TEST_F(Matmul, MultipliesInEveryFormOrderAndType) {
  for (int form = 0; form < 32; ++form) {
    const bool ta = form & 1, tb = form & 2, rows = form & 4, d_rows = form & 8, bf16 = form & 16;
    DeviceMatrix a(ta ? kK : kM, ta ? kM : kK, rows, bf16), b(tb ? kN : kK, tb ? kK : kN, !rows, bf16),
        d(kM, kN, d_rows);
    const Doubles left = a.fill(stream_, 1), right = b.fill(stream_, 2), before = d.fill(stream_, 3);
    set(CUBLASLT_MATMUL_DESC_TRANSA, ta ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, tb ? CUBLAS_OP_T : CUBLAS_OP_N);
    ASSERT_EQ(run(a, b, d, 2, 0.5f), CUBLAS_STATUS_SUCCESS);
    Doubles wanted = product(left, ta, right, tb);
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = 2 * wanted[i] + 0.5 * before[i];
    EXPECT_THAT(d.read(stream_), Pointwise(DoubleNear(1e-5), wanted)) << form;
  }
}

TEST_F(Matmul, RoundsABf16Result) {
  DeviceMatrix a(kM, kK, false, true), b(kK, kN, false, true), d(kM, kN, false, true);
  const Doubles left = a.fill(stream_, 1), right = b.fill(stream_, 2);
  ASSERT_EQ(run(a, b, d), CUBLAS_STATUS_SUCCESS);
  EXPECT_THAT(d.read(stream_), Pointwise(DoubleNear(0.01), product(left, false, right, false)));
}

TEST_F(Matmul, NeverReadsDWhereBetaIsZero) {
  DeviceMatrix a(kM, kK), b(kK, kN), d(kM, kN);  // d is NaN
  const Doubles left = a.fill(stream_, 1), right = b.fill(stream_, 2);
  ASSERT_EQ(run(a, b, d), CUBLAS_STATUS_SUCCESS);
  EXPECT_THAT(d.read(stream_), Pointwise(DoubleNear(1e-5), product(left, false, right, false)));
}

TEST_F(Matmul, RoundsFactorsToTf32WhereItMay) {
  cublasLtMatmulDescDestroy(description_);
  ASSERT_EQ(cublasLtMatmulDescCreate(&description_, CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  DeviceMatrix a(kM, kK), b(kK, kN), d(kM, kN);
  const Doubles left = a.fill(stream_, 1), right = b.fill(stream_, 2), exact = product(left, false, right, false);
  ASSERT_EQ(run(a, b, d), CUBLAS_STATUS_SUCCESS);
  const Doubles found = d.read(stream_);
  EXPECT_THAT(found, Pointwise(DoubleNear(5e-3), exact));
  EXPECT_THAT(found, testing::Not(Pointwise(DoubleNear(1e-5), exact)));
}

TEST_F(Matmul, AddsABiasAndTakesTheReluAndItsMask) {
  for (const uint32_t epilogue : {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_BIAS,
                                  CUBLASLT_EPILOGUE_RELU_AUX, CUBLASLT_EPILOGUE_RELU_AUX_BIAS}) {
    DeviceMatrix a(kM, kK), b(kK, kN), d(kM, kN), bias(kM, 1);
    const Doubles left = a.fill(stream_, 1), right = b.fill(stream_, 2), offset = bias.fill(stream_, 3);
    DeviceArray<uint8_t> mask(128 / 8 * kN);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(bias.memory.data()));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<void*>(mask.data()));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t{128});
    ASSERT_EQ(run(a, b, d), CUBLAS_STATUS_SUCCESS);
    Doubles wanted = product(left, false, right, false);
    const auto bits = mask.read(stream_);
    for (int64_t i = 0; i < kM; ++i)
      for (int64_t j = 0; j < kN; ++j) {
        double& value = wanted[static_cast<size_t>(i * kN + j)];
        if (epilogue & CUBLASLT_EPILOGUE_BIAS) value += offset[static_cast<size_t>(i)];
        if (epilogue & 128) {
          EXPECT_EQ(bits[static_cast<size_t>(j * 16 + i / 8)] >> i % 8 & 1, value > 0);
        }
        if (epilogue & CUBLASLT_EPILOGUE_RELU) value = std::max(value, 0.0);
      }
    EXPECT_THAT(d.read(stream_), Pointwise(DoubleNear(1e-5), wanted)) << epilogue;
  }
}

TEST_F(Matmul, TakesTheGradientsOfReluAndBias) {
  for (const uint32_t epilogue : {CUBLASLT_EPILOGUE_DRELU, CUBLASLT_EPILOGUE_DRELU_BGRAD}) {
    DeviceMatrix a(kM, kK), b(kK, kN), d(kM, kN), bias(kM, 1);
    const Doubles left = a.fill(stream_, 1), right = b.fill(stream_, 2);
    std::vector<uint8_t> bits(128 / 8 * kN);
    for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint8_t>(i * 37);
    const DeviceArray<uint8_t> mask(bits, stream_);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(bias.memory.data()));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<void*>(mask.data()));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t{128});
    ASSERT_EQ(run(a, b, d), CUBLAS_STATUS_SUCCESS);
    Doubles wanted = product(left, false, right, false), of_bias(kM, 0);
    for (int64_t i = 0; i < kM; ++i)
      for (int64_t j = 0; j < kN; ++j) {
        double& value = wanted[static_cast<size_t>(i * kN + j)];
        if ((bits[static_cast<size_t>(j * 16 + i / 8)] >> i % 8 & 1) == 0) value = 0;
        of_bias[static_cast<size_t>(i)] += value;
      }
    EXPECT_THAT(d.read(stream_), Pointwise(DoubleNear(1e-5), wanted));
    if (epilogue == CUBLASLT_EPILOGUE_DRELU_BGRAD) {
      EXPECT_THAT(bias.read(stream_), Pointwise(DoubleNear(1e-5), of_bias));
    }
  }
}

TEST_F(Matmul, SumsAFactorForABiasGradient) {
  DeviceMatrix a(kM, kK), b(kK, kN), d(kM, kN), of_a(kM, 1), of_b(kN, 1);
  const Doubles left = a.fill(stream_, 1), right = b.fill(stream_, 2);
  Doubles sums_of_a(kM, 0), sums_of_b(kN, 0);
  for (int64_t p = 0; p < kK; ++p) {
    for (int64_t i = 0; i < kM; ++i) sums_of_a[static_cast<size_t>(i)] += left[static_cast<size_t>(i * kK + p)];
    for (int64_t j = 0; j < kN; ++j) sums_of_b[static_cast<size_t>(j)] += right[static_cast<size_t>(p * kN + j)];
  }
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_BGRADA});
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(of_a.memory.data()));
  ASSERT_EQ(run(a, b, d), CUBLAS_STATUS_SUCCESS);
  EXPECT_THAT(of_a.read(stream_), Pointwise(DoubleNear(1e-5), sums_of_a));
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_BGRADB});
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(of_b.memory.data()));
  ASSERT_EQ(run(a, b, d), CUBLAS_STATUS_SUCCESS);
  EXPECT_THAT(of_b.read(stream_), Pointwise(DoubleNear(1e-5), sums_of_b));
  EXPECT_THAT(d.read(stream_), Pointwise(DoubleNear(1e-5), product(left, false, right, false)));
}

TEST_F(Matmul, OffersAlgorithmsThatDiffer) {
  DeviceMatrix a(kM, kK), b(kK, kN), d(kM, kN);
  const Doubles left = a.fill(stream_, 1), right = b.fill(stream_, 2);
  cublasLtMatmulPreference_t preference = nullptr;
  ASSERT_EQ(cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
  cublasLtMatmulHeuristicResult_t results[8];
  int found = 0;
  ASSERT_EQ(cublasLtMatmulAlgoGetHeuristic(handle_, description_, a.layout, b.layout, d.layout, d.layout, preference, 8,
                                           results, &found),
            CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(found, 2);
  EXPECT_NE(std::memcmp(&results[0].algo, &results[1].algo, sizeof results[0].algo), 0);
  for (int i = 0; i < found; ++i) {
    ASSERT_EQ(run(a, b, d, 1, 0, &results[i].algo), CUBLAS_STATUS_SUCCESS);
    EXPECT_THAT(d.read(stream_), Pointwise(DoubleNear(1e-5), product(left, false, right, false)));
  }
  const uint64_t workspace = 64 << 20;
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                       sizeof workspace);
  ASSERT_EQ(cublasLtMatmulAlgoGetHeuristic(handle_, description_, a.layout, b.layout, d.layout, d.layout, preference, 8,
                                           results, &found),
            CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(found, 3);
  EXPECT_GT(results[2].workspaceSize, 0u);
  EXPECT_EQ(run(a, b, d, 1, 0, &results[2].algo), CUBLAS_STATUS_INVALID_VALUE);  // without that workspace
  cublasLtMatmulPreferenceDestroy(preference);
}

TEST_F(Matmul, RefusesWhatIsImpossible) {
  DeviceMatrix a(kM, kK), b(kK, kN), d(kM, kN), wrong(kK + 1, kN), half(kK, kN, false, true);
  EXPECT_EQ(run(a, wrong, d), CUBLAS_STATUS_INVALID_VALUE);  // the inner extents differ
  EXPECT_EQ(run(a, half, d), CUBLAS_STATUS_NOT_SUPPORTED);   // the types of A and B differ
  const int64_t short_ld = kM - 1;
  cublasLtMatrixLayoutSetAttribute(a.layout, CUBLASLT_MATRIX_LAYOUT_LD, &short_ld, sizeof short_ld);
  EXPECT_EQ(run(a, b, d), CUBLAS_STATUS_INVALID_VALUE);
  const int64_t long_ld = 1000;
  cublasLtMatrixLayoutSetAttribute(a.layout, CUBLASLT_MATRIX_LAYOUT_LD, &long_ld, sizeof long_ld);
  EXPECT_EQ(run(a, b, d), CUBLAS_STATUS_INVALID_VALUE);  // past the end of the memory
  cublasLtMatrixLayoutSetAttribute(a.layout, CUBLASLT_MATRIX_LAYOUT_LD, &a.ld, sizeof a.ld);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_BIAS});
  EXPECT_EQ(run(a, b, d), CUBLAS_STATUS_INVALID_VALUE);  // no bias
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_RELU_AUX});
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t{kM});
  EXPECT_EQ(run(a, b, d), CUBLAS_STATUS_INVALID_VALUE);  // rows of the mask are multiples of 128 bits
}

}  // namespace
}  // namespace simulated_gpu::blas_test
