#include "layers/softmax_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "src/core/check.h"
#include "src/core/threads.h"
#include "tests/support/check_layer.h"
#include "tests/support/harness.h"

namespace owt {
namespace {

using testing::Each;
using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;
using testing::ThrowsMessage;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Result {
  LossSums sums;
  std::vector<float> dlogits;
};

Tensor labels_of(const std::vector<int>& values) {
  Tensor labels({static_cast<int64_t>(values.size())}, DType::kI32);
  std::copy(values.begin(), values.end(), labels.data<int32_t>());
  return labels;
}

// With step_rows = rows unless given.
Result run(const std::vector<float>& logits, const std::vector<int>& labels, int64_t step_rows = 0) {
  const auto rows = static_cast<int64_t>(labels.size());
  const int64_t classes = static_cast<int64_t>(logits.size()) / rows;
  Pass pass;
  pass.step_rows = step_rows > 0 ? step_rows : rows;
  const Tensor x = upload(logits, {rows, classes}, Device::kCpu);
  Tensor dx({rows, classes});
  fill(dx, kNaN);
  SoftmaxLoss loss(static_cast<int>(classes));
  const LossSums sums = loss.run(pass, x, labels_of(labels), &dx);
  return {sums, download(dx)};
}

TEST(SoftmaxLoss, EqualLogitsCostTheLogarithmOfTheClasses) {
  const Result result = run({2, 2, 2, 2}, {3});
  EXPECT_NEAR(result.sums.loss, std::log(4.0), 1e-7);
  EXPECT_THAT(result.dlogits, Pointwise(FloatNear(1e-7f), {0.25f, 0.25f, 0.25f, -0.75f}));
}

TEST(SoftmaxLoss, LossIsASumAndTheGradientIsDividedByTheRowsOfTheStep) {
  const float ln3 = std::log(3.0f);  // probabilities 1/4 and 3/4
  const Result result = run({0, ln3, 0, ln3}, {1, 0}, 8);
  EXPECT_NEAR(result.sums.loss, std::log(4.0 / 3) + std::log(4.0), 1e-6);
  EXPECT_EQ(result.sums.rows, 2);
  EXPECT_THAT(result.dlogits, Pointwise(FloatNear(1e-7f), {0.25f / 8, -0.25f / 8, -0.75f / 8, 0.75f / 8}));
}

TEST(SoftmaxLoss, GradientIsThatOfDifferences) {
  const int classes = 7;
  std::vector<float> logits = distinct_values(3 * classes, 2, 1);
  const std::vector<int> labels = {0, 6, 3};
  const std::vector<float> gradient = run(logits, labels).dlogits;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float before = logits[i], step = 1e-2f;
    logits[i] = before + step;
    const double high = run(logits, labels).sums.loss;
    logits[i] = before - step;
    const double low = run(logits, labels).sums.loss;
    logits[i] = before;
    EXPECT_NEAR(gradient[i], (high - low) / (2 * step) / 3, 1e-4) << i;
  }
}

TEST(SoftmaxLoss, HugeLogitsStayFinite) {
  const Result result = run({10000, 0, -10000, 10000, 0, -10000}, {0, 2});
  EXPECT_DOUBLE_EQ(result.sums.loss, 20000);
  EXPECT_THAT(result.dlogits, Pointwise(FloatNear(1e-6f), {0.0f, 0.0f, 0.0f, 0.5f, 0.0f, -0.5f}));
}

TEST(SoftmaxLoss, TopOneAndTopFiveCountRowsWhoseLabelRanksHighEnough) {
  const std::vector<float> falling = {9, 8, 7, 6, 5, 4, 3};
  std::vector<float> logits;
  for (int row = 0; row < 3; ++row) logits.insert(logits.end(), falling.begin(), falling.end());
  const Result result = run(logits, {0, 4, 5});  // ranks 1, 5 and 6
  EXPECT_EQ(result.sums.top1, 1);
  EXPECT_EQ(result.sums.top5, 2);
}

TEST(SoftmaxLoss, LowerIndexGoesFirstAmongEqualLogits) {
  EXPECT_EQ(run({1, 1}, {0}).sums.top1, 1);
  EXPECT_EQ(run({1, 1}, {1}).sums.top1, 0);
  EXPECT_EQ(run({0, 0, 0, 0, 0, 0}, {4}).sums.top5, 1);
  EXPECT_EQ(run({0, 0, 0, 0, 0, 0}, {5}).sums.top5, 0);
}

TEST(SoftmaxLoss, NaNGivesANaNLossAndCountsAsWrong) {
  for (const std::vector<float>& logits : {std::vector<float>{kNaN, 1, 2}, {0, kNaN, 2}, {0, 1, kNaN}}) {
    const Result result = run(logits, {2});
    EXPECT_TRUE(std::isnan(result.sums.loss));
    EXPECT_EQ(result.sums.top1, 0);
    EXPECT_EQ(result.sums.top5, 0);
  }
  EXPECT_TRUE(std::isnan(run({kInfinity, 0}, {0}).sums.loss));
}

TEST(SoftmaxLoss, OneNaNRowLeavesTheOthersCounted) {
  const Result result = run({kNaN, 0, 5, 0}, {0, 0});
  EXPECT_TRUE(std::isnan(result.sums.loss));
  EXPECT_EQ(result.sums.top1, 1);
}

TEST(SoftmaxLoss, LabelOutOfRangeIsAnErrorThatNamesRowAndValue) {
  EXPECT_THAT(
      [] {
        run({0, 1, 0, 1}, {1, 2});
      },
      ThrowsMessage<Error>(HasSubstr("the label of row 1 is 2, wanted 0 to 1")));
  EXPECT_THAT([] { run({0, 1}, {-1}); }, ThrowsMessage<Error>(HasSubstr("the label of row 0 is -1")));
}

TEST(SoftmaxLoss, NoRowsGiveNoLoss) {
  SoftmaxLoss loss(10);
  Tensor logits({0, 10}), dlogits({0, 10});
  const LossSums sums = loss.run(Pass{}, logits, labels_of({}), &dlogits);
  EXPECT_EQ(sums.loss, 0);
  EXPECT_EQ(sums.rows, 0);
}

TEST(SoftmaxLoss, EvaluationGivesTheSameSumsWithoutAGradient) {
  const std::vector<float> logits = distinct_values(40, 3, 2);
  const std::vector<int> labels = {1, 2, 3, 4};
  SoftmaxLoss loss(10);
  const LossSums sums = loss.run(Pass{}, upload(logits, {4, 10}, Device::kCpu), labels_of(labels), nullptr);
  EXPECT_EQ(sums.loss, run(logits, labels).sums.loss);
}

TEST(SoftmaxLoss, SumsAndGradientsDoNotDependOnTheThreads) {
  const std::vector<float> logits = distinct_values(64 * 100, 3, 3);
  std::vector<int> labels(64);
  for (int row = 0; row < 64; ++row) labels[static_cast<size_t>(row)] = row;
  const int before = team_size();
  set_team_size(1);
  const Result one = run(logits, labels);
  set_team_size(3);
  const Result three = run(logits, labels);
  set_team_size(before);
  EXPECT_EQ(one.sums.loss, three.sums.loss);
  EXPECT_EQ(one.dlogits, three.dlogits);
}

}  // namespace
}  // namespace owt
