// Targets of LossSettings::targets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "layers/loss/teacher_targets.h"
#include "tests/support/check_layer.h"
#include "tests/support/harness.h"
#include "tests/support/losses.h"

namespace owt::loss_targets_test {
namespace {

using testing::DoubleNear;
using testing::Each;
using testing::FloatNear;
using testing::Pointwise;

struct LossTargetsTest : DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, LossTargetsTest, testing::ValuesIn(devices()), device_name);

// Two rows of four classes, each with the numbers of its label and its targets.
std::vector<int32_t> two_rows(const std::vector<std::vector<int32_t>>& labels,
                              const std::vector<float>& targets = {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.25f, 0.25f, 0}) {
  std::vector<int32_t> rows;
  for (size_t row = 0; row < 2; ++row) {
    rows.insert(rows.end(), labels[row].begin(), labels[row].end());
    for (size_t c = 0; c < 4; ++c) rows.push_back(bits_of_target(targets[row * 4 + c]));
  }
  return rows;
}

LossSettings with_targets(double weight, double temperature, LossType type = LossType::kSoftmax) {
  LossSettings settings;
  settings.type = type;
  settings.targets = {.classes = 4, .weight = weight, .temperature = temperature};
  return settings;
}

const std::vector<float> kLogits = {1, 2, -1, 0.5f, 3, -2, 0, 0};

// In f64 of PyTorch 2.15: (1 - w) cross_entropy(x, label, label_smoothing=0.1) + w T^2 cross_entropy(x / T, t), and the
// same with binary_cross_entropy_with_logits; w = 0.7, T = 4; reduction="sum", gradients by the rows.
TEST_P(LossTargetsTest, LossAndGradientAreThoseOfPyTorch) {
  LossSettings settings = with_targets(0.7, 4);
  settings.label_smoothing = 0.1;
  const LossResult softmax = run_loss({kLogits, two_rows({{2}, {0}}), settings}, device());
  EXPECT_NEAR(softmax.sums.loss, 32.25355368397285, 1e-5);
  EXPECT_THAT(softmax.dlogits, Pointwise(FloatNear(1e-6f), {0.26093348f, 0.28410959f, -0.32914392f, -0.21589915f,
                                                            -0.07571001f, -0.17306774f, -0.05061113f, 0.29938887f}));
  settings = with_targets(0.7, 4, LossType::kLogistic);
  const LossResult logistic = run_loss({kLogits, two_rows({{2}, {0}}), settings}, device());
  EXPECT_NEAR(logistic.sums.loss, 66.93173018770125, 1e-5);
  EXPECT_THAT(logistic.dlogits, Pointwise(FloatNear(1e-6f), {0.75670589f, 0.72356263f, 0.08329411f, 0.27706202f,
                                                             0.2437363f, 0.19643737f, 0.425f, 0.775f}));
}

// The values are PyTorch's as above, but the second part is w T^2 kl_div(log_softmax(x / T), t). For logistic units it
// is w T^2 times the binary_cross_entropy less the one of t with itself.
TEST_P(LossTargetsTest, TheLossToATeacherIsTheDivergenceOfPyTorch) {
  for (const auto& [type, smoothing, wanted] : {std::tuple(LossType::kSoftmax, 0.1, 6.274314056681314),
                                                std::tuple(LossType::kLogistic, 0.0, 22.94732700787361)}) {
    LossCase of{kLogits, two_rows({{2}, {0}}), with_targets(0.7, 4, type)};
    of.settings.label_smoothing = smoothing;
    const std::vector<float> gradient = run_loss(of, device()).dlogits;
    of.settings.targets.from_teacher = true;
    const LossResult found = run_loss(of, device());
    EXPECT_NEAR(found.sums.loss, wanted, 1e-5) << name_of(type);
    EXPECT_EQ(found.dlogits, gradient);
  }
}

// Targets of 0 and 1, and others that are the student's probabilities.
TEST_P(LossTargetsTest, AStudentThatEqualsItsTeacherHasTheLoss0) {
  const float all = std::numeric_limits<float>::infinity();
  for (const LossType type : {LossType::kSoftmax, LossType::kLogistic}) {
    LossSettings settings = with_targets(1, 2, type);
    settings.targets.from_teacher = true;
    const std::vector<float> logits = type == LossType::kSoftmax
                                          ? std::vector<float>{0, -all, -all, -all, 1, 1, 1, 1}
                                          : std::vector<float>{all, -all, -all, -all, 0, 0, 0, 0};
    const float of_four = type == LossType::kSoftmax ? 0.25f : 0.5f;
    const LossResult found =
        run_loss({logits, two_rows({{0}, {0}}, {1, 0, 0, 0, of_four, of_four, of_four, of_four}), settings}, device());
    EXPECT_NEAR(found.sums.loss, 0, 1e-6) << name_of(type);
    EXPECT_THAT(found.dlogits, Each(FloatNear(0, 1e-7f)));
  }
}

TEST_P(LossTargetsTest, TheGradientIsThatOfDifferences) {
  for (const LossType type : {LossType::kSoftmax, LossType::kLogistic}) {
    for (const double weight : {0.0, 0.4, 1.0}) {
      LossCase of{kLogits, two_rows({{0}, {3}}), with_targets(weight, 2, type), Mode::kTrain, 5};
      of.settings.label_smoothing = 0.2;
      EXPECT_THAT(run_loss(of, device()).dlogits, Pointwise(DoubleNear(1e-6), gradient_by_differences(of)))
          << name_of(type) << weight;
      of.settings.mixed_labels = true;
      of.labels = two_rows({{0, 2, RowLabel::kShareUnits / 4 * 3}, {1, 1, RowLabel::kShareUnits}});
      EXPECT_THAT(run_loss(of, device()).dlogits, Pointwise(DoubleNear(1e-6), gradient_by_differences(of)))
          << name_of(type) << weight;
    }
  }
}

TEST_P(LossTargetsTest, TheGradientInBf16IsRoundedTheSame) {
  Compute on = device();
  on.precision = Precision::kBf16;
  for (const LossType type : {LossType::kSoftmax, LossType::kLogistic}) {
    const LossCase of{kLogits, two_rows({{2}, {0}}), with_targets(0.5, 3, type)};
    EXPECT_THAT(run_loss(of, on).dlogits, Pointwise(FloatNear(0x1p-7f), run_loss(of, device()).dlogits));
  }
}

TEST_P(LossTargetsTest, RowsOfManyClassesCountAllOfThem) {
  constexpr int64_t kClasses = 1300;
  LossCase of{distinct_values(kClasses, 2, 1), {7}, {}};
  of.settings.targets = {.classes = kClasses, .weight = 1, .temperature = 2};
  for (int64_t c = 0; c < kClasses; ++c) of.labels.push_back(bits_of_target(static_cast<float>(c % 5) / 2600));
  EXPECT_THAT(run_loss(of, device()).dlogits, Pointwise(DoubleNear(1e-6), gradient_by_differences(of)));
}

TEST_P(LossTargetsTest, TargetsThatAreTheLabelCostWhatTheLabelCosts) {
  for (const LossType type : {LossType::kSoftmax, LossType::kLogistic}) {
    LossSettings plain;
    plain.type = type;
    const LossResult wanted = run_loss({kLogits, {2, 0}, plain}, device());
    const LossResult found =
        run_loss({kLogits, two_rows({{2}, {0}}, {0, 0, 1, 0, 1, 0, 0, 0}), with_targets(1, 1, type)}, device());
    EXPECT_NEAR(found.sums.loss, wanted.sums.loss, 1e-6);
    EXPECT_EQ(found.sums.top1, wanted.sums.top1);
    EXPECT_THAT(found.dlogits, Pointwise(FloatNear(1e-7f), wanted.dlogits));
  }
}

TEST_P(LossTargetsTest, TargetsOfATeacherDoNotCountInEvaluation) {
  LossCase of{kLogits, two_rows({{2}, {0}}), with_targets(0.5, 2), Mode::kEval};
  const double with = run_loss(of, device()).sums.loss;
  of.settings.targets.from_teacher = true;
  const double without = run_loss(of, device()).sums.loss;
  EXPECT_EQ(without, run_loss({kLogits, {2, 0}}, device()).sums.loss);
  EXPECT_NE(without, with);
  of.mode = Mode::kTrain;
  EXPECT_NE(run_loss(of, device()).sums.loss, without);
}

TEST_P(LossTargetsTest, AnImpossibleClassWithTarget0CostsNothing) {
  const float least = -std::numeric_limits<float>::infinity();
  const LossResult found = run_loss(
      {{0, 0, least, least, 0, 0, 0, least}, two_rows({{0}, {0}}, {0.5f, 0.5f, 0, 0, 1, 0, 0, 0}), with_targets(1, 1)},
      device());
  EXPECT_NEAR(found.sums.loss, std::log(2.0) + std::log(3.0), 1e-6);
  EXPECT_THAT(found.dlogits,
              Pointwise(FloatNear(1e-6f), {0.0f, 0.0f, 0.0f, 0.0f, -1.0f / 3, 1.0f / 6, 1.0f / 6, 0.0f}));
}

// The targets of rows that a teacher with these logits writes, after the labels 5 and 6, or 5, 5, 1 and 6, 6, 1.
std::vector<float> taught(const std::vector<float>& logits, const LossSettings& settings, const Compute& on,
                          double scale = 1, bool evaluates = false) {
  const int64_t numbers = settings.label_rows().label_numbers();
  std::vector<int32_t> labels;
  for (const int32_t label : {5, 6})
    for (int64_t i = 0; i < numbers; ++i) labels.push_back(i == 2 ? RowLabel::kShareUnits : label);
  const Tensor before = upload_labels(labels, on.device).reshaped({2, numbers});
  const Tensor x = upload(logits, {2, 4}, on.device, activation_type(on.precision));
  Tensor out({2, settings.label_numbers()}, DType::kI32, on.device);
  const Stream stream(on.device);
  write_teacher_targets(on, before, evaluates ? nullptr : &x, scale, settings, out, stream);
  stream.synchronize();
  const Tensor rows = out.to(Device::kCpu);
  std::vector<float> targets;
  for (int64_t row = 0; row < 2; ++row) {
    EXPECT_EQ(settings.label_rows().label(rows.data<int32_t>(), row).first, row == 0 ? 5 : 6);
    EXPECT_EQ(settings.label_rows().label(rows.data<int32_t>(), row).share, 1);
    const int32_t* its = settings.label_rows().targets_of(rows.data<int32_t>(), row);
    for (int64_t c = 0; c < 4; ++c) targets.push_back(target_of(its[c]));
  }
  return targets;
}

// The logits are the logarithms of the probabilities, times T / scale, plus a number that does not count.
TEST_P(LossTargetsTest, ATeacherWritesItsProbabilitiesAtTheTemperature) {
  const std::vector<float> softmax = {0.30088893f, 0.49608194f, 0.11068786f, 0.09234127f,
                                      0.64548573f, 0.05298460f, 0.14402707f, 0.15750260f};
  for (const bool mixed : {false, true}) {
    LossSettings settings = with_targets(1, 4);
    settings.mixed_labels = mixed;
    std::vector<float> logits;
    for (const float p : softmax) logits.push_back(2 * std::log(p) + 3);
    EXPECT_THAT(taught(logits, settings, device(), 2), Pointwise(FloatNear(1e-6f), softmax));
    EXPECT_THAT(taught(logits, settings, device(), 2, true), Each(0.0f));
  }
  const std::vector<float> sigmoid = taught(kLogits, with_targets(1, 4, LossType::kLogistic), device(), 2);
  for (size_t i = 0; i < sigmoid.size(); ++i) EXPECT_NEAR(sigmoid[i], 1 / (1 + std::exp(-kLogits[i] / 2)), 1e-6) << i;
}

TEST_P(LossTargetsTest, ATeacherInBf16WritesTheProbabilitiesOfItsRoundedLogits) {
  Compute on = device();
  on.precision = Precision::kBf16;  // these logits need no rounding
  EXPECT_THAT(taught(kLogits, with_targets(1, 2), on),
              Pointwise(FloatNear(1e-7f), taught(kLogits, with_targets(1, 2), device())));
}

}  // namespace
}  // namespace owt::loss_targets_test
