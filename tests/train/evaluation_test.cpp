#include "src/train/evaluation.h"

#include <gtest/gtest.h>

namespace owt::evaluation_test {
namespace {

TEST(EvaluationText, HasTopFiveOnlyForMoreThanFiveClasses) {
  const Evaluation evaluation{.top1 = 0.7643, .top5 = 0.98416};
  EXPECT_EQ(accuracy_text(evaluation, 6), "top-1 76.43 %, top-5 98.42 %");
  EXPECT_EQ(accuracy_text(evaluation, 5), "top-1 76.43 %");
}

}  // namespace
}  // namespace owt::evaluation_test
