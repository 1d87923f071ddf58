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
    const SoftmaxSum of_row = softmax_sum(std::span<const float>(logits));
    EXPECT_NEAR(of_row.log(), std::log(sum), 1e-12);
    add_softmax(std::span<const float>(logits), of_row, sums);
    const std::vector<double> doubles(logits.begin(), logits.end());
    add_softmax(doubles, softmax_sum(doubles), of_doubles);
    for (size_t c = 0; c < count; ++c) {
      const double wanted = std::exp(static_cast<double>(logits[c])) / sum;
      EXPECT_NEAR(sums[c], 0.25 + wanted, 1e-14);  // added to what is there
      EXPECT_NEAR(of_doubles[c] / wanted, 1, 1e-11) << logits[c];
    }
  }
}

// Some parts have no classes; the largest logits are in none, the first or the last of them.
TEST(Softmax, OfClassesInPartsIsThatOfTheRow) {
  const std::vector<float> logits = made_logits(1000);
  const std::span<const float> row(logits);
  const SoftmaxSum wanted = softmax_sum(row);
  for (const std::vector<size_t>& ends : {std::vector<size_t>{1000}, {0, 1000}, {3, 3, 500, 1000, 1000}, {999, 1000}}) {
    SoftmaxSum sum;
    size_t begin = 0;
    for (const size_t end : ends) {
      sum.add(softmax_sum(row.subspan(begin, end - begin)));
      begin = end;
    }
    EXPECT_EQ(sum.largest, wanted.largest);
    EXPECT_NEAR(sum.sum / wanted.sum, 1, 1e-13);
  }
}

TEST(Softmax, OfLogitsThatAreNoNumbersIsNone) {
  for (const float x : {NAN, HUGE_VALF}) {
    std::vector<double> sums(3);
    const std::vector<float> logits{0, x, 1};
    const SoftmaxSum of_row = softmax_sum(logits);
    add_softmax(logits, of_row, sums);
    EXPECT_TRUE(std::isnan(of_row.log()));
    EXPECT_TRUE(std::isnan(sums[1]));
  }
  std::vector<double> sums(2);
  const std::vector<float> logits{3, -HUGE_VALF};
  const SoftmaxSum of_row = softmax_sum(logits);
  add_softmax(logits, of_row, sums);
  EXPECT_EQ(of_row.log(), 3);
  EXPECT_EQ(sums[0], 1);
  EXPECT_EQ(sums[1], 0);
}

}  // namespace
}  // namespace owt::add_softmax_test
