// Losses of cosines with a margin, against the definition in f64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "layers/loss/softmax_loss.h"
#include "layers/loss/softmax_rows.h"
#include "src/core/bf16.h"
#include "src/system/check.h"
#include "tests/support/check_layer.h"
#include "tests/support/losses.h"
#include "tests/support/message_of.h"

namespace owt::margin_test {
namespace {

using testing::HasSubstr;

constexpr LossMargin kArc{.scale = 16, .angle = 0.5}, kCos{.scale = 16, .cosine = 0.35},
    kAll{.scale = 16, .factor = 0.9, .angle = 0.4, .cosine = 0.15}, kSphere{.scale = 16, .factor = 1.35},
    kNone{.scale = 16};

using MarginTest = DeviceTest;
INSTANTIATE_TEST_SUITE_P(Devices, MarginTest, testing::ValuesIn(devices()), device_name);

// Rows of seven cosines; the label's is `own`.
LossCase case_of(const std::vector<float>& own, const LossMargin& margin, double smoothing = 0) {
  LossCase made{.logits = distinct_values(7 * std::ssize(own), 0.9, 3), .labels = {}};
  for (size_t row = 0; row < own.size(); ++row) {
    made.labels.push_back(static_cast<int32_t>((3 * row + 2) % 7));
    made.logits[row * 7 + static_cast<size_t>(made.labels.back())] = own[row];
  }
  made.settings.margin = margin;
  made.settings.label_smoothing = smoothing;
  return made;
}

double loss_by_definition(const LossCase& of) {
  double loss = 0;
  for (size_t row = 0; row < static_cast<size_t>(of.rows()); ++row) {
    const auto first = of.logits.begin() + static_cast<std::ptrdiff_t>(row * 7);
    loss += loss_of_row({first, first + 7}, of.label(row), of.settings);
  }
  return loss;
}

// Angles on both sides of where each margin reaches pi, which none of them is near to.
const std::vector<float> kCosines = {0.98f, 0.7f, 0.1f, -0.3f, -0.6f, -0.8f, -0.95f};

TEST_P(MarginTest, LossesAndGradientsAreThoseOfTheDefinition) {
  for (const LossMargin& margin : {kArc, kCos, kAll, kSphere, kNone})
    for (const double smoothing : {0.0, 0.1}) {
      SCOPED_TRACE(concat("m ", margin.factor, " ", margin.angle, " ", margin.cosine, ", smoothing ", smoothing));
      LossCase one = case_of(kCosines, margin, smoothing);
      one.step_rows = 9;
      const LossResult found = run_loss(one, device());
      EXPECT_NEAR(found.sums.loss, loss_by_definition(one), 1e-4);
      const std::vector<double> wanted = gradient_by_differences(one);
      for (size_t i = 0; i < wanted.size(); ++i)
        EXPECT_NEAR(found.dlogits[i], wanted[i], 3e-5 * std::max(1.0, std::abs(wanted[i]))) << i;
    }
}

// A logit that falls as the angle grows, so that the label never gains by moving away.
TEST(Margin, TheLabelsLogitFallsWithTheAngleUpToPi) {
  for (const LossMargin& margin : {kArc, kCos, kAll, kSphere, LossMargin{.scale = 1, .factor = 1.5, .angle = 1.57}}) {
    const RowMargin row = margin_of({.margin = margin}, Mode::kTrain, DType::kF32);
    float last = 1e9f;
    for (int i = 1; i < 1000; ++i) {
      const LabelLogit own = row.of_label(static_cast<float>(std::cos(M_PI * i / 1000)));
      EXPECT_LT(own.logit, last) << i;
      EXPECT_GE(own.slope, 0) << i;
      last = own.logit;
    }
  }
}

TEST(Margin, ArcFaceHasTheValuesOfThePaper) {
  const RowMargin arc = margin_of({.margin = {.scale = 64, .angle = 0.5}}, Mode::kTrain, DType::kF32);
  EXPECT_NEAR(arc.of_label(1).logit, 64 * std::cos(0.5), 5e-5);
  EXPECT_NEAR(arc.of_label(0).logit, -64 * std::sin(0.5), 5e-5);
  EXPECT_NEAR(arc.of_label(-1).logit, 64 * (-1 - 0.5 * std::sin(0.5)), 5e-5);
  EXPECT_EQ(arc.of_label(-1).slope, 1);
}

// Rounding may make a cosine larger than 1; and at an angle of 0 the slope would be infinite.
TEST(Margin, CosinesAtTheEndsHaveFiniteLogitsAndSlopes) {
  for (const DType type : {DType::kF32, DType::kBF16})
    for (const LossMargin& margin : {kArc, kAll, kSphere})
      for (const float input : {1.0f, 1.01f, -1.0f, -1.01f}) {
        const RowMargin row = margin_of({.margin = margin}, Mode::kTrain, type);
        const LabelLogit own = row.of_label(input), end = row.of_label(input > 0 ? 1.0f : -1.0f);
        EXPECT_EQ(own.logit, end.logit);
        EXPECT_LT(own.slope, 1.5 * (type == DType::kF32 ? 0x1p12 : 0x1p4));
        EXPECT_GE(own.slope, 0);
      }
  EXPECT_TRUE(std::isnan(margin_of({.margin = kArc}, Mode::kTrain, DType::kF32).of_label(std::nanf("")).logit));
}

TEST_P(MarginTest, EvaluationHasTheScaleAndNoMargin) {
  LossCase with = case_of(kCosines, kAll), without = case_of(kCosines, kNone);
  with.mode = Mode::kEval;
  const LossResult found = run_loss(with, device()), wanted = run_loss(without, device());
  EXPECT_EQ(found.sums.loss, wanted.sums.loss);
  EXPECT_EQ(found.dlogits, wanted.dlogits);
}

// 16 is a power of two, so that scaled inputs are rounded no otherwise.
TEST_P(MarginTest, ScaledCosinesWithoutAMarginAreLogits) {
  const LossCase scaled = case_of(kCosines, kNone);
  LossCase logits = case_of(kCosines, {});
  for (float& logit : logits.logits) logit *= 16;
  const LossResult found = run_loss(scaled, device()), wanted = run_loss(logits, device());
  EXPECT_EQ(found.sums.loss, wanted.sums.loss);
  EXPECT_EQ(found.sums.top1, wanted.sums.top1);
  for (size_t i = 0; i < wanted.dlogits.size(); ++i)
    EXPECT_NEAR(found.dlogits[i], 16 * wanted.dlogits[i], 1e-6 * std::abs(found.dlogits[i])) << i;
}

// The margin puts 0.8 below 0.7 and above 0.3.
TEST_P(MarginTest, TrainingCountsWithTheMargin) {
  LossCase one{.logits = {0.8f, 0.3f}, .labels = {0}, .settings = {.margin = kArc}};
  EXPECT_EQ(run_loss(one, device()).sums.top1, 1);
  one.logits[1] = 0.7f;
  EXPECT_EQ(run_loss(one, device()).sums.top1, 0);
  one.mode = Mode::kEval;
  EXPECT_EQ(run_loss(one, device()).sums.top1, 1);
}

TEST_P(MarginTest, InBf16OnlyTheGradientIsRounded) {
  for (const LossMargin& margin : {kArc, kAll, kCos}) {
    LossCase one = case_of(kCosines, margin);
    for (float& cosine : one.logits) cosine = from_bf16(to_bf16(cosine));
    const LossResult found = run_loss(one, {device(), Precision::kBf16}), wanted = run_loss(one, device());
    EXPECT_NEAR(found.sums.loss, wanted.sums.loss, 1e-5);
    for (size_t i = 0; i < wanted.dlogits.size(); ++i)
      EXPECT_NEAR(found.dlogits[i], wanted.dlogits[i], 0x1p-8 * std::abs(wanted.dlogits[i])) << i;
  }
}

TEST(Margin, IsNotForLogisticUnitsNorForMixedLabels) {
  for (const LossSettings& wrong :
       {LossSettings{.type = LossType::kLogistic, .margin = kArc}, LossSettings{.mixed_labels = true, .margin = kArc}})
    EXPECT_THAT(message_of([&] { make_softmax_loss(Device::kCpu, 3, 1, wrong); }), HasSubstr("a margin is for"));
}

}  // namespace
}  // namespace owt::margin_test
