// Which layer is reported for a value that is not finite.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/bad_layers.h"
#include "tests/support/nets.h"

namespace owt::bad_layer_test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class BadLayerTest : public DeviceTest {
 protected:
  BadLayerTest()
      : net_(net_of({"name='conv1' type='conv' out=2 kernel=1", "name='relu1' type='relu'",
                     "name='fc1' type='dense' out=3", "name='fc2' type='dense' out=2"},
                    {2, 2, 1}, device())),
        tape_(net_, 1, device(), nullptr) {}

  // The reported layer, numbered from 10, for a batch with this loss; `before` was reported before.
  int32_t bad_layer(double loss = kNaN, int32_t before = 100) {
    const Tensor x = upload(x_, {1, 2, 2, 1}, device());
    tape_.forward(pass_.pass(), x);
    return noted_layer(tape_.watched(10), loss, before, pass_.stream());
  }
  // The same, numbered from 0, for an evaluation that overwrote its activations; -1: none.
  int32_t found_again() {
    Pass pass = pass_.pass();
    pass.mode = Mode::kEval;
    tape_.forget_in_evaluation();
    tape_.forward(pass, upload(x_, {1, 2, 2, 1}, device()));
    return tape_.find_bad_layer(pass).value_or(-1);
  }
  void set(int64_t layer, size_t which, size_t place, float value) {
    Param& param = *net_.layer(layer).params()[which];
    std::vector<float> values = download(param.value);
    values[place] = value;
    param.set_value(upload(values, param.shape(), Device::kCpu));
  }

  DevicePass pass_{device(), 1};
  Net net_;
  Tape tape_;
  std::vector<float> x_ = {1, 2, 3, 4};
};
INSTANTIATE_TEST_SUITE_P(Devices, BadLayerTest, ::testing::ValuesIn(devices()), device_name);

TEST_P(BadLayerTest, ThereIsNoneWhereAllIsFinite) { EXPECT_EQ(bad_layer(), 100); }

TEST_P(BadLayerTest, IsTheFirstOneWhenTheInputIsNotANumber) {
  x_[2] = kNaN;
  EXPECT_EQ(bad_layer(), 10);
}

TEST_P(BadLayerTest, IsTheOneWhoseWeightIsNotANumber) {
  set(2, 0, 0, kNaN);
  EXPECT_EQ(bad_layer(), 12);
}

TEST_P(BadLayerTest, IsTheOneWhoseOutputIsInfinite) {
  set(3, 1, 1, std::numeric_limits<float>::infinity());
  EXPECT_EQ(bad_layer(std::numeric_limits<double>::infinity()), 13);
}

TEST_P(BadLayerTest, IsNotLookedForWhileTheLossIsFinite) {
  set(2, 0, 0, kNaN);
  EXPECT_EQ(bad_layer(1e30), 100);
}

TEST_P(BadLayerTest, IsTheEarliestOfAllThatWereFound) {
  // An earlier layer that was found before stays.
  set(2, 0, 0, kNaN);
  EXPECT_EQ(bad_layer(kNaN, 5), 5);
}

// On a GPU an evaluation keeps its activations.
TEST_P(BadLayerTest, IsFoundAgainWhenAnEvaluationForgotIt) {
  const auto forgotten = [this](int layer) { return device() == Device::kCpu ? layer : -1; };
  EXPECT_EQ(found_again(), -1);
  set(3, 1, 1, std::numeric_limits<float>::infinity());
  EXPECT_EQ(found_again(), forgotten(3));
  set(2, 0, 0, kNaN);
  EXPECT_EQ(found_again(), forgotten(2));
  x_[2] = kNaN;
  EXPECT_EQ(found_again(), forgotten(0));
}

}  // namespace
}  // namespace owt::bad_layer_test
