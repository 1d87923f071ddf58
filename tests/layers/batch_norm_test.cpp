#include "layers/batch_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "src/core/canonical.h"
#include "src/system/check.h"
#include "tests/support/check_layer.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"

namespace owt::batch_norm_test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pointwise;
using Values = std::vector<float>;

using BatchNormTest = DeviceTest;
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

// A rank that has sums ready: of x and x^2, and then of dy and dy * (x - mean).
class OtherRank : public StepSums {
 public:
  std::vector<std::vector<double>> sums;

  void add_up(Tensor& all, const Stream& stream) override {
    stream.synchronize();
    Tensor here = all.to(Device::kCpu).clone();
    ASSERT_LT(calls_, sums.size());
    ASSERT_EQ(here.elements(), std::ssize(sums[calls_]));
    for (int64_t i = 0; i < here.elements(); ++i) here.data<double>()[i] += sums[calls_][static_cast<size_t>(i)];
    all.copy_from(here);
    ++calls_;
  }
  size_t calls() const { return calls_; }

 private:
  size_t calls_ = 0;
};

// A rank has four of nine rows. Its results must be the first rows of the whole, and its own part of the gradients.
TEST_P(BatchNormTest, StatisticsOfTheStepAreThoseOfTheRowsOfAllRanks) {
  constexpr int64_t kChannels = 5, kOfRow = 2 * 3 * kChannels, kMine = 4 * kOfRow;
  Values x = distinct_values(9 * kOfRow, 2, 1);
  for (float& value : x) value += 100;  // a variance of 1e-4 of the squares
  const Values dy = distinct_values(9 * kOfRow, 1, 2);
  Harness whole("type='batch_norm' weight={init={type='gaussian',std=1}}", {9, 2, 3, kChannels}, device());
  const Values y = whole.forward(x), dx = whole.backward(dy);

  OtherRank other{};
  other.sums = {std::vector<double>(2 * kChannels), std::vector<double>(2 * kChannels)};
  const double positions = 9 * 2 * 3;
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t c = i % kChannels;
    double mean = 0;
    for (size_t j = c; j < x.size(); j += kChannels) mean += static_cast<double>(x[j]) / positions;
    if (i < kMine) continue;
    const auto value = static_cast<double>(x[i]), gradient = static_cast<double>(dy[i]);
    other.sums[0][c] += value;
    other.sums[0][kChannels + c] += value * value;
    other.sums[1][c] += gradient;
    other.sums[1][kChannels + c] += gradient * (value - static_cast<double>(static_cast<float>(mean)));
  }
  const auto mine = [&](const Values& all) { return Values(all.begin(), all.begin() + kMine); };
  Harness part("type='batch_norm' rows='step' weight={init={type='gaussian',std=1}}", {4, 2, 3, kChannels}, device());
  part.pass().step_rows = 9;
  part.pass().sums = &other;
  EXPECT_THAT(part.forward(mine(x)), Pointwise(FloatNear(1e-4f), mine(y)));
  EXPECT_THAT(part.backward(mine(dy)), Pointwise(FloatNear(1e-4f), mine(dx)));
  EXPECT_EQ(other.calls(), 2u);
  for (const char* name : {"running_mean", "running_var"}) {  // a share of 4 of 9
    Values share = whole.grad(name);
    for (float& value : share) value *= 4.0f / 9;
    EXPECT_THAT(part.grad(name), Pointwise(FloatNear(1e-4f), share)) << name;
  }
  Values of_bias(kChannels);
  for (size_t i = 0; i < kMine; ++i) of_bias[i % kChannels] += dy[i];
  EXPECT_THAT(part.grad("bias"), Pointwise(FloatNear(1e-5f), of_bias));
  EXPECT_THAT(part.evaluate(mine(x)), Each(testing::Truly([](float value) { return std::isfinite(value); })));
  EXPECT_EQ(other.calls(), 2u) << "an evaluation needs no sums";
}

