#include "src/core/matmul.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <thread>

#include "src/core/bf16.h"
#include "src/core/dispatch.h"
#include "src/core/gpus.h"
#include "src/core/graph.h"
#include "src/system/check.h"
#include "src/system/plan_cache.h"
#include "tests/support/check_layer.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"

namespace owt::matmul_test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;
using testing::IsNan;
using testing::Pointwise;

using Values = std::vector<float>;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr auto kNo = Transpose::kNo, kYes = Transpose::kYes;

// The types of a product.
struct Types {
  Precision precision;
  DType product;
};

// Rows are as long as they must be.
MatmulForm packed(int64_t m, int64_t n, int64_t k, Transpose a, Transpose b, const Types& types) {
  return {m, n, k, a, b, a == kNo ? k : m, b == kNo ? n : k, n, types.precision, types.product};
}

Shape shape_a(const MatmulForm& form) { return {form.a == kNo ? form.m : form.k, form.lda}; }
Shape shape_b(const MatmulForm& form) { return {form.b == kNo ? form.k : form.n, form.ldb}; }
Shape shape_c(const MatmulForm& form) { return {form.m, form.ldc}; }

Tensor on_gpu(const Values& values, const Shape& shape, DType dtype) {
  return upload(values, shape, Device::kCuda, dtype);
}

// A program without the CUDA back-end has no Matmul to link, and no GPU to run these tests on.
void queue_products(const MatmulForm& form, const Tensor& a, const Tensor& b, const Tensor* bias, float beta, Tensor& c,
                    const Stream& stream, bool record = false) {
  if constexpr (kCudaBuilt) {
    const Matmul product(form);
    const auto queue = [&] { product(a.raw(), b.raw(), bias ? bias->raw() : nullptr, beta, c.raw(), stream); };
    if (!record) return queue();
    const Graph twice = Graph::record(stream, [&] {
      queue();
      queue();
    });
    twice.launch(stream);
    twice.launch(stream);
    stream.synchronize();
  }
}

// C after the product, all its rows from end to end.
Values multiply(const MatmulForm& form, const Values& a, const Values& b, const Values& bias = {}, float beta = 0,
                Values c = {}) {
  const DType factors = activation_type(form.precision);
  if (c.empty()) c.assign(static_cast<size_t>(form.m * form.ldc), kNaN);
  const Stream stream(Device::kCuda);
  Tensor product = on_gpu(c, shape_c(form), form.product);
  std::optional<Tensor> added;
  if (form.bias) added = on_gpu(bias, {form.n}, form.product);
  const Tensor left = on_gpu(a, shape_a(form), factors), right = on_gpu(b, shape_b(form), factors);
  queue_products(form, left, right, added ? &*added : nullptr, beta, product, stream);
  stream.synchronize();
  return download(product);
}

Values rounded(Values values, Precision precision) {
  if (precision == Precision::kBf16)
    for (float& value : values) value = from_bf16(to_bf16(value));
  return values;
}

// A' * B' + bias in double precision, C packed.
Values expected(const MatmulForm& form, const Values& a, const Values& b, const Values& bias = {}) {
  const auto at = [](const Values& values, int64_t row, int64_t column, int64_t ld, Transpose stored) {
    return static_cast<double>(values[static_cast<size_t>(stored == kNo ? row * ld + column : column * ld + row)]);
  };
  Values c;
  for (int64_t i = 0; i < form.m; ++i)
    for (int64_t j = 0; j < form.n; ++j) {
      double sum = bias.empty() ? 0 : static_cast<double>(bias[static_cast<size_t>(j)]);
      for (int64_t l = 0; l < form.k; ++l) sum += at(a, i, l, form.lda, form.a) * at(b, l, j, form.ldb, form.b);
      c.push_back(static_cast<float>(sum));
    }
  return c;
}

// For products of the values below, which are near 1.
double tolerance(const Types& types) {
  if (types.product == DType::kBF16) return 0.03;
  return types.precision == Precision::kTf32 ? 0.01 : 1e-4;
}

std::vector<Types> all_types() {
  if (!gpu_present()) return {};
  return {{Precision::kFp32, DType::kF32},
          {Precision::kTf32, DType::kF32},
          {Precision::kBf16, DType::kBF16},
          {Precision::kBf16, DType::kF32}};
}

