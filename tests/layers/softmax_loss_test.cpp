#include "layers/loss/softmax_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/core/threads.h"
#include "src/system/check.h"
#include "tests/support/check_layer.h"
#include "tests/support/harness.h"
#include "tests/support/losses.h"
#include "tests/support/message_of.h"

namespace owt::softmax_loss_test {
namespace {

using testing::Each;
using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class SoftmaxLossTest : public DeviceTest {
 protected:
  // step_rows defaults to rows.
  LossResult run(const std::vector<float>& logits, const std::vector<int>& labels, int64_t step_rows = 0) const {
    return run_loss({.logits = logits, .labels = labels, .step_rows = step_rows}, device());
  }

  // Adds the loss of these rows to `sums`.
  void add(const std::vector<float>& logits, int64_t classes, const std::vector<int>& labels, Tensor* dlogits,
           Tensor& sums) const {
    const auto rows = static_cast<int64_t>(labels.size());
    DevicePass pass(device(), rows);
    const Tensor x = upload(logits, {rows, classes}, device());
    const auto loss = make_softmax_loss(device(), static_cast<int>(classes), rows + 1);
    loss->run(pass.pass(), x, upload_labels(labels, device()), dlogits, sums);
    pass.stream().synchronize();
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, SoftmaxLossTest, testing::ValuesIn(devices()), device_name);

// The last logits make the loss infinite.
TEST_P(SoftmaxLossTest, TheHostReadsSumsAndTheFirstBadLayerWhereItAsksForThem) {
  const Tensor good = upload({1, 2}, {2}, device()), bad = upload({1, kInfinity}, {2}, device());
  Tensor sums = no_sums(device());
  LossFollowUp then{{{good, 3}, {bad, 7}, {bad, 9}}, upload_labels({500}, device())};
  for (int32_t layer = 10; layer < 140; ++layer) then.watched.push_back({good, layer});  // more than a launch watches
  then.sums_for_host = Tensor::shared_with(device(), {kLossSums}, DType::kF64);
  then.first_for_host = Tensor::shared_with(device(), {1}, DType::kI32);
  const auto loss = make_softmax_loss(device(), 2, 2);
  const auto run = [&](const std::vector<float>& logits) {
    DevicePass pass(device(), 2);
    loss->run(pass.pass(), upload(logits, {2, 2}, device()), upload_labels({0, 1}, device()), nullptr, sums, then);
    pass.stream().synchronize();
  };
  run({2, 2, 5, 5});
  EXPECT_NEAR(then.sums_for_host.data<double>()[kLossSum], 2 * std::log(2.0), 1e-7);
  EXPECT_EQ(then.sums_for_host.data<double>()[kRowSum], 2);
  EXPECT_EQ(then.first_for_host.data<int32_t>()[0], 500);
  run({-kInfinity, 0, 0, 0});
  EXPECT_EQ(then.sums_for_host.data<double>()[kLossSum], static_cast<double>(kInfinity));
  EXPECT_EQ(then.sums_for_host.data<double>()[kRowSum], 4);
  EXPECT_EQ(then.first_for_host.data<int32_t>()[0], 7);
}

TEST_P(SoftmaxLossTest, EqualLogitsCostTheLogarithmOfTheClasses) {
  const LossResult result = run({2, 2, 2, 2}, {3});
  EXPECT_NEAR(result.sums.loss, std::log(4.0), 1e-7);
  EXPECT_THAT(result.dlogits, Pointwise(FloatNear(1e-7f), {0.25f, 0.25f, 0.25f, -0.75f}));
}

TEST_P(SoftmaxLossTest, LossIsASumAndTheGradientIsDividedByTheRowsOfTheStep) {
  const float ln3 = std::log(3.0f);  // probabilities 1/4 and 3/4
  const LossResult result = run({0, ln3, 0, ln3}, {1, 0}, 8);
  EXPECT_NEAR(result.sums.loss, std::log(4.0 / 3) + std::log(4.0), 1e-6);
  EXPECT_EQ(result.sums.rows, 2);
  EXPECT_THAT(result.dlogits, Pointwise(FloatNear(1e-7f), {0.25f / 8, -0.25f / 8, -0.75f / 8, 0.75f / 8}));
}

TEST_P(SoftmaxLossTest, GradientIsThatOfDifferences) {
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

TEST_P(SoftmaxLossTest, HugeLogitsStayFinite) {
  const LossResult result = run({10000, 0, -10000, 10000, 0, -10000}, {0, 2});
  EXPECT_DOUBLE_EQ(result.sums.loss, 20000);
  EXPECT_THAT(result.dlogits, Pointwise(FloatNear(1e-6f), {0.0f, 0.0f, 0.0f, 0.5f, 0.0f, -0.5f}));
}

TEST_P(SoftmaxLossTest, TopOneAndTopFiveCountRowsWhoseLabelRanksHighEnough) {
  const std::vector<float> falling = {9, 8, 7, 6, 5, 4, 3};
  std::vector<float> logits;
  for (int row = 0; row < 3; ++row) logits.insert(logits.end(), falling.begin(), falling.end());
  const LossResult result = run(logits, {0, 4, 5});  // ranks 1, 5 and 6
  EXPECT_EQ(result.sums.top1, 1);
  EXPECT_EQ(result.sums.top5, 2);
}

TEST_P(SoftmaxLossTest, LowerIndexGoesFirstAmongEqualLogits) {
  EXPECT_EQ(run({1, 1}, {0}).sums.top1, 1);
  EXPECT_EQ(run({1, 1}, {1}).sums.top1, 0);
  EXPECT_EQ(run({0, 0, 0, 0, 0, 0}, {4}).sums.top5, 1);
  EXPECT_EQ(run({0, 0, 0, 0, 0, 0}, {5}).sums.top5, 0);
}

TEST_P(SoftmaxLossTest, NaNGivesANaNLossAndCountsAsWrong) {
  for (const std::vector<float>& logits : {std::vector<float>{kNaN, 1, 2}, {0, kNaN, 2}, {0, 1, kNaN}}) {
    const LossResult result = run(logits, {2});
    EXPECT_TRUE(std::isnan(result.sums.loss));
    EXPECT_EQ(result.sums.top1, 0);
    EXPECT_EQ(result.sums.top5, 0);
  }
  EXPECT_TRUE(std::isnan(run({kInfinity, 0}, {0}).sums.loss));
}

TEST_P(SoftmaxLossTest, OneNaNRowLeavesTheOthersCounted) {
  const LossResult result = run({kNaN, 0, 5, 0}, {0, 0});
  EXPECT_TRUE(std::isnan(result.sums.loss));
  EXPECT_EQ(result.sums.top1, 1);
}

TEST_P(SoftmaxLossTest, ALabelOutOfRangeIsAnErrorOrGivesANaNLoss) {
  if (device() != Device::kCpu) {
    for (const int label : {2, -1}) {
      const LossResult result = run({0, 1, 0, 1}, {1, label});
      EXPECT_TRUE(std::isnan(result.sums.loss)) << label;
      EXPECT_EQ(result.sums.top1, 1) << label;
    }
    return;
  }
  EXPECT_THAT(message_of([&] { run({0, 1, 0, 1}, {1, 2}); }), HasSubstr("the label of row 1 is 2, wanted 0 to 1"));
  EXPECT_THAT(message_of([&] { run({0, 1}, {-1}); }), HasSubstr("the label of row 0 is -1"));
}

TEST_P(SoftmaxLossTest, NoRowsGiveNoLoss) {
  Tensor dlogits({0, 10}, DType::kF32, device()), sums = no_sums(device());
  add({}, 10, {}, &dlogits, sums);
  EXPECT_EQ(read_sums(sums).loss, 0);
  EXPECT_EQ(read_sums(sums).rows, 0);
}

TEST_P(SoftmaxLossTest, AddsToTheSumsOfEarlierBatches) {
  Tensor sums = no_sums(device());
  add({2, 2, 2, 2}, 4, {0}, nullptr, sums);
  add({1, 1, 1, 1, 0, 0}, 2, {0, 1, 0}, nullptr, sums);  // fewer rows than the op is for
  EXPECT_NEAR(read_sums(sums).loss, std::log(4.0) + 3 * std::log(2.0), 1e-6);
  EXPECT_EQ(read_sums(sums).top1, 3);
  EXPECT_EQ(read_sums(sums).top5, 4);
  EXPECT_EQ(read_sums(sums).rows, 4);
}

TEST_P(SoftmaxLossTest, EvaluationGivesTheSameSumsWithoutAGradient) {
  const std::vector<float> logits = distinct_values(40, 3, 2);
  const std::vector<int> labels = {1, 2, 3, 4};
  Tensor sums = no_sums(device());
  add(logits, 10, labels, nullptr, sums);
  EXPECT_EQ(read_sums(sums).loss, run(logits, labels).sums.loss);
}

TEST_P(SoftmaxLossTest, SumsAndGradientsDoNotDependOnTheThreads) {
  const std::vector<float> logits = distinct_values(64 * 100, 3, 3);
  std::vector<int> labels(64);
  for (int row = 0; row < 64; ++row) labels[static_cast<size_t>(row)] = row;
  const int before = team_size();
  set_team_size(1);
  const LossResult one = run(logits, labels);
  set_team_size(3);
  const LossResult three = run(logits, labels);
  set_team_size(before);
  EXPECT_EQ(one.sums.loss, three.sums.loss);
  EXPECT_EQ(one.dlogits, three.dlogits);
}

// More classes than a block has threads, and a number that is no multiple of any block size.
TEST_P(SoftmaxLossTest, ManyClassesGiveTheLossOfTheDefinition) {
  constexpr int64_t kClasses = 3001;
  const std::vector<float> logits = distinct_values(2 * kClasses, 4, 5);
  const std::vector<int> labels = {3000, 17};
  const LossResult result = run(logits, labels);
  double wanted = 0;
  for (size_t row = 0; row < 2; ++row) {
    double sum = 0;
    for (size_t c = 0; c < kClasses; ++c) sum += std::exp(static_cast<double>(logits[row * kClasses + c]));
    const size_t own = row * kClasses + static_cast<size_t>(labels[row]);
    wanted += std::log(sum) - static_cast<double>(logits[own]);
    for (const size_t c : {size_t{0}, size_t{1}, size_t{2999}, size_t{3000}}) {
      const double p = std::exp(static_cast<double>(logits[row * kClasses + c])) / sum;
      const double gradient = (p - (row * kClasses + c == own ? 1 : 0)) / 2;
      EXPECT_NEAR(result.dlogits[row * kClasses + c], gradient, std::min(1e-5 * std::abs(gradient), 1e-6))
          << "row " << row << ", class " << c;
    }
  }
  EXPECT_NEAR(result.sums.loss, wanted, 1e-5);
}

TEST_P(SoftmaxLossTest, ALabelAmongManyClassesIsInTheTopFiveIfFewerThanFiveRankBefore) {
  constexpr int kClasses = 101;
  std::vector<float> logits(kClasses);
  for (int c = 0; c < kClasses; ++c) logits[static_cast<size_t>(c)] = static_cast<float>(c * 7 % 25);  // with ties
  for (int label = 0; label < kClasses; ++label) {
    int before = 0;
    for (int c = 0; c < kClasses; ++c) {
      const int difference = c * 7 % 25 - label * 7 % 25;
      before += difference > 0 || (difference == 0 && c < label) ? 1 : 0;
    }
    const LossSums sums = run(logits, {label}).sums;
    EXPECT_EQ(sums.top1, before < 1 ? 1 : 0) << label;
    EXPECT_EQ(sums.top5, before < 5 ? 1 : 0) << label;
  }
}

// The numbers come from PyTorch's cross_entropy(label_smoothing) in f64.
TEST_P(SoftmaxLossTest, SmoothedLossIsThatOfPyTorch) {
  const float ln3 = std::log(3.0f);
  EXPECT_NEAR(run_loss({{0, ln3, 0, ln3}, {1, 0}, {0.2}}, device()).sums.loss, 1.6739764335716714, 1e-6);
  const LossResult result = run_loss({{1, 2, -1, 0.5, 3, -2, 0, 0}, {2, 0}, {0.1}}, device());
  EXPECT_NEAR(result.sums.loss, 3.708713934741367, 1e-6);
  EXPECT_THAT(result.dlogits, Pointwise(FloatNear(1e-6f), {0.0996039f, 0.2922300f, -0.4473284f, 0.0554945f, -0.0105480f,
                                                           -0.0094548f, 0.0100014f, 0.0100014f}));
}

TEST_P(SoftmaxLossTest, SmoothingTakesFromTheLabelWhatItGivesToAllClasses) {
  // Probabilities 1/4; targets 0.7 + 0.3 / 4, and 0.3 / 4.
  const LossResult result = run_loss({{5, 5, 5, 5}, {1}, {0.3}}, device());
  EXPECT_NEAR(result.sums.loss, std::log(4.0), 1e-6);
  EXPECT_THAT(result.dlogits, Pointwise(FloatNear(1e-6f), {0.175f, -0.525f, 0.175f, 0.175f}));
}

TEST_P(SoftmaxLossTest, SmoothedGradientIsThatOfDifferences) {
  for (const double smoothing : {0.0, 0.1, 0.9}) {
    const LossCase of{distinct_values(3 * 7, 4, 1), {0, 6, 3}, {smoothing}, Mode::kTrain, 5};
    EXPECT_THAT(run_loss(of, device()).dlogits, Pointwise(testing::DoubleNear(1e-6), gradient_by_differences(of)))
        << smoothing;
  }
}

TEST_P(SoftmaxLossTest, EvaluationIsWithoutSmoothing) {
  const std::vector<float> logits = distinct_values(40, 3, 2);
  const std::vector<int> labels = {1, 2, 3, 4};
  const LossResult smoothed = run_loss({logits, labels, {0.5}, Mode::kEval}, device()), plain = run(logits, labels);
  EXPECT_EQ(smoothed.sums.loss, plain.sums.loss);
  EXPECT_EQ(smoothed.dlogits, plain.dlogits);
  EXPECT_NE(run_loss({logits, labels, {0.5}}, device()).sums.loss, plain.sums.loss);
}

TEST_P(SoftmaxLossTest, AnImpossibleClassCostsOnlyWhereSmoothingWantsIt) {
  const LossCase plain{{0, -kInfinity, 0}, {0}}, smoothed{{0, -kInfinity, 0}, {0}, {0.1}};
  EXPECT_NEAR(run_loss(plain, device()).sums.loss, std::log(2.0), 1e-6);
  const LossResult result = run_loss(smoothed, device());
  EXPECT_EQ(result.sums.loss, static_cast<double>(kInfinity));
  EXPECT_EQ(result.sums.top1, 1);
  EXPECT_THAT(result.dlogits, Pointwise(FloatNear(1e-6f), {0.5f - 0.9f - 0.1f / 3, -0.1f / 3, 0.5f - 0.1f / 3}));
}

TEST_P(SoftmaxLossTest, SmoothingOutOfRangeIsAnError) {
  for (const double smoothing : {-0.1, 1.0, std::nan("")})
    EXPECT_THAT(message_of([&] { make_softmax_loss(device(), 10, 1, {smoothing}); }),
                HasSubstr("wanted 0 to less than 1"))
        << smoothing;
}

constexpr int32_t kUnits = RowLabel::kShareUnits;

LossCase mixed(const std::vector<float>& logits, const std::vector<int32_t>& labels, double smoothing = 0) {
  return {.logits = logits, .labels = labels, .settings = {.label_smoothing = smoothing, .mixed_labels = true}};
}

TEST_P(SoftmaxLossTest, MixedLabelsCostTheMeanOfBothByTheirShares) {
  const std::vector<float> logits = distinct_values(2 * 9, 2, 1);
  for (const double smoothing : {0.0, 0.1}) {
    const auto plain = [&](const std::vector<int32_t>& labels) {
      return run_loss({.logits = logits, .labels = labels, .settings = {.label_smoothing = smoothing}}, device());
    };
    const LossResult first = plain({3, 8}), second = plain({5, 0});
    const LossResult found = run_loss(mixed(logits, {3, 5, kUnits / 4 * 3, 8, 0, kUnits / 4 * 3}, smoothing), device());
    EXPECT_NEAR(found.sums.loss, 0.75 * first.sums.loss + 0.25 * second.sums.loss, 1e-5);
    EXPECT_EQ(found.sums.top1, first.sums.top1);
    EXPECT_EQ(found.sums.top5, first.sums.top5);
    for (size_t i = 0; i < logits.size(); ++i)
      EXPECT_NEAR(found.dlogits[i], 0.75 * first.dlogits[i] + 0.25 * second.dlogits[i], 1e-6) << i;
  }
}

TEST_P(SoftmaxLossTest, TheGradientOfMixedLabelsIsThatOfDifferences) {
  for (const double smoothing : {0.0, 0.2}) {
    const LossCase of = mixed(distinct_values(4 * 6, 2, 1),
                              {0, 5, kUnits / 8 * 5, 2, 3, kUnits / 2, 4, 4, kUnits, 1, 1, kUnits / 4 * 3}, smoothing);
    EXPECT_THAT(run_loss(of, device()).dlogits, Pointwise(testing::DoubleNear(1e-6), gradient_by_differences(of)))
        << smoothing;
  }
}

LossSettings logistic(double smoothing = 0, bool mixed_labels = false) {
  return {smoothing, mixed_labels, LossType::kLogistic};
}

// binary_cross_entropy_with_logits(x, target, reduction="sum") of PyTorch 2.15 in f64, with one-hot, smoothed and mixed
// targets, and its gradients by the rows.
TEST_P(SoftmaxLossTest, LogisticUnitsHaveTheLossOfPyTorch) {
  const std::vector<float> logits = {1, 2, -1, 0.5, 3, -2, 0, 0};
  const LossResult plain = run_loss({logits, {2, 0}, logistic()}, device());
  EXPECT_NEAR(plain.sums.loss, 7.28933809399613, 1e-5);
  EXPECT_EQ(plain.sums.top1, 1);
  EXPECT_THAT(plain.dlogits, Pointwise(FloatNear(1e-6f), {0.3655293f, 0.4403985f, -0.3655293f, 0.3112297f, -0.0237129f,
                                                          0.0596015f, 0.25f, 0.25f}));
  const LossResult smoothed = run_loss({logits, {2, 0}, logistic(0.1)}, device());
  EXPECT_NEAR(smoothed.sums.loss, 7.4018380939961315, 1e-5);
  EXPECT_THAT(smoothed.dlogits, Pointwise(FloatNear(1e-6f), {0.3530293f, 0.4278985f, -0.3280293f, 0.2987297f,
                                                             0.0137871f, 0.0471015f, 0.2375f, 0.2375f}));
  const LossResult both = run_loss({{1, 2, -1, 0.5f}, {1, 2, kUnits / 4 * 3}, logistic(0.1, true)}, device());
  EXPECT_NEAR(both.sums.loss, 3.5400283702595243, 1e-5);
  EXPECT_THAT(both.dlogits, Pointwise(FloatNear(1e-6f), {0.7060586f, 0.1807971f, 0.0189414f, 0.5974593f}));
}

TEST_P(SoftmaxLossTest, TheGradientOfLogisticUnitsIsThatOfDifferences) {
  for (const double smoothing : {0.0, 0.2}) {
    const LossCase of{distinct_values(3 * 7, 4, 1), {0, 6, 3}, logistic(smoothing), Mode::kTrain, 5};
    EXPECT_THAT(run_loss(of, device()).dlogits, Pointwise(testing::DoubleNear(1e-6), gradient_by_differences(of)));
  }
}

TEST_P(SoftmaxLossTest, ALogisticUnitThatIsInfinitelyRightCostsNothing) {
  const float most = std::numeric_limits<float>::infinity();
  const LossResult right = run_loss({{-most, most, -most}, {1}, logistic()}, device());
  EXPECT_EQ(right.sums.loss, 0);
  EXPECT_THAT(right.dlogits, testing::Each(0.0f));
  EXPECT_EQ(run_loss({{-most, most, -most}, {0}, logistic()}, device()).sums.loss, double{most});
}

TEST_P(SoftmaxLossTest, EvaluationOfLogisticUnitsIsNotSmoothed) {
  const std::vector<float> logits = {1, 2, -1};
  const LossResult plain = run_loss({logits, {2}, logistic()}, device());
  EXPECT_EQ(run_loss({logits, {2}, logistic(0.3), Mode::kEval}, device()).sums.loss, plain.sums.loss);
}

TEST_P(SoftmaxLossTest, AMixedLabelOfOneClassIsAPlainOneBitForBit) {
  const std::vector<float> logits = distinct_values(3 * 7, 2, 1);
  const LossResult plain = run(logits, {1, 6, 3});
  for (const int32_t other : {0, 4}) {
    const LossResult found = run_loss(mixed(logits, {1, other, kUnits, 6, 6, kUnits, 3, other, kUnits}), device());
    EXPECT_EQ(found.sums.loss, plain.sums.loss);
    EXPECT_EQ(found.dlogits, plain.dlogits);
  }
}

TEST_P(SoftmaxLossTest, AMixedLabelOutOfRangeIsAnErrorOrGivesANaNLoss) {
  const auto second = mixed({0, 1, 0, 1}, {0, 1, kUnits, 1, 2, kUnits / 4 * 3});
  if (device() == Device::kCpu) {
    EXPECT_THAT(message_of([&] { run_loss(second, device()); }), HasSubstr("the label of row 1 is 2, wanted 0 to 1"));
    EXPECT_THAT(message_of([&] {
                  run_loss(mixed({0, 1}, {0, 1, kUnits + 1}), device());
                }),
                HasSubstr("the share of row 0"));
  } else {
    EXPECT_TRUE(std::isnan(run_loss(second, device()).sums.loss));
  }
}

TEST_P(SoftmaxLossTest, LabelsThatAreNotMixedAreRefusedWhereMixedOnesAreWanted) {
  const LossCase of{.logits = {0, 1, 0, 1}, .labels = {0, 1}};
  DevicePass pass(device(), 2);
  Tensor sums = no_sums(device());
  EXPECT_THROW(make_softmax_loss(device(), 2, 2, {.mixed_labels = true})
                   ->run(pass.pass(), upload(of.logits, {2, 2}, device()), of.labels_on(device()), nullptr, sums),
               Error);
}

}  // namespace
}  // namespace owt::softmax_loss_test