TEST_P(BatchNormTest, WhereNoOtherRankHasRowsThoseOfTheStepAreTheOps) {
  check_layer("type='batch_norm' rows='step'", {4, 3, 3, 5}, device());
  const Values x = distinct_values(60, 2, 1), dy = distinct_values(60, 1, 2);
  Harness of_op("type='batch_norm'", {6, 10}, device()), of_step("type='batch_norm' rows='step'", {6, 10}, device());
  EXPECT_EQ(of_op.forward(x), of_step.forward(x));
  EXPECT_EQ(of_op.backward(dy), of_step.backward(dy));
}

// Nine rows form groups of 4 and 5. A separate batch of a group's rows has the same statistics, gradients and share.
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
    EXPECT_THAT(group.forward(of_rows(x)), Pointwise(FloatNear(1e-5f), of_rows(y)));
    EXPECT_THAT(group.backward(of_rows(dy)), Pointwise(FloatNear(1e-5f), of_rows(dx)));
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
  EXPECT_THAT(norm.grad("running_var"), Pointwise(FloatNear(1e-5f), {20.0f / 3 * 2 / 8}));
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

// y, dx and the gradients of a layer and the relu after it, as one op or as two.
struct WithRelu {
  std::vector<Values> values;
  int64_t layers_of_op;
};

WithRelu with_relu(const std::string& keys, const Shape& in, const Compute& on, bool one_op, bool frozen) {
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(layer_from("type='batch_norm' weight={init={type='gaussian',std=1}} " + keys, in));
  layers.push_back(layer_from("type='relu'", in));
  for (Param* param : layers[0]->params()) {
    if (frozen) param->freeze();
    param->allocate(on);
    param->initialize(1);
  }
  Layer::BoundOp norm = layers[0]->bind_run(std::span(layers).subspan(1), in, on);
  if (!one_op) norm.op = layers[0]->bind(in, on);
  const std::unique_ptr<Op> relu = one_op ? nullptr : layers[1]->bind(in, on);

  DevicePass pass(on.device, in.rows());
  pass.pass().scratch = scratch_for(*norm.op, on.device);
  const DType type = activation_type(on.precision);
  const Tensor x = upload(distinct_values(in.elements(), 2, 1), in, on.device, type);
  Tensor y(in, type, on.device), dx(in, type, on.device),
      dy = upload(distinct_values(in.elements(), 1, 2), in, on.device, type);
  norm.op->forward(pass.pass(), x, y);
  if (relu) relu->forward(pass.pass(), y, y);
  if (relu) relu->backward_data(pass.pass(), y, y, dy, &dy);
  run_backward(*norm.op, pass.pass(), x, y, dy, &dx);
  pass.stream().synchronize();
  WithRelu found{{download(y), download(dx)}, norm.layers};
  for (const Param* param : layers[0]->params())
    if (!frozen) found.values.push_back(download(param->grad));
  return found;
}

// Groups of rows: then a GPU always uses the same kernels.
TEST_P(BatchNormTest, AndTheReluAfterItAreOneOpWithTheSameBits) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16})
    for (const Shape& in : {Shape{6, 3, 3, 5}, Shape{7, 5, 4, 16}, Shape{4, 40}})
      for (const bool frozen : {false, true}) {
        SCOPED_TRACE(concat(name_of(precision), " ", in, frozen ? " frozen" : ""));
        const Compute on(device(), precision);
        const WithRelu one = with_relu("rows=2", in, on, true, frozen),
                       two = with_relu("rows=2", in, on, false, frozen);
        EXPECT_EQ(one.layers_of_op, 2);
        EXPECT_EQ(one.values, two.values);
        EXPECT_THAT(one.values[0], testing::AllOf(testing::Contains(0.0f), testing::Contains(testing::Gt(0.0f))));
      }
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
  EXPECT_THAT(message_of([] {
                layer_from("type='batch_norm' weight={dcay=0}", {1, 4});
              }),
              HasSubstr("did you mean 'decay'?"));
}