class MatmulTest : public testing::TestWithParam<Types> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MatmulTest);
INSTANTIATE_TEST_SUITE_P(Gpu, MatmulTest, testing::ValuesIn(all_types()), [](const auto& info) {
  return concat("cuda_", name_of(info.param.precision), "_to_", name_of(info.param.product));
});

TEST_P(MatmulTest, MultipliesWhateverTheFormsAndExtents) {
  const int64_t extents[][3] = {{7, 10, 22}, {16, 24, 32}, {1, 1, 1},    {1, 9, 5},
                                {6, 1, 3},   {5, 8, 1},    {33, 65, 40}, {1, 700, 3}};
  for (const auto& [m, n, k] : extents)
    for (const Transpose a_form : {kNo, kYes})
      for (const Transpose b_form : {kNo, kYes})
        for (const bool bias : {false, true}) {
          MatmulForm form = packed(m, n, k, a_form, b_form, GetParam());
          form.bias = bias;
          SCOPED_TRACE(concat(form));
          const Values a = rounded(distinct_values(m * k, 1, 1), form.precision);
          const Values b = rounded(distinct_values(k * n, 1, 2), form.precision);
          const Values added =
              bias ? rounded(distinct_values(n, 1, 3), form.product == DType::kBF16 ? form.precision : Precision::kFp32)
                   : Values{};
          const double bound = tolerance(GetParam()) * std::max(1.0, std::sqrt(static_cast<double>(k)));
          EXPECT_THAT(multiply(form, a, b, added),
                      Pointwise(FloatNear(static_cast<float>(bound)), expected(form, a, b, added)));
        }
}

TEST_P(MatmulTest, WhatLiesBetweenTheRowsIsNeitherReadNorWritten) {
  const MatmulForm form{2, 2, 2, kNo, kYes, 3, 4, 5, GetParam().precision, GetParam().product};
  EXPECT_THAT(multiply(form, {1, 2, kNaN, 3, 4, kNaN}, {1, 10, kNaN, kNaN, 2, 20, kNaN, kNaN}, {}, 0,
                       {0, 0, 7, 7, 7, 0, 0, 7, 7, 7}),
              ElementsAre(21, 42, 7, 7, 7, 43, 86, 7, 7, 7));
  // A bias that a separate kernel adds.
  const MatmulForm outer{2, 2, 1, kNo, kYes, 2, 3, 5, GetParam().precision, GetParam().product, true};
  EXPECT_THAT(multiply(outer, {2, kNaN, 3, kNaN}, {1, kNaN, kNaN, 10, kNaN, kNaN}, {100, 200}, 0,
                       {0, 0, 7, 7, 7, 0, 0, 7, 7, 7}),
              ElementsAre(102, 220, 7, 7, 7, 103, 230, 7, 7, 7));
}

TEST_P(MatmulTest, BetaOneAddsToTheProductAndBetaZeroDoesNotReadIt) {
  const MatmulForm form = packed(2, 2, 1, kNo, kNo, GetParam());
  EXPECT_THAT(multiply(form, {1, 2}, {3, 4}, {}, 1, {100, 100, 100, 100}), ElementsAre(103, 104, 106, 108));
  EXPECT_THAT(multiply(form, {1, 2}, {3, 4}, {}, 0, {kNaN, kNaN, kNaN, kNaN}), ElementsAre(3, 4, 6, 8));
}

TEST_P(MatmulTest, NaNIsSeenInItsRow) {
  MatmulForm form = packed(2, 2, 2, kNo, kNo, GetParam());
  form.bias = true;
  const Values c = multiply(form, {kNaN, 0, 1, 1}, {1, 2, 3, 4}, {1, 1});
  EXPECT_THAT(Values(c.begin(), c.begin() + 2), Each(IsNan()));
  EXPECT_THAT(Values(c.begin() + 2, c.end()), ElementsAre(5, 7));
}

TEST_P(MatmulTest, EveryProductOfAFormHasTheSameBitsOnAnyHostThread) {
  const MatmulForm form = packed(19, 23, 301, kNo, kYes, GetParam());
  const Values a = distinct_values(19 * 301, 1, 1), b = distinct_values(23 * 301, 1, 2);
  const Values first = multiply(form, a, b);
  EXPECT_EQ(multiply(form, a, b), first);
  Values elsewhere;
  std::thread([&] { elsewhere = multiply(form, a, b); }).join();
  EXPECT_EQ(elsewhere, first);
}

