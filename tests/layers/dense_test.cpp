#include "layers/dense.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "layers/registry.h"
#include "src/core/threads.h"
#include "src/system/check.h"
#include "tests/support/check_layer.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"

namespace owt::dense_test {
namespace {

using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsNan;
using testing::Not;
using testing::Pointwise;

// The layer for rows of shape `in.row()` that reads these of their values only.
std::unique_ptr<Layer> dense_from(const std::string& keys, const Shape& in, Slice inputs) {
  std::string toml = "name='layer'\n" + keys;
  std::replace(toml.begin(), toml.end(), ' ', '\n');
  return make_layer(Config::text(toml, "layer.toml"), in.row(), {}, inputs);
}

using DenseTest = DeviceTest;
INSTANTIATE_TEST_SUITE_P(Devices, DenseTest, testing::ValuesIn(devices()), device_name);

TEST_P(DenseTest, EveryOutputIsARowOfTheWeightTimesTheInput) {
  Harness dense("type='dense' out=2", {2, 3}, device());
  dense.set_param("weight", {1, 2, 3,  //
                             4, 5, 6});
  dense.set_param("bias", {100, 200});
  EXPECT_THAT(dense.forward({1, 0, 1,  //
                             0, 1, 0}),
              ElementsAre(104, 210, 102, 205));
}

TEST_P(DenseTest, GradientsGoToInputWeightAndBias) {
  Harness dense("type='dense' out=2", {2, 3}, device());
  dense.set_param("weight", {1, 2, 3,  //
                             4, 5, 6});
  dense.forward({1, 0, 1,  //
                 0, 1, 0});
  EXPECT_THAT(dense.backward({1, 10,  //
                              2, 20}),
              ElementsAre(41, 52, 63, 82, 104, 126));
  EXPECT_THAT(dense.grad("weight"), ElementsAre(1, 2, 1, 10, 20, 10));
  EXPECT_THAT(dense.grad("bias"), ElementsAre(3, 30));
}

TEST_P(DenseTest, ParameterGradientsAddUpUntilTheyAreCleared) {
  Harness dense("type='dense' out=1", {1, 1}, device());
  dense.forward({3});
  dense.backward({1});
  dense.backward_without_dx({1});
  EXPECT_THAT(dense.grad("weight"), ElementsAre(6));
  EXPECT_THAT(dense.grad("bias"), ElementsAre(2));
  dense.clear_grads();
  dense.backward({1});
  EXPECT_THAT(dense.grad("weight"), ElementsAre(3));
  EXPECT_THAT(dense.grad("bias"), ElementsAre(1));
}

TEST_P(DenseTest, APartComputesItsOwnColumns) {
  const Shape in{1, 2};
  Harness part(layer_from("type='dense' out=3", in, Slice{1, 3}), in, device());
  ASSERT_EQ(part.param("weight").shape(), (Shape{2, 2}));
  part.set_param("weight", {3, 4, 5, 6});
  part.set_param("bias", {20, 30});
  EXPECT_THAT(part.forward({1, 10}), ElementsAre(43 + 20, 65 + 30));
  EXPECT_THAT(part.backward({1, 2}), ElementsAre(3 + 10, 4 + 12));
}

TEST_P(DenseTest, AnEmptyPartHasNoColumnsAndAZeroGradient) {
  const Shape in{2, 3};
  Harness empty(layer_from("type='dense' out=3", in, Slice{3, 3}), in, device());
  EXPECT_EQ(empty.out_shape(), (Shape{2, 0}));
  EXPECT_THAT(empty.forward({1, 2, 3, 4, 5, 6}), IsEmpty());
  EXPECT_THAT(empty.backward({}), ElementsAre(0, 0, 0, 0, 0, 0));
  empty.backward_without_dx({});
}

TEST_P(DenseTest, SomeInputsGiveASummandAndTheFirstAddTheBias) {
  const Shape in{2, 3};
  Harness first(dense_from("type='dense' out=2", in, Slice{0, 2}), {2, 2}, device());
  ASSERT_EQ(first.param("weight").shape(), (Shape{2, 2}));
  ASSERT_EQ(first.param("bias").shape(), (Shape{2}));
  first.set_param("weight", {1, 2,  //
                             4, 5});
  first.set_param("bias", {100, 200});
  EXPECT_THAT(first.forward({1, 0,  //
                             0, 1}),
              ElementsAre(101, 204, 102, 205));
  EXPECT_THAT(first.backward({1, 10,  //
                              2, 20}),
              ElementsAre(41, 52, 82, 104));
  EXPECT_THAT(first.grad("weight"), ElementsAre(1, 2, 10, 20));
  EXPECT_THAT(first.grad("bias"), ElementsAre(3, 30));

  Harness second(dense_from("type='dense' out=2", in, Slice{2, 3}), {2, 1}, device());
  EXPECT_EQ(second.param("bias").shape(), (Shape{0}));
  second.set_param("weight", {3, 6});
  EXPECT_THAT(second.forward({1, 0}), ElementsAre(3, 6, 0, 0));
  EXPECT_THAT(second.backward({1, 10, 2, 20}), ElementsAre(63, 126));
  EXPECT_THAT(second.grad("weight"), ElementsAre(1, 10));
  EXPECT_THAT(second.grad("bias"), IsEmpty());
}

// Columns [begin, end) of rows of `width` values.
std::vector<float> columns_of(const std::vector<float>& values, int64_t width, Slice columns) {
  std::vector<float> some;
  for (size_t row = 0; row < values.size(); row += static_cast<size_t>(width))
    for (int64_t i = columns.begin; i < columns.end; ++i) some.push_back(values[row + static_cast<size_t>(i)]);
  return some;
}

// With bf16 on a GPU too, and more parts than inputs.
TEST_P(DenseTest, SummandsOfAllInputsAreTheWholeLayer) {
  const int64_t rows = 3, out = 7, features = 12;
  const Shape in{rows, 2, 2, 3};
  const std::string keys = "type='dense' out=7 bias={init={type='gaussian',std=1}}";
  const std::vector<float> x = distinct_values(rows * features, 1, 1), dy = distinct_values(rows * out, 1, 2);
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    if (precision == Precision::kBf16 && device() == Device::kCpu) continue;
    const bool bf16 = precision == Precision::kBf16;
    const float exact = bf16 ? 0.05f : 1e-5f, unit = bf16 ? 0x1p-8f : 0;
    Harness whole(keys, in, {device(), precision});
    const std::vector<float> y = whole.forward(x), dx = whole.backward(dy);
    for (const int parts : {1, 2, 3, 5, 12, 14}) {
      SCOPED_TRACE(concat(parts, " parts"));
      std::vector<float> sum(y.size(), 0.0f), sizes(y.size());
      for (int p = 0; p < parts; ++p) {
        const Slice inputs = split(features, parts, p);
        Harness part(dense_from(keys, in, inputs), {rows, inputs.size()}, {device(), precision});
        EXPECT_EQ(part.value("weight"), columns_of(whole.value("weight"), features, inputs));
        EXPECT_EQ(part.value("bias"), p == 0 ? whole.value("bias") : std::vector<float>{});
        const std::vector<float> summand = part.forward(columns_of(x, features, inputs));
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += summand[i], sizes[i] += std::abs(summand[i]);
        EXPECT_THAT(part.backward(dy), Pointwise(FloatNear(exact), columns_of(dx, features, inputs)));
        EXPECT_THAT(part.grad("weight"),
                    Pointwise(FloatNear(exact), columns_of(whole.grad("weight"), features, inputs)));
        if (p == 0) {
          EXPECT_THAT(part.grad("bias"), Pointwise(FloatNear(exact), whole.grad("bias")));
        }
      }
      for (size_t i = 0; i < y.size(); ++i)  // each summand and the sum are rounded
        EXPECT_NEAR(sum[i], y[i], unit * (sizes[i] + std::abs(y[i])) + 1e-4f);
    }
  }
}

TEST_P(DenseTest, WithoutInputsTheSummandIsZero) {
  Harness none(dense_from("type='dense' out=2", {2, 3}, Slice{3, 3}), {2, 0}, device());
  EXPECT_THAT(none.forward({}), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(none.backward({1, 2, 3, 4}), IsEmpty());
  EXPECT_THAT(none.grad("weight"), IsEmpty());
  EXPECT_THAT(none.grad("bias"), IsEmpty());
}

// Ranks wait for dx; the gradients of the weights can follow.
TEST_P(DenseTest, DxIsCompleteBeforeTheGradientOfTheWeightIsComputed) {
  const Shape in{2, 3};
  DevicePass pass(device(), 2);
  const auto dense = layer_from("type='dense' out=2 bias=false", in);
  Param& weight = *dense->params()[0];
  weight.allocate(device());
  weight.set_value(upload({1, 2, 3, 4, 5, 6}, {2, 3}, Device::kCpu));
  const auto op = dense->bind(in, device());
  const Tensor x = upload({1, 0, 1, 0, 1, 0}, in, device()), dy = upload({1, 10, 2, 20}, {2, 2}, device());
  Tensor y({2, 2}, DType::kF32, device()), dx(in, DType::kF32, device());
  op->forward(pass.pass(), x, y);
  fill(dx, NAN);
  op->backward_data(pass.pass(), x, y, dy, &dx);
  pass.stream().synchronize();
  EXPECT_THAT(download(dx), ElementsAre(41, 52, 63, 82, 104, 126));
  EXPECT_TRUE(weight.grad_is_zero);
  op->backward_weights(pass.pass(), x, dy);
  pass.stream().synchronize();
  EXPECT_THAT(download(weight.grad), ElementsAre(1, 2, 1, 10, 20, 10));
}

TEST_P(DenseTest, NaNIsSeenInEveryOutputOfItsRow) {
  Harness dense("type='dense' out=2", {2, 1}, device());
  EXPECT_THAT(dense.forward({NAN, 1}), ElementsAre(IsNan(), IsNan(), Not(IsNan()), Not(IsNan())));
}

TEST_P(DenseTest, LargeProductsMatchTheDefinition) {
  const int64_t rows = 70, features = 300, out = 130;
  Harness dense("type='dense' out=130", {rows, features}, device());
  const std::vector<float> x = distinct_values(rows * features, 1, 1), dy = distinct_values(rows * out, 1, 2);
  const std::vector<float> w = dense.value("weight"), y = dense.forward(x), dx = dense.backward(dy);
  const auto at = [](const std::vector<float>& values, int64_t i) { return double(values[static_cast<size_t>(i)]); };
  double largest = 0;
  for (int64_t n = 0; n < rows; ++n)
    for (int64_t o = 0; o < out; ++o) {
      double sum = 0;
      for (int64_t f = 0; f < features; ++f) sum += at(x, n * features + f) * at(w, o * features + f);
      largest = std::max(largest, std::abs(sum - at(y, n * out + o)));
    }
  for (int64_t n = 0; n < rows; ++n)
    for (int64_t f = 0; f < features; ++f) {
      double sum = 0;
      for (int64_t o = 0; o < out; ++o) sum += at(dy, n * out + o) * at(w, o * features + f);
      largest = std::max(largest, std::abs(sum - at(dx, n * features + f)));
    }
  EXPECT_LT(largest, 1e-4);
}

TEST_P(DenseTest, TheTeamMayChangeBetweenPasses) {
  const int team = team_size();
  Harness dense("type='dense' out=2", {1, 1}, device());
  dense.set_param("weight", {2, 3});
  set_team_size(team + 1);
  EXPECT_THAT(dense.forward({5}), ElementsAre(10, 15));
  set_team_size(team);
  EXPECT_THAT(dense.backward({1, 10}), ElementsAre(32));
}

TEST_P(DenseTest, KeepsTheLayerContract) {
  check_layer("type='dense' out=5", {3, 7}, device());
  check_layer("type='dense' out=4 bias=false", {2, 3, 2, 4}, device());
  check_layer("type='dense' out=1", {1, 1}, device());
}

TEST(Dense, WhereNoGradientIsKeptItsPiecesAreWhatItWouldBe) {
  const std::vector<float> x = distinct_values(6 * 70, 1, 1), dy = distinct_values(6 * 50, 1, 2);
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    Harness kept("type='dense' out=50", {6, 70}, {Device::kCpu, precision});
    Harness given("type='dense' out=50", {6, 70}, {Device::kCpu, precision});
    const std::vector<float>& pieces = given.grad_in_pieces("weight");
    for (Harness* each : {&kept, &given}) {
      each->forward(x);
      each->backward(dy);
    }
    EXPECT_THAT(pieces, Pointwise(FloatNear(1e-5f), kept.grad("weight")));  // sums may be in another order
    EXPECT_EQ(given.grad("bias"), kept.grad("bias"));
  }
}

TEST_P(DenseTest, WhereNoGradientIsKeptAGpuLeavesItsFactors) {
  if (device() == Device::kCpu) GTEST_SKIP() << "the CPU passes the gradient on in pieces";
  const Shape in{2, 3};
  auto layer = layer_from("type='dense' out=2", in);
  layer->params()[0]->keeps_grad = false;
  Harness dense(std::move(layer), in, {device(), Precision::kBf16});
  dense.set_param("weight", {1, 2, 3,  //
                             4, 5, 6});
  const std::vector<float> x = {1, 0, 1,  //
                                0, 1, 0};
  dense.forward(x);
  EXPECT_THAT(dense.backward({1, 10,  //
                              2, 20}),
              ElementsAre(41, 52, 63, 82, 104, 126));
  const Param& weight = dense.param("weight");
  EXPECT_FALSE(weight.grad.defined());
  EXPECT_FALSE(weight.grad_is_zero);
  ASSERT_TRUE(weight.factors);
  EXPECT_THAT(download(weight.factors->dy), ElementsAre(1, 10, 2, 20));
  EXPECT_EQ(download(weight.factors->x), x);
  const Param& bias = dense.param("bias");
  EXPECT_FALSE(bias.grad_is_zero);
  ASSERT_TRUE(bias.factors);
  EXPECT_EQ(bias.factors->dy.raw(), weight.factors->dy.raw());
  EXPECT_FALSE(bias.factors->x.defined());
}

TEST(Dense, AfterAnImageTheWeightIsKeptLikeTheImage) {
  const auto dense = layer_from("name='fc1' type='dense' out=6 bias={init={type='constant',value=1}}", {1, 4, 5, 3});
  ASSERT_EQ(dense->params().size(), 2u);
  const Param& weight = *dense->params()[0];
  EXPECT_EQ(weight.name, "fc1.weight");
  EXPECT_EQ(weight.full_shape, (Shape{6, 4, 5, 3}));
  EXPECT_EQ(weight.file_shape, (Shape{6, 60}));
  EXPECT_EQ(weight.fan_in, 60);
  EXPECT_EQ(weight.fan_out, 6);
  EXPECT_EQ(dense->params()[1]->init.value, 1);
  EXPECT_EQ(dense->columns(), Columns::kSplits);
  EXPECT_EQ(dense->flops({7, 4, 5, 3}), 2.0 * 7 * 60 * 6);
}

TEST(Dense, OfSomeInputsTakesRowsOfThemAlone) {
  const auto dense = dense_from("type='dense' out=6", {1, 4, 5, 3}, Slice{10, 14});
  const Param& weight = *dense->params()[0];
  EXPECT_EQ(weight.full_shape, (Shape{6, 4, 5, 3}));
  EXPECT_EQ(weight.file_shape, (Shape{6, 60}));
  EXPECT_EQ(weight.fan_in, 60);
  EXPECT_EQ(weight.shape(), (Shape{6, 4}));
  EXPECT_EQ(dense->out_shape({2, 4}), (Shape{2, 6}));
  EXPECT_EQ(dense->flops({7, 4}), 2.0 * 7 * 4 * 6);
  EXPECT_THAT(message_of([&] { dense->out_shape({2, 4, 5, 3}); }), HasSubstr("'layer' takes rows of 4"));
  EXPECT_THROW(dense_from("type='dense' out=6", {1, 4}, Slice{2, 5}), Error);
}

TEST(Dense, RefusesRowsOfAnotherShape) {
  const auto dense = layer_from("name='fc1' type='dense' out=6", {1, 4, 5, 3});
  EXPECT_THAT(message_of([&] { dense->out_shape({2, 60}); }), HasSubstr("'fc1' takes rows of 4x5x3"));
  EXPECT_THAT(message_of([] { layer_from("type='dense' out=0", {1, 3}); }), HasSubstr("out"));
}

}  // namespace
}  // namespace owt::dense_test
