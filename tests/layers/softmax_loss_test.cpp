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

class SoftmaxLossTest : public DeviceTest {
 protected:
  struct Result {
    LossSums sums;
    std::vector<float> dlogits;
  };

  // With step_rows = rows unless given.
  Result run(const std::vector<float>& logits, const std::vector<int>& labels, int64_t step_rows = 0) const {
    const auto rows = static_cast<int64_t>(labels.size());
    const int64_t classes = static_cast<int64_t>(logits.size()) / rows;
    Tensor dlogits({rows, classes}, DType::kF32, device());
    fill(dlogits, kNaN);
    Tensor sums = no_sums();
    add(logits, classes, labels, step_rows > 0 ? step_rows : rows, &dlogits, sums);
    return {read(sums), download(dlogits)};
  }

  // Adds the loss of these rows to `sums`.
  void add(const std::vector<float>& logits, int64_t classes, const std::vector<int>& labels, int64_t step_rows,
           Tensor* dlogits, Tensor& sums) const {
    const auto rows = static_cast<int64_t>(labels.size());
    DevicePass pass(device(), rows);
    pass.pass().step_rows = step_rows;
    const Tensor x = upload(logits, {rows, classes}, device());
    const auto loss = make_softmax_loss(device(), static_cast<int>(classes), rows + 1);
    loss->run(pass.pass(), x, upload_labels(labels, device()), dlogits, sums);
    pass.stream().synchronize();
  }

  Tensor no_sums() const {
    Tensor sums({kLossSums}, DType::kF64, device());
    sums.zero();
    return sums;
  }
  static LossSums read(const Tensor& sums) {
    const Tensor here = sums.to(Device::kCpu);
    const double* sum = here.data<double>();
    return {sum[kLossSum], static_cast<int64_t>(sum[kTop1Sum]), static_cast<int64_t>(sum[kTop5Sum]),
            static_cast<int64_t>(sum[kRowSum])};
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, SoftmaxLossTest, testing::ValuesIn(devices()), device_name);

TEST_P(SoftmaxLossTest, EqualLogitsCostTheLogarithmOfTheClasses) {
  const Result result = run({2, 2, 2, 2}, {3});
  EXPECT_NEAR(result.sums.loss, std::log(4.0), 1e-7);
  EXPECT_THAT(result.dlogits, Pointwise(FloatNear(1e-7f), {0.25f, 0.25f, 0.25f, -0.75f}));
}

TEST_P(SoftmaxLossTest, LossIsASumAndTheGradientIsDividedByTheRowsOfTheStep) {
  const float ln3 = std::log(3.0f);  // probabilities 1/4 and 3/4
  const Result result = run({0, ln3, 0, ln3}, {1, 0}, 8);
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
  const Result result = run({10000, 0, -10000, 10000, 0, -10000}, {0, 2});
  EXPECT_DOUBLE_EQ(result.sums.loss, 20000);
  EXPECT_THAT(result.dlogits, Pointwise(FloatNear(1e-6f), {0.0f, 0.0f, 0.0f, 0.5f, 0.0f, -0.5f}));
}

TEST_P(SoftmaxLossTest, TopOneAndTopFiveCountRowsWhoseLabelRanksHighEnough) {
  const std::vector<float> falling = {9, 8, 7, 6, 5, 4, 3};
  std::vector<float> logits;
  for (int row = 0; row < 3; ++row) logits.insert(logits.end(), falling.begin(), falling.end());
  const Result result = run(logits, {0, 4, 5});  // ranks 1, 5 and 6
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
    const Result result = run(logits, {2});
    EXPECT_TRUE(std::isnan(result.sums.loss));
    EXPECT_EQ(result.sums.top1, 0);
    EXPECT_EQ(result.sums.top5, 0);
  }
  EXPECT_TRUE(std::isnan(run({kInfinity, 0}, {0}).sums.loss));
}

