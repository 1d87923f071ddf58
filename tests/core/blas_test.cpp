#include "src/core/blas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

namespace owt::blas_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kGap = 3;  // elements between the end of a row and the start of the next

// rows x columns values in rows of columns + kGap; NaN in the gaps, which must not be read.
std::vector<float> matrix(int64_t rows, int64_t columns, float phase) {
  std::vector<float> values;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns + kGap; ++j)
      values.push_back(j < columns ? std::sin(phase + static_cast<float>(7 * i + 3 * j)) : kNaN);
  return values;
}

class Gemm : public ::testing::TestWithParam<std::tuple<Transpose, Transpose, float>> {};
std::string form_name(const ::testing::TestParamInfo<Gemm::ParamType>& info) {
  const auto& [a_form, b_form, beta] = info.param;
  const auto letter = [](Transpose form) { return form == Transpose::kYes ? "T" : "N"; };
  return std::string(letter(a_form)) + letter(b_form) + "Beta" + std::to_string(static_cast<int>(100 * beta));
}
INSTANTIATE_TEST_SUITE_P(Forms, Gemm,
                         ::testing::Combine(::testing::Values(Transpose::kNo, Transpose::kYes),
                                            ::testing::Values(Transpose::kNo, Transpose::kYes),
                                            ::testing::Values(0.0f, 1.0f, 0.5f)),
                         form_name);

TEST_P(Gemm, IsTheSumOfProductsPlusBetaTimesC) {
  const auto [a_form, b_form, beta] = GetParam();
  const bool a_turned = a_form == Transpose::kYes, b_turned = b_form == Transpose::kYes;
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{5, 7, 4}, {1, 1, 1}, {33, 2, 65}}) {
    const int64_t a_columns = a_turned ? m : k, b_columns = b_turned ? k : n;
    const auto a = matrix(a_turned ? k : m, a_columns, 0), b = matrix(b_turned ? n : k, b_columns, 1);
    const auto before = matrix(m, n, 2);
    auto c = before;
    const int64_t lda = a_columns + kGap, ldb = b_columns + kGap, ldc = n + kGap;
    gemm(a_form, b_form, m, n, k, a.data(), lda, b.data(), ldb, beta, c.data(), ldc);
    const auto at = [](const std::vector<float>& values, int64_t place) {
      return static_cast<double>(values[static_cast<size_t>(place)]);
    };
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < ldc; ++j) {
        if (j >= n) {
          EXPECT_TRUE(std::isnan(at(c, i * ldc + j))) << "the gap after row " << i << " was written";
          continue;
        }
        double wanted = static_cast<double>(beta) * at(before, i * ldc + j);
        for (int64_t l = 0; l < k; ++l)
          wanted += at(a, a_turned ? l * lda + i : i * lda + l) * at(b, b_turned ? j * ldb + l : l * ldb + j);
        EXPECT_NEAR(at(c, i * ldc + j), wanted, 2e-4) << m << "x" << n << "x" << k << " at " << i << ", " << j;
      }
  }
}

TEST_P(Gemm, WithoutTermsIsBetaTimesC) {
  const auto [a_form, b_form, beta] = GetParam();
  std::vector<float> c = {1, 2, 3, 4};
  const float unused = kNaN;
  gemm(a_form, b_form, 2, 2, 0, &unused, 2, &unused, 2, beta, c.data(), 2);
  EXPECT_THAT(c, ElementsAre(beta * 1, beta * 2, beta * 3, beta * 4));
}

TEST_P(Gemm, OfNoRowsOrColumnsWritesNothing) {
  const auto [a_form, b_form, beta] = GetParam();
  std::vector<float> a(4, 1), c(4, 7);
  gemm(a_form, b_form, 0, 2, 2, a.data(), 2, a.data(), 2, beta, c.data(), 2);
  gemm(a_form, b_form, 2, 0, 2, a.data(), 2, a.data(), 2, beta, c.data(), 2);
  EXPECT_THAT(c, Each(7));
}

TEST(GemmBeta, OfZeroNeverReadsC) {
  const std::vector<float> a = {1, 2, 3, 4};
  std::vector<float> c(4, kNaN), none(4, kNaN);
  gemm(Transpose::kNo, Transpose::kNo, 2, 2, 2, a.data(), 2, a.data(), 2, 0, c.data(), 2);
  EXPECT_THAT(c, ElementsAre(7, 10, 15, 22));
  gemm(Transpose::kNo, Transpose::kNo, 2, 2, 0, a.data(), 2, a.data(), 2, 0, none.data(), 2);
  EXPECT_THAT(none, Each(0));
}

}  // namespace
}  // namespace owt::blas_test
