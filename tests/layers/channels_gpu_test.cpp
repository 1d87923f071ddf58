// Basics of the kernels over channels: memory for their sums, the width of their accesses, the order of sums.
#include "tests/simulated_gpu/device.h"

#include "layers/gpu/channels.cuh"

#include <gtest/gtest.h>

#include <vector>

#include "layers/gpu/bias_gradient.h"
#include "src/system/check.h"
#include "tests/support/harness.h"

namespace owt::channels_gpu_test {
namespace {

constexpr int kResident = 4;

int64_t floats_of(int64_t positions, int64_t channels, int width) {
  const ChannelTiles tiles(positions, channels, width, int64_t{kMostMultiprocessors} * kResident);
  return int64_t{tiles.grid.x} * tiles.grid.y * tiles.block.x * width;
}

TEST(PartialSums, AreEnoughForFewerPositionsAndForEveryWidth) {
  constexpr int64_t kFewest = 4000, kMost = 4600;
  for (const int64_t channels : {8, 40, 256}) {
    int64_t wanted = 0;  // by any number of positions up to this one
    for (int64_t positions = kFewest; positions <= kMost; ++positions) {
      for (const int width : {1, 4, 8}) wanted = std::max(wanted, floats_of(positions, channels, width));
      ASSERT_GE(partial_sums(positions, channels, 1, kResident), wanted) << positions << " positions, " << channels;
    }
  }
}

TEST(WithWidth, TakesPacksWhereChannelsAndAllAddressesAreMultiplesOfThem) {
  alignas(16) const float place[8] = {};
  const auto width_of = [](int64_t channels, std::initializer_list<const void*> addresses) {
    int chosen = 0;
    with_width<float>(channels, addresses, [&](float, auto width) { chosen = width; });
    return chosen;
  };
  EXPECT_EQ(width_of(8, {place, place + 4}), 4);
  EXPECT_EQ(width_of(8, {place, nullptr}), 4);
  EXPECT_EQ(width_of(6, {place}), 1);
  EXPECT_EQ(width_of(8, {place, place + 2}), 1);
}

TEST(SumsOfChannels, KeepOnesBesideALargeNumberOfAnotherBlock) {
  constexpr int64_t kPositions = 8192, kChannels = 32, kChannel = 5, kBetween = 64;
  Param bias;
  bias.grad = Tensor({kChannels}, DType::kF32, Device::kCuda);
  Tensor dy({kPositions, kChannels});
  dy.zero();
  for (int64_t p = 0; p < kPositions; p += kBetween) dy.data()[p * kChannels + kChannel] = p > 0 ? 1.0f : 0x1p24f;
  const Stream stream(Device::kCuda);
  make_bias_gradient(kPositions, kChannels, &bias, {})->queue(stream, {}, dy.to(Device::kCuda));
  stream.synchronize();
  EXPECT_EQ(download(bias.grad)[kChannel], 0x1p24f + 128);  // the float nearest to 2^24 + 127
}

}  // namespace
}  // namespace owt::channels_gpu_test