TEST_P(SoftmaxLossTest, OneNaNRowLeavesTheOthersCounted) {
  const Result result = run({kNaN, 0, 5, 0}, {0, 0});
  EXPECT_TRUE(std::isnan(result.sums.loss));
  EXPECT_EQ(result.sums.top1, 1);
}

TEST_P(SoftmaxLossTest, ALabelOutOfRangeIsAnErrorOrGivesANaNLoss) {
  if (device() != Device::kCpu) {
    for (const int label : {2, -1}) {
      const Result result = run({0, 1, 0, 1}, {1, label});
      EXPECT_TRUE(std::isnan(result.sums.loss)) << label;
      EXPECT_EQ(result.sums.top1, 1) << label;
    }
    return;
  }
  EXPECT_THAT(
      [&] {
        run({0, 1, 0, 1}, {1, 2});
      },
      ThrowsMessage<Error>(HasSubstr("the label of row 1 is 2, wanted 0 to 1")));
  EXPECT_THAT([&] { run({0, 1}, {-1}); }, ThrowsMessage<Error>(HasSubstr("the label of row 0 is -1")));
}

TEST_P(SoftmaxLossTest, NoRowsGiveNoLoss) {
  Tensor dlogits({0, 10}, DType::kF32, device()), sums = no_sums();
  add({}, 10, {}, 1, &dlogits, sums);
  EXPECT_EQ(read(sums).loss, 0);
  EXPECT_EQ(read(sums).rows, 0);
}

TEST_P(SoftmaxLossTest, AddsToTheSumsOfEarlierBatches) {
  Tensor sums = no_sums();
  add({2, 2, 2, 2}, 4, {0}, 1, nullptr, sums);
  add({1, 1, 1, 1, 0, 0}, 2, {0, 1, 0}, 1, nullptr, sums);  // fewer rows than the op is for
  EXPECT_NEAR(read(sums).loss, std::log(4.0) + 3 * std::log(2.0), 1e-6);
  EXPECT_EQ(read(sums).top1, 3);
  EXPECT_EQ(read(sums).top5, 4);
  EXPECT_EQ(read(sums).rows, 4);
}

TEST_P(SoftmaxLossTest, EvaluationGivesTheSameSumsWithoutAGradient) {
  const std::vector<float> logits = distinct_values(40, 3, 2);
  const std::vector<int> labels = {1, 2, 3, 4};
  Tensor sums = no_sums();
  add(logits, 10, labels, 1, nullptr, sums);
  EXPECT_EQ(read(sums).loss, run(logits, labels).sums.loss);
}

TEST_P(SoftmaxLossTest, SumsAndGradientsDoNotDependOnTheThreads) {
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

// More classes than a block has threads, and a number that fits nothing.
TEST_P(SoftmaxLossTest, ManyClassesGiveTheLossOfTheDefinition) {
  constexpr int64_t kClasses = 3001;
  const std::vector<float> logits = distinct_values(2 * kClasses, 4, 5);
  const std::vector<int> labels = {3000, 17};
  const Result result = run(logits, labels);
  double wanted = 0;
  for (size_t row = 0; row < 2; ++row) {
    double sum = 0;
    for (size_t c = 0; c < kClasses; ++c) sum += std::exp(static_cast<double>(logits[row * kClasses + c]));
    const size_t own = row * kClasses + static_cast<size_t>(labels[row]);
    wanted += std::log(sum) - static_cast<double>(logits[own]);
    for (const size_t c : {size_t{0}, size_t{1}, size_t{2999}, size_t{3000}}) {
      const double p = std::exp(static_cast<double>(logits[row * kClasses + c])) / sum;
      const double target = row * kClasses + c == own ? 1 : 0;
      EXPECT_NEAR(result.dlogits[row * kClasses + c], (p - target) / 2, 1e-7) << "row " << row << ", class " << c;
    }
  }
  EXPECT_NEAR(result.sums.loss, wanted, 1e-5);
}

}  // namespace
}  // namespace owt
