#include "src/core/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>

#include "src/system/check.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"

namespace owt::tensor_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// 0, 1, 2, ... in a shape.
Tensor counted(const Shape& shape, Device device = Device::kCpu) {
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  std::iota(values.begin(), values.end(), 0.0f);
  return upload(values, shape, device);
}

using TensorTest = DeviceTest;
INSTANTIATE_TEST_SUITE_P(Devices, TensorTest, ::testing::ValuesIn(devices()), device_name);

TEST(Tensor, KnowsItsShapeTypeAndBytes) {
  const Tensor images({2, 3, 3, 1}, DType::kU8), weights({4, 5});
  EXPECT_EQ(images.bytes(), 18);
  EXPECT_EQ(weights.dtype(), DType::kF32);
  EXPECT_EQ(weights.bytes(), 80);
  EXPECT_TRUE(weights.defined());
  EXPECT_FALSE(Tensor().defined());
}

TEST(Tensor, ElementSizesAreThoseOfTheTypes) {
  EXPECT_EQ(size_of(DType::kU8), 1);
  EXPECT_EQ(size_of(DType::kBF16), 2);
  EXPECT_EQ(size_of(DType::kF32), 4);
  EXPECT_EQ(size_of(DType::kI32), 4);
  EXPECT_EQ(size_of(DType::kI64), 8);
  EXPECT_EQ(size_of(DType::kF64), 8);
}

TEST_P(TensorTest, RowsAreAViewOfTheSameMemory) {
  Tensor all = counted({4, 2}, device());
  Tensor middle = all.rows(1, 3);
  EXPECT_EQ(middle.shape(), (Shape{2, 2}));
  EXPECT_THAT(download(middle), ElementsAre(2, 3, 4, 5));
  middle.zero();
  EXPECT_THAT(download(all), ElementsAre(0, 1, 0, 0, 0, 0, 6, 7));
}

TEST_P(TensorTest, ViewsOfViewsAddTheirOffsets) {
  const Tensor all = counted({6, 2}, device());
  EXPECT_THAT(download(all.rows(2, 6).rows(1, 2)), ElementsAre(6, 7));
  EXPECT_THAT(download(all.part(3, {2, 2}).reshaped({4}).part(1, {2})), ElementsAre(4, 5));
}

TEST(Tensor, ReshapedSharesMemoryAndOrder) {
  Tensor rows = counted({2, 3});
  Tensor flat = rows.reshaped({6});
  flat.data()[4] = 40;
  EXPECT_THAT(download(rows), ElementsAre(0, 1, 2, 3, 40, 5));
}

TEST(Tensor, ACopySharesMemoryAndACloneDoesNot) {
  Tensor one = counted({2});
  Tensor copy = one, clone = one.clone();
  one.data()[0] = 9;
  EXPECT_THAT(download(copy), ElementsAre(9, 1));
  EXPECT_THAT(download(clone), ElementsAre(0, 1));
}

TEST_P(TensorTest, AViewKeepsTheMemoryAlive) {
  Tensor view;
  {
    const Tensor all = counted({3}, device());
    view = all.rows(2, 3);
  }
  EXPECT_THAT(download(view), ElementsAre(2));
}

TEST_P(TensorTest, CopiesElementsFromAnotherOfTheSameSize) {
  Tensor to({4}, DType::kF32, device());
  to.copy_from(counted({2, 2}, device()));
  EXPECT_THAT(download(to), ElementsAre(0, 1, 2, 3));
  EXPECT_THROW(to.copy_from(counted({3}, device())), Error);
}

