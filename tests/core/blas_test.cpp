#include "src/core/blas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "src/core/threads.h"

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

// A reflection: an orthogonal matrix of rows x rows, row by row.
std::vector<double> reflection(int64_t rows, double phase) {
  std::vector<double> axis, matrix;
  double square = 0;
  for (int64_t i = 0; i < rows; ++i) {
    axis.push_back(std::sin(phase + 1.7 * static_cast<double>(i)));
    square += axis.back() * axis.back();
  }
  for (size_t i = 0; i < axis.size(); ++i)
    for (size_t j = 0; j < axis.size(); ++j) matrix.push_back((i == j ? 1.0 : 0.0) - 2 * axis[i] * axis[j] / square);
  return matrix;
}

// U diag(values) V', rows x columns, for reflections U and V.
std::vector<double> with_singular_values(int64_t rows, int64_t columns, const std::vector<double>& values) {
  const std::vector<double> left = reflection(rows, 0.3), right = reflection(columns, 1.1);
  std::vector<double> matrix;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (size_t k = 0; k < values.size(); ++k)
        sum += left[static_cast<size_t>(i * rows) + k] * values[k] * right[static_cast<size_t>(j * columns) + k];
      matrix.push_back(sum);
    }
  return matrix;
}

std::vector<float> orthogonalised(int64_t rows, int64_t columns, int steps, std::vector<float> x) {
  std::vector<float> scratch(static_cast<size_t>(orthogonalise_scratch(rows, columns)), kNaN);
  orthogonalise(rows, columns, steps, x.data(), scratch.data());
  return x;
}

// The iteration applies s (a + b s^2 + c s^4) to each singular value, and keeps the singular vectors.
TEST(Orthogonalise, AppliesThePolynomialToTheSingularValuesOfDoublePrecision) {
  for (const auto& [rows, columns] : {std::pair{7, 20}, {20, 7}, {33, 33}, {70, 101}, {1, 5}, {5, 1}})
    for (const int steps : {1, 3, 5}) {
      std::vector<double> values;
      double square = 0;
      for (int i = 0; i < std::min(rows, columns); ++i) {
        values.push_back(10.0 / (1 + i));
        square += values.back() * values.back();
      }
      const std::vector<double> before = with_singular_values(rows, columns, values);
      for (double& value : values) {
        value /= std::sqrt(square);
        for (int step = 0; step < steps; ++step) value *= 3.4445 - 4.775 * value * value + 2.0315 * std::pow(value, 4);
      }
      const std::vector<double> wanted = with_singular_values(rows, columns, values);
      const std::vector<float> after = orthogonalised(rows, columns, steps, {before.begin(), before.end()});
      for (size_t i = 0; i < wanted.size(); ++i)
        ASSERT_NEAR(after[i], wanted[i], 2e-4) << rows << " x " << columns << ", " << steps << " steps, " << i;
      if (steps < 5) continue;
      EXPECT_THAT(values, Each(::testing::AllOf(::testing::Gt(0.65), ::testing::Lt(1.3))));
    }
}

TEST(Orthogonalise, GivesTheSameBitsWithAnyNumberOfThreads) {
  constexpr int64_t kRows = 100, kColumns = 150;
  std::vector<float> x;
  for (int64_t i = 0; i < kRows * kColumns; ++i) x.push_back(std::sin(static_cast<float>(i * i % 1009)));
  const int team = team_size();
  set_team_size(1);
  const std::vector<float> by_one = orthogonalised(kRows, kColumns, 5, x);
  set_team_size(3);
  EXPECT_EQ(orthogonalised(kRows, kColumns, 5, x), by_one);
  set_team_size(team);
}

TEST(Orthogonalise, LeavesZerosAsTheyAre) {
  EXPECT_THAT(orthogonalised(3, 4, 5, std::vector<float>(12, 0.0f)), Each(0.0f));
}

}  // namespace
}  // namespace owt::blas_test