TEST(BatchNormKeys, RowsAreThoseThatAreWorkedOnTogether) {
  EXPECT_EQ(layer_from("type='batch_norm'", {1, 4})->row_group(), 1);
  EXPECT_EQ(layer_from("type='batch_norm' rows=32", {1, 4})->row_group(), 32);
}

TEST(BatchNormKeys, RowsMayBeAllOfTheStep) {
  const auto layer = layer_from("type='batch_norm' rows=\"step\"", {1, 4});
  EXPECT_EQ(layer->row_group(), 1);
  EXPECT_THAT(layer->step_sums(Phase::kForward, false), ElementsAre(8));
  EXPECT_THAT(layer->step_sums(Phase::kBackward, true), ElementsAre(8));
  EXPECT_THAT(layer->step_sums(Phase::kBackward, false), IsEmpty());
  EXPECT_THAT(layer_from("type='batch_norm'", {1, 4})->step_sums(Phase::kForward, true), IsEmpty());
  for (Param* param : layer->params()) param->freeze();
  EXPECT_THAT(layer->step_sums(Phase::kForward, true), IsEmpty());
  EXPECT_THAT(message_of([] {
                layer_from("type='batch_norm' rows='steps'", {1, 4});
              }),
              HasSubstr("'rows' is 'steps', wanted a number of rows, or \"step\""));
}

// A layer with canonical sums, on channels [0, part) of `channels`. x: rows x part.
struct CanonicalNorm {
  CanonicalNorm(int64_t rows, int64_t channels, int64_t part, const Values& x)
      : norm(made(rows, channels, part), {rows, part}, Device::kCpu) {
    norm.forward(x);
    norm.backward(distinct_values(rows * part, 1, 2));
  }

  static std::unique_ptr<Layer> made(int64_t rows, int64_t channels, int64_t part) {
    auto layer = layer_from("type='batch_norm' rows=32", {rows, channels}, Slice{0, part});
    for (Param* param : layer->params()) param->grad_type = DType::kF64;
    return layer;
  }
  std::vector<double> gradient(const std::string& name) {
    const Tensor& grad = norm.param(name).grad;
    return {grad.data<double>(), grad.data<double>() + grad.elements()};
  }

  Harness norm;
};

// Values of two orders of magnitude, so that the order of their sums shows in f64.
TEST(BatchNormColumns, APartOfTheChannelsHasTheBitsThatItHasInTheWhole) {
  constexpr int64_t kRows = 32, kChannels = 4096, kPart = 1500;
  Values x = distinct_values(kRows * kChannels, 1, 1), part_of_x;
  for (float& value : x) value = 1e4f * std::exp(4 * value);
  for (int64_t row = 0; row < kRows; ++row)
    part_of_x.insert(part_of_x.end(), x.begin() + row * kChannels, x.begin() + row * kChannels + kPart);
  CanonicalNorm whole(kRows, kChannels, kChannels, x), part(kRows, kChannels, kPart, part_of_x);
  for (const char* name : {"running_mean", "running_var"}) {
    std::vector<double> wanted = whole.gradient(name);
    wanted.resize(kPart);
    EXPECT_EQ(part.gradient(name), wanted) << name;
  }
}

TEST(BatchNormColumns, CanonicalGradientsAreMultiplesOfTheirUnit) {
  CanonicalNorm norm(96, 20, 20, distinct_values(96 * 20, 1, 1));
  for (const auto& [name, unit] : {std::pair{"weight", kCanonicalUnit},
                                   {"bias", kCanonicalUnit},
                                   {"running_mean", kCanonicalAverageUnit},
                                   {"running_var", kCanonicalAverageUnit}})
    for (const double gradient : norm.gradient(name)) EXPECT_EQ(gradient, canonical(gradient, unit)) << name;
}

TEST(BatchNormColumns, FeaturesAndChannelsCanBeSplit) {
  EXPECT_EQ(layer_from("type='batch_norm'", {1, 4})->columns(), Columns::kKeeps);
  EXPECT_EQ(layer_from("type='batch_norm'", {1, 2, 2, 4})->columns(), Columns::kKeeps);
}

}  // namespace
}  // namespace owt::batch_norm_test