TEST_P(TensorTest, MemoryIsAlignedTo64Bytes) {
  for (const int64_t elements : {1, 3, 1000, 600'000})
    EXPECT_EQ(reinterpret_cast<uintptr_t>(Tensor({elements}, DType::kF32, device()).raw()) % 64, 0u) << elements;
}

TEST_P(TensorTest, MayHaveNoElements) {
  Tensor none({0, 5}, DType::kF32, device());
  none.zero();
  none.copy_from(Tensor({5, 0}, DType::kF32, device()));
  EXPECT_EQ(none.rows(0, 0).elements(), 0);
  EXPECT_NE(none.raw(), nullptr);
}

TEST_P(TensorTest, TravelsBetweenDevicesWithItsTypeAndShape) {
  const Tensor there = counted({2, 3}, device()), here = there.to(Device::kCpu);
  EXPECT_EQ(there.device(), device());
  EXPECT_EQ(here.device(), Device::kCpu);
  EXPECT_EQ(here.shape(), (Shape{2, 3}));
  EXPECT_THAT(std::vector<float>(here.data(), here.data() + 6), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(there.to(device()).raw(), there.raw());  // no copy if it is on the device already
  EXPECT_THAT(download_labels(upload_labels({-1, 2'000'000'000}, device())), ElementsAre(-1, 2'000'000'000));
}

TEST_P(TensorTest, CopiesBetweenViewsOfDifferentDevices) {
  Tensor there = counted({4, 2}, device());
  Tensor rows = there.rows(1, 3);
  rows.copy_from(upload({10, 11, 12, 13}, {2, 2}, Device::kCpu));
  EXPECT_THAT(download(there), ElementsAre(0, 1, 10, 11, 12, 13, 6, 7));
  Tensor here({2});
  here.copy_from(there.rows(2, 3));
  EXPECT_THAT(download(here), ElementsAre(12, 13));
}

TEST_P(TensorTest, QueuedCopiesAreDoneInTheOrderOfTheirStream) {
  const Stream stream(device());
  const Tensor one = counted({3}, device());
  Tensor a({3}, DType::kF32, device()), b({3}, DType::kF32, device());
  a.copy_from(one, stream);
  b.copy_from(a, stream);
  a.zero(stream);
  stream.synchronize();
  EXPECT_THAT(download(b), ElementsAre(0, 1, 2));
  EXPECT_THAT(download(a), ElementsAre(0, 0, 0));
}

TEST_P(TensorTest, MemorySharedWithADeviceIsReadAndWrittenByBoth) {
  const Stream stream(device());
  Tensor host = Tensor::shared_with(device(), {2}, DType::kF32), there({2}, DType::kF32, device());
  EXPECT_EQ(host.device(), Device::kCpu);
  host.data()[0] = 4, host.data()[1] = 5;
  there.copy_from(host, stream);
  stream.synchronize();
  EXPECT_THAT(download(there), ElementsAre(4, 5));
  host.data()[0] = 0;
  host.copy_from(there, stream);
  stream.synchronize();
  EXPECT_EQ(host.data()[0], 4);
}

TEST(Tensor, ViewedAsAnotherTypeIsTheSameBytes) {
  const Tensor bytes({16}, DType::kU8);
  const Tensor numbers = bytes.part(8, {8}).viewed_as(DType::kI64);
  EXPECT_EQ(numbers.shape(), (Shape{1}));
  EXPECT_EQ(numbers.raw(), static_cast<const std::byte*>(bytes.raw()) + 8);
  EXPECT_THROW(bytes.part(0, {7}).viewed_as(DType::kI32), Error);
}

TEST(Tensor, ActivationsHaveTheTypeOfThePrecision) {
  EXPECT_EQ(activation_type(Precision::kFp32), DType::kF32);
  EXPECT_EQ(activation_type(Precision::kTf32), DType::kF32);
  EXPECT_EQ(activation_type(Precision::kBf16), DType::kBF16);
}

TEST(Tensor, RefusesAnotherElementType) {
  Tensor labels({2}, DType::kI32);
  EXPECT_NO_THROW(labels.data<int32_t>());
  EXPECT_THROW(labels.data<float>(), Error);
  EXPECT_THROW(Tensor({2}).data<uint8_t>(), Error);
}

TEST(Tensor, RefusesToGiveElementsWithoutMemory) { EXPECT_THROW(Tensor().data(), Error); }

TEST(Tensor, RefusesViewsOutOfBounds) {
  const Tensor all = counted({4, 2});
  EXPECT_THROW(all.rows(2, 5), Error);
  EXPECT_THROW(all.rows(-1, 2), Error);
  EXPECT_THROW(all.rows(3, 2), Error);
  EXPECT_THROW(all.reshaped({7}), Error);
  EXPECT_THROW(all.part(7, {2}), Error);
  EXPECT_THROW(all.part(-1, {2}), Error);
  EXPECT_THAT(message_of([&] { all.rows(2, 5); }), HasSubstr("rows 2 to 5 of 4x2"));
}

}  // namespace
}  // namespace owt::tensor_test
