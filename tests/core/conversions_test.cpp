#include "src/core/conversions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "src/core/dispatch.h"
#include "tests/support/harness.h"

namespace owt::conversions_test {
namespace {

using ::testing::ElementsAre;

class ConversionsTest : public DeviceTest {
 protected:
  void round(const Tensor& f32, Tensor& bf16) const {
    const Stream stream(device());
    dispatch(device(), [&](auto tag) { round_to_bf16(tag, f32, bf16, stream); });
    stream.synchronize();
  }
  void widen(const Tensor& bf16, Tensor& f32) const {
    const Stream stream(device());
    dispatch(device(), [&](auto tag) { widen_to_f32(tag, bf16, f32, stream); });
    stream.synchronize();
  }
  std::vector<float> rounded(const std::vector<float>& values) const {
    const Shape shape{static_cast<int64_t>(values.size())};
    Tensor bf16(shape, DType::kBF16, device()), f32(shape, DType::kF32, device());
    round(upload(values, shape, device()), bf16);
    widen(bf16, f32);
    return download(f32);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, ConversionsTest, testing::ValuesIn(devices()), device_name);

// bf16 has eight bits of mantissa: 256, 258 and 260 are neighbours.
TEST_P(ConversionsTest, RoundToNearestAndTiesToEven) {
  EXPECT_THAT(rounded({256, 257, 257.01f, 258.99f, 259, -257, -259}), ElementsAre(256, 256, 258, 258, 260, -256, -260));
}

TEST_P(ConversionsTest, KeepWhatIsNotFiniteAndTheSmallestNumbers) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  // The lower half of this NaN's bits holds all that makes it one.
  const float low_nan = std::bit_cast<float>(0x7f800001u);
  const std::vector<float> found =
      rounded({kInf, -kInf, std::numeric_limits<float>::max(), 0, -0.0f, 0x1p-133f, NAN, low_nan});
  EXPECT_EQ(found[0], kInf);
  EXPECT_EQ(found[1], -kInf);
  EXPECT_EQ(found[2], kInf) << "the largest f32 is nearer to the next power of two than to the largest bf16";
  EXPECT_EQ(found[3], 0);
  EXPECT_TRUE(std::signbit(found[4]));
  EXPECT_EQ(found[5], 0x1p-133f) << "the smallest bf16, which is not normal";
  EXPECT_TRUE(std::isnan(found[6]));
  EXPECT_TRUE(std::isnan(found[7]));
}

TEST_P(ConversionsTest, MayBeginAnywhereAndTouchNothingElse) {
  std::vector<float> values(100'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 251);
  const Tensor from = upload(values, {100'000}, device());
  for (const int64_t first : {0, 1, 4})
    for (const int64_t count : {0, 1, 5, 16, 99'990}) {
      Tensor half({100'000}, DType::kBF16, device()), back({100'000}, DType::kF32, device());
      fill(half, -1);
      fill(back, -2);
      Tensor half_part = half.part(first, {count}), back_part = back.part(first, {count});
      round(from.part(first, {count}), half_part);
      widen(half_part, back_part);
      const std::vector<float> rounded = download(half), widened = download(back);
      for (int64_t i = 0; i < 100'000; ++i) {
        const auto at = static_cast<size_t>(i);
        const bool inside = i >= first && i < first + count;
        ASSERT_EQ(rounded[at], inside ? values[at] : -1) << "element " << i << " of " << count << " from " << first;
        ASSERT_EQ(widened[at], inside ? values[at] : -2) << "element " << i << " of " << count << " from " << first;
      }
    }
}

TEST_P(ConversionsTest, OfOtherElementsOrSizesAreRefused) {
  Tensor two({2}, DType::kF32, device()), three({3}, DType::kBF16, device()), labels({2}, DType::kI32, device());
  EXPECT_THROW(round(two, three), Error);
  EXPECT_THROW(round(two, labels), Error);
  EXPECT_THROW(widen(labels, two), Error);
}

}  // namespace
}  // namespace owt::conversions_test