// What is measured again may be chosen otherwise, which has other bits.
TEST_P(MatmulTest, AFormIsMeasuredOnce) {
  const auto known_after = [form = packed(13, 7, 10, kNo, kYes, GetParam())] {
    if constexpr (kCudaBuilt) const Matmul product(form);
    return PlanCache::process().known();
  };
  const auto known = known_after();
  known_after();
  std::thread(known_after).join();
  EXPECT_TRUE(PlanCache::process().known() == known);  // not EXPECT_EQ, which would print all that is known
}

TEST_P(MatmulTest, CanBeRecordedAndReplayed) {
  MatmulForm form = packed(1, 2, 1, kNo, kNo, GetParam());
  const DType factors = activation_type(form.precision);
  const Stream stream(Device::kCuda);
  Tensor c = on_gpu({1, 2}, {1, 2}, form.product);
  const Tensor a = on_gpu({3}, {1, 1}, factors), b = on_gpu({1, 10}, {1, 2}, factors);
  queue_products(form, a, b, nullptr, 1, c, stream, true);  // two products, replayed twice
  EXPECT_THAT(download(c), ElementsAre(1 + 4 * 3, 2 + 4 * 30));
}

TEST_P(MatmulTest, RefusesAnAddressThatTheAlgorithmMayNotTake) {
  const MatmulForm form = packed(2, 8, 8, kNo, kNo, GetParam());
  const DType factors = activation_type(form.precision);
  const Stream stream(Device::kCuda);
  const Tensor all = on_gpu(Values(17), {17}, factors), b = on_gpu(Values(64), {8, 8}, factors);
  Tensor c = on_gpu(Values(16), {2, 8}, form.product);
  EXPECT_THAT(message_of([&] {
                queue_products(form, all.part(1, {2, 8}), b, nullptr, 0, c, stream);
              }),
              HasSubstr("no multiple of 16 bytes"));
}

TEST_P(MatmulTest, TakesAProductAtAnyMultipleOfItsRows) {
  const MatmulForm form = packed(2, 4, 1, kNo, kNo, GetParam());
  const DType factors = activation_type(form.precision);
  const Stream stream(Device::kCuda);
  const Tensor all = on_gpu(Values(12), {12}, form.product);
  Tensor c = all.part(4, {2, 4});  // a row of bf16 has 8 bytes
  queue_products(form, on_gpu({1, 2}, {2, 1}, factors), on_gpu({1, 2, 3, 4}, {1, 4}, factors), nullptr, 0, c, stream);
  stream.synchronize();
  EXPECT_THAT(download(all), ElementsAre(0, 0, 0, 0, 1, 2, 3, 4, 2, 4, 6, 8));
}

TEST_P(MatmulTest, RefusesFormsThatCannotBe) {
  const auto make = [](MatmulForm form) {
    return [form] {
      Tensor none;
      queue_products(form, none, none, nullptr, 0, none, Stream(Device::kCuda));
    };
  };
  MatmulForm form = packed(2, 3, 4, kNo, kNo, GetParam());
  form.lda = 3;
  EXPECT_THAT(message_of(make(form)), HasSubstr("rows of A overlap"));
  EXPECT_THAT(message_of(make(packed(2, 0, 4, kNo, kNo, GetParam()))), HasSubstr("an empty product"));
  EXPECT_THAT(message_of(make(packed(2, 2, 2, kNo, kNo, {Precision::kTf32, DType::kBF16}))),
              HasSubstr("the product's type"));
}

using MatmulPrecisionTest = DeviceTest;
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MatmulPrecisionTest);
INSTANTIATE_TEST_SUITE_P(Gpu, MatmulPrecisionTest, testing::ValuesIn(gpu_devices()), device_name);

TEST_P(MatmulPrecisionTest, OnlyFp32KeepsAllBitsOfTheFactors) {
  const float one_and_a_bit = 1 + std::ldexp(1.0f, -20);
  const Values a(16, one_and_a_bit), b(4, 1);
  const auto product = [&](Precision precision) {
    return multiply(packed(4, 1, 4, kNo, kNo, {precision, DType::kF32}), a, b);
  };
  EXPECT_THAT(product(Precision::kFp32), Each(4 * one_and_a_bit));
  EXPECT_THAT(product(Precision::kBf16), Each(4));
}

}  // namespace
}  // namespace owt::matmul_test
