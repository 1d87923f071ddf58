#include "layers/batch_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "src/core/check.h"
#include "tests/support/check_layer.h"
#include "tests/support/harness.h"

namespace owt {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;
using testing::ThrowsMessage;
using Values = std::vector<float>;

class BatchNormTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, BatchNormTest, testing::ValuesIn(devices()), device_name);

TEST_P(BatchNormTest, KeepsTheLayerContract) {
  check_layer("type='batch_norm'", {4, 3, 3, 5}, device());
  check_layer("type='batch_norm' weight={init={type='gaussian',std=1}}", {7, 10}, device());
  check_layer("type='batch_norm' eps=0.1", {4, 20, 20, 33}, device(), {.samples = 0});
}

TEST_P(BatchNormTest, KeepsTheLayerContractInGroupsOfRows) {
  check_layer("type='batch_norm' rows=2 weight={init={type='gaussian',std=1}}", {6, 3, 3, 5}, device());
  check_layer("type='batch_norm' rows=3", {10, 10}, device());  // 3, 3 and 4
  check_layer("type='batch_norm' rows=4", {14, 8}, device());   // 4, 4, 4 and 2
  check_layer("type='batch_norm' rows=8", {3, 2, 2, 6}, device());
  check_layer("type='batch_norm' eps=0.1 rows=32", {80, 8, 8, 16}, device(), {.samples = 0});
}

// Nine rows are groups of 4 and 5. A batch of its own has the same statistics, gradients and share of the step.
TEST_P(BatchNormTest, AGroupOfRowsIsABatchOfItsOwn) {
  constexpr int64_t kOfRow = 2 * 3 * 4;
  const Values x = distinct_values(9 * kOfRow, 2, 1), dy = distinct_values(9 * kOfRow, 1, 2);
  Harness whole("type='batch_norm' rows=4", {9, 2, 3, 4}, device());
  const Values y = whole.forward(x), dx = whole.backward(dy);
  std::map<std::string, Values> sums;
  for (const Slice rows : {Slice{0, 4}, Slice{4, 9}}) {
    const auto of_rows = [&](const Values& all) {
      return Values(all.begin() + rows.begin * kOfRow, all.begin() + rows.end * kOfRow);
    };
    Harness group("type='batch_norm'", {rows.size(), 2, 3, 4}, device());
    group.pass().step_rows = 9;
    EXPECT_THAT(group.forward(of_rows(x)), Pointwise(FloatNear(1e-6f), of_rows(y)));
    EXPECT_THAT(group.backward(of_rows(dy)), Pointwise(FloatNear(1e-6f), of_rows(dx)));
    for (const char* name : {"weight", "bias", "running_mean", "running_var"}) {
      const Values grad = group.grad(name);
      sums[name].resize(grad.size());
      for (size_t i = 0; i < grad.size(); ++i) sums[name][i] += grad[i];
    }
  }
  for (const auto& [name, sum] : sums) EXPECT_THAT(whole.grad(name), Pointwise(FloatNear(1e-5f), sum)) << name;
}

TEST_P(BatchNormTest, EvaluationKnowsNoGroups) {
  Harness norm("type='batch_norm' eps=1e-12 rows=1", {3, 1}, device());
  norm.set_param("running_mean", {10});
  norm.set_param("running_var", {4});
  EXPECT_THAT(norm.evaluate({14, 8, 10}), Pointwise(FloatNear(1e-6f), {2.0f, -1.0f, 0.0f}));
}

TEST_P(BatchNormTest, NormalisesEachChannelOverAllPositions) {
  Harness norm("type='batch_norm' eps=1e-12", {2, 1, 2, 2}, device());
  // Channel 0 holds 1, 3, 5, 7 (mean 4, var 5), channel 1 holds 0, 0, 2, 2 (mean 1, var 1).
  const float unit = 1 / std::sqrt(5.0f);
  EXPECT_THAT(norm.forward({1, 0, 3, 0, 5, 2, 7, 2}),
              Pointwise(FloatNear(1e-6f), {-3 * unit, -1.0f, -unit, -1.0f, unit, 1.0f, 3 * unit, 1.0f}));
}

TEST_P(BatchNormTest, ScalesAndShifts) {
  Harness norm("type='batch_norm' eps=1e-12", {2, 1}, device());
  norm.set_param("weight", {3});
  norm.set_param("bias", {10});
  EXPECT_THAT(norm.forward({-1, 1}), Pointwise(FloatNear(1e-5f), {7.0f, 13.0f}));
  norm.backward({1, 5});
  EXPECT_THAT(norm.grad("bias"), ElementsAre(6));
  EXPECT_THAT(norm.grad("weight"), Pointwise(FloatNear(1e-5f), {4.0f}));
}

TEST_P(BatchNormTest, EvaluationUsesTheRunningAverages) {
  Harness norm("type='batch_norm' eps=1e-12", {1, 2}, device());
  norm.set_param("running_mean", {10, 20});
  norm.set_param("running_var", {4, 25});
  EXPECT_THAT(norm.evaluate({14, 10}), Pointwise(FloatNear(1e-6f), {2.0f, -2.0f}));
}

