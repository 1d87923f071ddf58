// Which layer a value that is not finite comes from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "layers/softmax_loss.h"
#include "src/core/dispatch.h"
#include "tests/support/nets.h"

namespace owt {
namespace {

using ::testing::ElementsAre;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class BadLayerTest : public DeviceTest {
 protected:
  BadLayerTest()
      : net_(net_of({"name='conv1' type='conv' out=2 kernel=1", "name='relu1' type='relu'",
                     "name='fc1' type='dense' out=3", "name='fc2' type='dense' out=2"},
                    {2, 2, 1}, device())),
        tape_(net_, 1, device(), nullptr) {}

  // Of the layers numbered from 10 on, when `loss` is that of the batch; 100 where there is none.
  int32_t bad_layer(double loss = std::numeric_limits<double>::quiet_NaN()) {
    Tensor sums({kLossSums}, DType::kF64), first({1}, DType::kI32);
    sums.zero();
    sums.data<double>()[kLossSum] = loss;
    first.data<int32_t>()[0] = 100;
    const Tensor x = upload(x_, {1, 2, 2, 1}, device()), device_sums = sums.to(device());
    Tensor device_first = first.to(device());
    tape_.forward(pass_.pass(), x);
    tape_.find_bad_layer(pass_.stream(), device_sums, 10, device_first);
    pass_.stream().synchronize();
    return download_labels(device_first)[0];
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
  Tensor sums({kLossSums}, DType::kF64);
  sums.zero();
  sums.data<double>()[kLossSum] = kNaN;
  Tensor first = upload_labels({5}, device());
  const Tensor x = upload(x_, {1, 2, 2, 1}, device()), device_sums = sums.to(device());
  tape_.forward(pass_.pass(), x);
  tape_.find_bad_layer(pass_.stream(), device_sums, 10, first);
  pass_.stream().synchronize();
  EXPECT_THAT(download_labels(first), ElementsAre(5));
}

TEST_P(BadLayerTest, MayBeTheLastOfVeryMany) {
  // More arrays than a device looks at in one go, of one element and of many, and in bf16 where it computes so.
  std::vector<Watched> watched;
  for (int32_t i = 0; i < 130; ++i) {
    const int64_t count = i % 50 == 49 ? 9001 : 1;
    Tensor values({count}, i % 3 == 0 && device() != Device::kCpu ? DType::kBF16 : DType::kF32, device());
    fill(values, 1);
    watched.push_back({values, i});
  }
  Tensor sum({1}, DType::kF64), first = upload_labels({1000}, device());
  sum.data<double>()[0] = kNaN;
  const Tensor device_sum = sum.to(device());
  const auto note = [&] {
    dispatch(device(), [&](auto tag) {
      note_bad_layer(tag, watched, device_sum.data<double>(), first.data<int32_t>(), pass_.stream());
    });
    pass_.stream().synchronize();
    return download_labels(first)[0];
  };
  EXPECT_EQ(note(), 1000);
  fill(watched[129].values, kNaN);
  EXPECT_EQ(note(), 129);
  std::vector<float> values(9001, 2);
  values[9000] = -std::numeric_limits<float>::infinity();
  watched[99].values.copy_from(upload(values, {9001}, Device::kCpu, watched[99].values.dtype()));
  EXPECT_EQ(note(), 99);
}

class AllFiniteTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, AllFiniteTest, ::testing::ValuesIn(devices()), device_name);

TEST_P(AllFiniteTest, FindsOneBadValueAmongMany) {
  std::vector<float> values(200'000);
  const auto finite = [&] { return all_finite(upload(values, {200'000}, device())); };
  EXPECT_TRUE(finite());
  values[199'999] = -std::numeric_limits<float>::infinity();
  EXPECT_FALSE(finite());
  values[199'999] = 0;
  values[77'777] = kNaN;
  EXPECT_FALSE(finite());
  EXPECT_TRUE(all_finite(Tensor({0, 3}, DType::kF32, device())));
}

}  // namespace
}  // namespace owt
