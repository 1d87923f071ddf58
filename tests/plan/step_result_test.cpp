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
  EXPECT_EQ(step_result(sums.data(), 7).sampled_classes, 7);
  EXPECT_EQ(step_result(sums.data(), 7).sums.loss, 2.5);
  constexpr double kLeftOut = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(step_result(sums.data(), kLeftOut).sums.loss));
  EXPECT_EQ(step_result(sums.data(), kLeftOut).sampled_classes, 0);
}

}  // namespace
}  // namespace owt::step_result_test
