#include "src/plan/step_result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace owt::step_result_test {
namespace {

TEST(StepResult, HasNoLossIfClassesOfTheSampleWereLeftOut) {
  ResultSums sums{};
  sums[kLossSum] = 2.5;
  sums[kRowSum] = 4;
  sums[kSampledSum] = 7;
  EXPECT_EQ(step_result(sums.data()).sampled_classes, 7);
  EXPECT_EQ(step_result(sums.data()).sums.loss, 2.5);
  sums[kSampledSum] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(step_result(sums.data()).sums.loss));
  EXPECT_EQ(step_result(sums.data()).sampled_classes, 0);
}

}  // namespace
}  // namespace owt::step_result_test
