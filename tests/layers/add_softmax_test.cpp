#include "layers/loss/add_softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "src/core/philox.h"

namespace owt::add_softmax_test {
namespace {

// Logits from -600 to 0 and a few larger ones; the count is no multiple of a vector's lanes.
std::vector<float> made_logits(size_t count) {
  const Philox random(1, RandomStream::kTest, 0, "softmax");
  std::vector<float> logits;
  for (size_t c = 0; c < count; ++c) {
    const float uniform = random.uniform(c);
    logits.push_back(c % 5 == 0 ? -600 * uniform : 10 * uniform);
  }
  return logits;
}

TEST(Softmax, IsThatOfTheStandardLibraryForEveryNumberOfClasses) {
  for (const size_t count : {1, 2, 7, 16, 33, 41'031}) {
    const std::vector<float> logits = made_logits(count);
    double sum = 0;
    for (const float x : logits) sum += std::exp(static_cast<double>(x));
    std::vector<double> sums(count, 0.25), of_doubles(count);
    EXPECT_NEAR(add_softmax(std::span<const float>(logits), sums), std::log(sum), 1e-12);
    add_softmax(std::span<const double>(std::vector<double>(logits.begin(), logits.end())), of_doubles);
    for (size_t c = 0; c < count; ++c) {
      const double wanted = std::exp(static_cast<double>(logits[c])) / sum;
      EXPECT_NEAR(sums[c], 0.25 + wanted, 1e-14);  // added to what is there
      EXPECT_NEAR(of_doubles[c] / wanted, 1, 1e-11) << logits[c];
    }
  }
}

TEST(Softmax, OfLogitsThatAreNoNumbersIsNone) {
  for (const float x : {NAN, HUGE_VALF}) {
    std::vector<double> sums(3);
    EXPECT_TRUE(std::isnan(add_softmax(std::span<const float>(std::vector<float>{0, x, 1}), sums)));
    EXPECT_TRUE(std::isnan(sums[1]));
  }
  std::vector<double> sums(2);
  EXPECT_EQ(add_softmax(std::span<const float>(std::vector<float>{3, -HUGE_VALF}), sums), 3);
  EXPECT_EQ(sums[0], 1);
  EXPECT_EQ(sums[1], 0);
}

}  // namespace
}  // namespace owt::add_softmax_test
