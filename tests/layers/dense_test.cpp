#include "layers/dense.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/core/check.h"
#include "src/core/threads.h"
#include "tests/support/check_layer.h"
#include "tests/support/harness.h"

namespace owt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsNan;
using testing::Not;
using testing::ThrowsMessage;

class DenseTest : public DeviceTest {};
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

TEST(Dense, AfterAnImageTheWeightIsKeptLikeTheImage) {
  const auto dense = layer_from("name='fc1' type='dense' out=6 bias={init={type='constant',value=1}}", {1, 4, 5, 3});
  ASSERT_EQ(dense->params().size(), 2u);
  const Param& weight = dense->params()[0];
  EXPECT_EQ(weight.name, "fc1.weight");
  EXPECT_EQ(weight.full_shape, (Shape{6, 4, 5, 3}));
  EXPECT_EQ(weight.file_shape, (Shape{6, 60}));
  EXPECT_EQ(weight.fan_in, 60);
  EXPECT_EQ(weight.fan_out, 6);
  EXPECT_EQ(dense->params()[1].init.value, 1);
  EXPECT_EQ(dense->columns(), Columns::kSplits);
  EXPECT_EQ(dense->flops({7, 4, 5, 3}), 2.0 * 7 * 60 * 6);
}

TEST(Dense, RefusesRowsOfAnotherShape) {
  const auto dense = layer_from("name='fc1' type='dense' out=6", {1, 4, 5, 3});
  EXPECT_THAT([&] { dense->out_shape({2, 60}); }, ThrowsMessage<Error>(HasSubstr("'fc1' takes rows of 4x5x3")));
  EXPECT_THAT([] { layer_from("type='dense' out=0", {1, 3}); }, ThrowsMessage<Error>(HasSubstr("out")));
}

}  // namespace
}  // namespace owt
