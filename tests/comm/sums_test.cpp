#include "src/comm/sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/core/bf16.h"
#include "src/core/dispatch.h"
#include "tests/support/harness.h"

namespace owt::sums_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class SumsTest : public DeviceTest {
 protected:
  // The sum of elements [first, first + elements) of the tensors, written to the same place in `sum`.
  void sum(const std::vector<Tensor>& tensors, int64_t first, int64_t elements, Tensor& sum) const {
    const int64_t offset = first * size_of(sum.dtype());
    std::vector<const void*> addends;
    for (const Tensor& tensor : tensors) addends.push_back(static_cast<const std::byte*>(tensor.raw()) + offset);
    const Stream stream(device());
    dispatch(device(), [&](auto tag) {
      sum_up(tag, sum.dtype(), addends, elements, static_cast<std::byte*>(sum.raw()) + offset, stream);
    });
    stream.synchronize();
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, SumsTest, testing::ValuesIn(devices()), device_name);

// Adding one to 1e8 does not change it; ones that are summed before are kept.
TEST_P(SumsTest, AreTakenInTheOrderOfTheAddends) {
  const Tensor one = upload({1, 1e8f}, {2}, device()), four = upload({4, 4}, {2}, device());
  const Tensor large = upload({1e8f, 1}, {2}, device()), minus = upload({-1e8f, -1e8f}, {2}, device());
  Tensor total({2}, DType::kF32, device());
  sum({four, one, large, minus}, 0, 2, total);
  EXPECT_THAT(download(total), ElementsAre(8, 0));
  sum({large, one, minus, four}, 0, 2, total);
  EXPECT_THAT(download(total), ElementsAre(4, 4));
}

TEST_P(SumsTest, MayReplaceTheFirstAddend) {
  std::vector<Tensor> tensors(3, Tensor({1000}, DType::kF32, device()));
  for (size_t i = 0; i < 3; ++i) {
    tensors[i] = Tensor({1000}, DType::kF32, device());
    fill(tensors[i], static_cast<float>(i + 1));
  }
  sum(tensors, 0, 1000, tensors[0]);
  EXPECT_THAT(download(tensors[0]), Each(6));
  EXPECT_THAT(download(tensors[1]), Each(2));
}

TEST_P(SumsTest, MayBeginAnywhereAndTouchNothingElse) {
  const Tensor ones = upload(std::vector<float>(40, 1), {40}, device());
  for (const int64_t first : {0, 1, 2, 3, 4, 8})
    for (const int64_t elements : {0, 1, 3, 4, 7, 16, 31}) {
      Tensor total({40}, DType::kF32, device());
      fill(total, -1);
      sum({ones, ones}, first, elements, total);
      const std::vector<float> found = download(total);
      for (int64_t i = 0; i < 40; ++i)
        EXPECT_EQ(found[static_cast<size_t>(i)], i >= first && i < first + elements ? 2 : -1)
            << "element " << i << ", sum of " << elements << " from " << first;
    }
}

TEST_P(SumsTest, TakeMoreAddendsThanAKernelHasParametersFor) {
  std::vector<Tensor> tensors;
  std::vector<float> expected(9, 0);
  for (int r = 0; r < 600; ++r) {
    std::vector<float> values(9);
    for (size_t i = 0; i < 9; ++i) {
      values[i] = 0.1f * static_cast<float>(r) + static_cast<float>(i) / 3;
      expected[i] = r == 0 ? values[i] : expected[i] + values[i];
    }
    tensors.push_back(upload(values, {9}, device()));
  }
  Tensor total({9}, DType::kF32, device());
  sum(tensors, 0, 9, total);
  EXPECT_EQ(download(total), expected);
}

TEST_P(SumsTest, OfBf16AreRoundedOnceToEven) {
  // In bf16 258 and 260 are neighbours. 259 lies between them, and 260 has the even mantissa.
  const auto bf16 = [&](float value) {
    Tensor host({19}, DType::kBF16);
    for (int i = 0; i < 19; ++i) static_cast<uint16_t*>(host.raw())[i] = to_bf16(value);
    return host.to(device());
  };
  Tensor total({19}, DType::kBF16, device());
  sum({bf16(256), bf16(1), bf16(1), bf16(1)}, 0, 19, total);
  const Tensor host = total.to(Device::kCpu);
  for (int i = 0; i < 19; ++i) EXPECT_EQ(from_bf16(static_cast<const uint16_t*>(host.raw())[i]), 260);
}

TEST_P(SumsTest, OfDoublesAreDoubles) {
  Tensor host({3}, DType::kF64);
  for (int i = 0; i < 3; ++i) host.data<double>()[i] = 1e15 + i;
  const Tensor values = host.to(device());
  Tensor total({3}, DType::kF64, device());
  sum({values, values}, 0, 3, total);
  const Tensor found = total.to(Device::kCpu);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(found.data<double>()[i], 2e15 + 2 * i);
}

}  // namespace
}  // namespace owt::sums_test
