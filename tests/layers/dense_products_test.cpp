#include "layers/conv_cpu/dense_products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "src/core/bf16.h"
#include "src/system/check.h"
#include "tests/support/check_layer.h"
#include "tests/support/harness.h"
#include "tests/support/team_size.h"

namespace owt::dense_products_test {
namespace {

// Rows and columns that fill panels of any width and that do not; rows that are no pairs; rows of the weight that are
// made in several pieces.
const DenseExtents kExtents[] = {{1, 1, 1},    {2, 48, 16},  {3, 7, 5},     {64, 300, 130}, {7, 97, 49},
                                 {16, 24, 10}, {17, 12, 96}, {5, 17000, 3}, {33, 1000, 70}};

std::string text(const DenseExtents& e) { return concat(e.rows, " rows, ", e.features, " -> ", e.out); }

template <class T>
std::vector<T> values(int64_t count, unsigned seed) {
  std::vector<T> all;
  for (const float value : distinct_values(count, 1, seed)) all.push_back(value);
  return all;
}

// The gradient collected from all pieces; expects that each element comes once.
template <class T>
std::vector<float> gradient(const DenseExtents& e, const std::vector<T>& x, const std::vector<T>& dy) {
  std::vector<float> whole(static_cast<size_t>(e.features * e.out), NAN);
  std::mutex mutex;
  int64_t elements = 0;
  dense_weight_gradient(e, x.data(), dy.data(), [&](int64_t first, int64_t count, const float* piece) {
    const std::lock_guard lock(mutex);
    elements += count;
    std::copy_n(piece, count, whole.begin() + first);
  });
  EXPECT_EQ(elements, e.features * e.out);
  return whole;
}

template <class T>
class DenseProducts : public ::testing::Test {};
using Elements = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(DenseProducts, Elements);

TYPED_TEST(DenseProducts, TheGradientOfTheWeightIsTheSumOverTheRows) {
  for (const DenseExtents& e : kExtents) {
    SCOPED_TRACE(text(e));
    const auto x = values<TypeParam>(e.rows * e.features, 1), dy = values<TypeParam>(e.rows * e.out, 2);
    const std::vector<float> found = gradient(e, x, dy);
    double largest = 0;
    for (int64_t o = 0; o < e.out; ++o)
      for (int64_t f = 0; f < e.features; ++f) {
        double sum = 0;
        for (int64_t n = 0; n < e.rows; ++n)
          sum +=
              static_cast<double>(dy[static_cast<size_t>(n * e.out + o)]) * x[static_cast<size_t>(n * e.features + f)];
        largest = std::max(largest, std::abs(sum - found[static_cast<size_t>(o * e.features + f)]));
      }
    EXPECT_NEAR(largest, 0, 1e-4);
  }
}

TYPED_TEST(DenseProducts, TheGradientOfTheWeightHasTheSameBitsForEveryTeam) {
  for (const DenseExtents& e : {DenseExtents{64, 300, 130}, {130, 1000, 70}, {33, 17000, 40}}) {
    SCOPED_TRACE(text(e));
    const auto x = values<TypeParam>(e.rows * e.features, 1), dy = values<TypeParam>(e.rows * e.out, 2);
    const auto with = [&](int threads) {
      const TeamSize team(threads);
      return gradient(e, x, dy);
    };
    const std::vector<float> alone = with(1);
    for (const int threads : {2, 3, 5}) EXPECT_EQ(with(threads), alone) << threads;
  }
}

TYPED_TEST(DenseProducts, NaNAndInfinityGoToTheGradientsOfTheirFeatureAlone) {
  const DenseExtents e{3, 5, 2};
  auto x = values<TypeParam>(e.rows * e.features, 1), dy = values<TypeParam>(e.rows * e.out, 2);
  x[2] = NAN;
  x[e.features + 4] = std::numeric_limits<float>::infinity();
  const std::vector<float> found = gradient(e, x, dy);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(std::isnan(found[i]), i % 5 == 2) << i;
    EXPECT_EQ(std::isinf(found[i]), i % 5 == 4) << i;
  }
}

}  // namespace
}  // namespace owt::dense_products_test