TEST_P(BatchNormTest, RunningAveragesGetTheShareOfTheStepThatThisBatchIs) {
  Harness norm("type='batch_norm' momentum=0.25", {2, 1, 2, 1}, device());
  norm.pass().step_rows = 8;
  norm.forward({1, 3, 5, 7});
  norm.backward({0, 0, 0, 0});
  EXPECT_THAT(norm.grad("running_mean"), ElementsAre(4.0f * 2 / 8));
  EXPECT_THAT(norm.grad("running_var"), Pointwise(FloatNear(1e-6f), {20.0f / 3 * 2 / 8}));
  EXPECT_EQ(norm.param("running_mean").role, ParamRole::kAverage);
  EXPECT_EQ(norm.param("running_var").lr_mult, 0.25);
}

TEST_P(BatchNormTest, TheRunningVarianceOfTwoPositionsIsUnbiased) {
  Harness norm("type='batch_norm'", {2, 1}, device());
  norm.forward({1, 5});
  norm.backward({0, 0});
  EXPECT_THAT(norm.grad("running_var"), ElementsAre(8));  // 4 x 2 / (2 - 1)
}

TEST_P(BatchNormTest, OnePositionHasNoVarianceAndGivesTheBias) {
  Harness norm("type='batch_norm'", {1, 3}, device());
  norm.set_param("bias", {1, 2, 3});
  EXPECT_THAT(norm.forward({50, -60, 70}), ElementsAre(1, 2, 3));
  EXPECT_THAT(norm.backward({1, 1, 1}), ElementsAre(0, 0, 0));
  EXPECT_THAT(norm.grad("running_var"), Each(0.0f));
}

TEST_P(BatchNormTest, LargeMeanDoesNotSwallowTheVariance) {
  Harness norm("type='batch_norm' eps=1e-12", {4, 1}, device());
  EXPECT_THAT(norm.forward({100001, 100003, 100001, 100003}), Pointwise(FloatNear(1e-6f), {-1.0f, 1.0f, -1.0f, 1.0f}));
}

// y = 3 * (x - 10) / 2 + 1 and 0.5 * (x - 20) / 5 + 2.
TEST_P(BatchNormTest, FrozenUsesTheRunningAveragesInTrainingAndHasNoGradientsOfItsParameters) {
  auto layer = layer_from("type='batch_norm' eps=1e-12", {2, 2});
  for (Param* param : layer->params()) param->freeze();
  Harness norm(std::move(layer), {2, 2}, device());
  norm.set_param("weight", {3, 0.5});
  norm.set_param("bias", {1, 2});
  norm.set_param("running_mean", {10, 20});
  norm.set_param("running_var", {4, 25});
  EXPECT_THAT(norm.forward({14, 10, 10, 25}), Pointwise(FloatNear(1e-5f), {7.0f, 1.0f, 1.0f, 2.5f}));
  EXPECT_THAT(norm.backward({1, 10, -2, 0}), Pointwise(FloatNear(1e-5f), {1.5f, 1.0f, -3.0f, 0.0f}));
  for (const Param* param : norm.layer().params()) EXPECT_FALSE(param->grad.defined()) << param->name;
}

TEST_P(BatchNormTest, StartsAsPlainNormalisation) {
  Harness norm("type='batch_norm'", {1, 2}, device());
  EXPECT_THAT(norm.value("weight"), Each(1.0f));
  EXPECT_THAT(norm.value("bias"), Each(0.0f));
  EXPECT_THAT(norm.value("running_mean"), Each(0.0f));
  EXPECT_THAT(norm.value("running_var"), Each(1.0f));
}

TEST(BatchNormKeys, MultipliersAreReadFromTheParametersTables) {
  const auto layer = layer_from("type='batch_norm' weight={decay=0} bias={lr=2,decay=0.5}", {1, 4});
  EXPECT_EQ(layer->params()[0]->decay_mult, 0);
  EXPECT_EQ(layer->params()[1]->lr_mult, 2);
  EXPECT_EQ(layer->params()[1]->decay_mult, 0.5);
}

TEST(BatchNormKeys, MisspeltMultiplierIsAnError) {
  EXPECT_THAT(
      [] {
        layer_from("type='batch_norm' weight={dcay=0}", {1, 4});
      },
      ThrowsMessage<Error>(HasSubstr("did you mean 'decay'?")));
}

TEST(BatchNormKeys, RowsAreThoseThatAreWorkedOnTogether) {
  EXPECT_EQ(layer_from("type='batch_norm'", {1, 4})->row_group(), 1);
  EXPECT_EQ(layer_from("type='batch_norm' rows=32", {1, 4})->row_group(), 32);
}

TEST(BatchNormColumns, FeaturesAndChannelsCanBeSplit) {
  EXPECT_EQ(layer_from("type='batch_norm'", {1, 4})->columns(), Columns::kKeeps);
  EXPECT_EQ(layer_from("type='batch_norm'", {1, 2, 2, 4})->columns(), Columns::kKeeps);
}

}  // namespace
}  // namespace owt
