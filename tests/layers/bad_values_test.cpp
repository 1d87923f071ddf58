#include "layers/base/bad_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/bad_layers.h"

namespace owt::bad_values_test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

using BadValuesTest = DeviceTest;
INSTANTIATE_TEST_SUITE_P(Devices, BadValuesTest, ::testing::ValuesIn(devices()), device_name);

TEST_P(BadValuesTest, OneIsFoundAmongMany) {
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

TEST_P(BadValuesTest, OfVeryManyArraysTheLastOneMayBeBad) {
  // More arrays than a device looks at in one go, of one element and of many, and in bf16.
  std::vector<Watched> watched;
  for (int32_t i = 0; i < 130; ++i) {
    const int64_t count = i % 50 == 49 ? 9001 : 1;
    Tensor values({count}, i % 3 == 0 ? DType::kBF16 : DType::kF32, device());
    fill(values, 1);
    watched.push_back({values, i});
  }
  const auto note = [&] { return noted_layer(watched, kNaN, 1000, Stream(device())); };
  EXPECT_EQ(note(), 1000);
  fill(watched[129].values, kNaN);
  EXPECT_EQ(note(), 129);
  std::vector<float> values(9001, 2);
  values[9000] = -std::numeric_limits<float>::infinity();
  watched[99].values.copy_from(upload(values, {9001}, Device::kCpu, watched[99].values.dtype()));
  EXPECT_EQ(note(), 99);
}

}  // namespace
}  // namespace owt::bad_values_test
