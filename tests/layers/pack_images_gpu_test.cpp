// The kernel that packs images, against the definition in ImageLayout.
#include "tests/simulated_gpu/device.h"

#include <gtest/gtest.h>

#include <vector>

#include "layers/gpu/space_to_depth.h"
#include "src/core/elements.cuh"
#include "src/system/check.h"
#include "tests/support/harness.h"

namespace owt::pack_images_gpu_test {
namespace {

struct Case {
  const char* name;
  ConvGeometry geometry;
  int64_t block_h, block_w, multiple;
};

// Blocks as the first layers of AlexNet (rows of the image of 4, 2 and 1 elements' alignment) and ResNet have them;
// colours with one channel more or five; others, one with more rows than a block of threads, one with fewer columns.
const Case kCases[] = {
    {"alexnet_by_four", {28, 28, 3, 7, 7, 2, 11, 11, 4, 4, 4, 4, 4, 4, 1}, 4, 4, 8},
    {"alexnet_by_two", {30, 30, 3, 6, 6, 2, 11, 11, 4, 4, 2, 2, 2, 2, 1}, 4, 4, 8},
    {"alexnet_by_one", {27, 27, 3, 6, 6, 2, 11, 11, 4, 4, 2, 2, 2, 2, 1}, 4, 4, 8},
    {"resnet_by_two", {14, 14, 3, 7, 7, 2, 7, 7, 2, 2, 2, 2, 3, 3, 1}, 2, 2, 8},
    {"resnet_by_one", {14, 14, 3, 7, 7, 2, 7, 7, 2, 2, 3, 3, 3, 3, 1}, 2, 2, 8},
    {"four_channels", {5, 9, 3, 5, 9, 2, 3, 3, 1, 1, 1, 1, 1, 1, 1}, 1, 1, 4},
    {"eight_channels", {5, 9, 3, 5, 9, 2, 3, 3, 1, 1, 1, 1, 1, 1, 1}, 1, 1, 8},
    {"eight_channels_of_a_wide_image", {3, 300, 3, 3, 300, 2, 3, 3, 1, 1, 1, 1, 1, 1, 1}, 1, 1, 8},
    {"eight_channels_of_a_high_image", {200, 2, 3, 200, 2, 2, 3, 3, 1, 1, 1, 1, 1, 1, 1}, 1, 1, 8},
    {"two_channels", {9, 8, 2, 5, 8, 3, 3, 2, 2, 1, 1, 0, 1, 1, 1}, 2, 1, 8},
    {"one_channel", {6, 8, 1, 3, 4, 2, 3, 3, 2, 2, 0, 0, 1, 1, 1}, 2, 2, 8},
    {"three_by_three", {13, 10, 3, 5, 4, 2, 4, 4, 3, 3, 1, 1, 2, 2, 1}, 3, 3, 8},
    {"high_blocks", {600, 3, 1, 2, 3, 2, 300, 1, 300, 1, 0, 0, 0, 0, 1}, 300, 1, 8},
    {"padding_beyond_a_block", {7, 7, 3, 6, 6, 2, 11, 11, 4, 4, 13, 13, 13, 13, 1}, 4, 4, 8},
};

class PackImages : public testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kImages = 3;

  PackImages()
      : layout_(
            ChannelPacking(GetParam().geometry, GetParam().block_h, GetParam().block_w, GetParam().multiple).layout()) {
  }

  // Small integers, exact in bf16; none is 0.
  static std::vector<float> values(int64_t count) {
    std::vector<float> all;
    for (int64_t i = 0; i < count; ++i) all.push_back(static_cast<float>(i * 37 % 127 + 1));
    return all;
  }

  template <class T>
  void expect_the_definition(int64_t unaligned = 0) const {
    const Shape plain{kImages, layout_.in_h, layout_.in_w, layout_.in_c}, packed = layout_.batch_of(kImages);
    const std::vector<float> x = values(plain.elements());
    Tensor host({unaligned + plain.elements()}, DTypeOf<T>::value), got({packed.elements()}, host.dtype());
    for (size_t i = 0; i < x.size(); ++i) host.data<T>()[unaligned + static_cast<int64_t>(i)] = from_float<T>(x[i]);
    const Tensor on_gpu = host.to(Device::kCuda).part(unaligned, plain);
    const Tensor to({packed.elements()}, host.dtype(), Device::kCuda);
    const Stream stream(Device::kCuda);
    queue_pack_images(layout_, on_gpu, const_cast<void*>(to.raw()), stream);
    got.copy_from(to, stream);
    stream.synchronize();

    const int64_t each = plain.row_elements();
    int64_t element = 0;
    for (int64_t n = 0; n < kImages; ++n)
      for (int h = 0; h < layout_.height; ++h)
        for (int w = 0; w < layout_.width; ++w)
          for (int c = 0; c < layout_.channels; ++c, ++element) {
            const int64_t source = layout_.source(h, w, c);
            const float wanted = source < 0 ? 0 : x[static_cast<size_t>(n * each + source)];
            ASSERT_EQ(to_float(got.data<T>()[element]), wanted) << "image " << n << ", " << h << ", " << w << ", " << c;
          }
  }

  const ImageLayout layout_;
};

INSTANTIATE_TEST_SUITE_P(Cases, PackImages, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

TEST_P(PackImages, KeepsTheDefinition) {
  expect_the_definition<float>();
  expect_the_definition<__nv_bfloat16>();
}

TEST_P(PackImages, TakesImagesAtAnyAddress) {
  expect_the_definition<float>(1);
  expect_the_definition<__nv_bfloat16>(3);
}

}  // namespace
}  // namespace owt::pack_images_gpu_test
