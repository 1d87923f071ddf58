#include "src/core/image_layout.h"

#include <gtest/gtest.h>

#include "src/system/check.h"

namespace owt::image_layout_test {
namespace {

// Blocks of 4 x 4 with a border, of 3 x 2 with a wide one that is cut off below, and single pixels.
const ImageLayout kLayouts[] = {
    {7, 6, 3, 4, 4, 2, 2, 3, 3, 48}, {7, 6, 3, 3, 2, 4, 5, 3, 4, 24}, {7, 6, 3, 1, 1, 0, 0, 7, 6, 8}};

TEST(ImageLayout, PixelsOfABlockBecomeChannels) {
  const ImageLayout layout{5, 5, 2, 2, 2, 1, 0, 3, 3, 16};
  EXPECT_EQ(layout.source(0, 0, 0), -1) << "above the image";
  EXPECT_EQ(layout.source(0, 0, 4), 0) << "the second row of the first block is the first of the image";
  EXPECT_EQ(layout.source(0, 1, 7), 3 * 2 + 1) << "the last channel of its fourth pixel";
  EXPECT_EQ(layout.source(1, 0, 0), 5 * 2);
  EXPECT_EQ(layout.source(0, 2, 6), -1) << "right of the image";
  EXPECT_EQ(layout.source(1, 0, 8), -1) << "what fills up";
}

TEST(ImageLayout, ImagesAreLaidOutAsDefined) {
  constexpr int64_t kImages = 2;
  for (const ImageLayout& layout : kLayouts) {
    Tensor images({kImages, layout.in_h, layout.in_w, layout.in_c});
    for (int64_t i = 0; i < images.elements(); ++i) images.data()[i] = static_cast<float>(i + 1);
    const Tensor packed = laid_out(images, layout);
    ASSERT_EQ(packed.shape(), layout.batch_of(kImages));
    const float* found = packed.data();
    for (int64_t n = 0; n < kImages; ++n)
      for (int h = 0; h < layout.height; ++h)
        for (int w = 0; w < layout.width; ++w)
          for (int c = 0; c < layout.channels; ++c) {
            const int64_t source = layout.source(h, w, c);
            const float wanted = source < 0 ? 0 : images.data()[n * images.shape().row_elements() + source];
            ASSERT_EQ(*found++, wanted) << "image " << n << ", " << h << ", " << w << ", " << c;
          }
  }
}

TEST(ImageLayout, OfPlainImagesChangesNothing) {
  Tensor images({2, 3, 8, 3});
  for (int64_t i = 0; i < images.elements(); ++i) images.data()[i] = static_cast<float>(i);
  for (const int together : {1, 4, 8}) {
    const Tensor same = laid_out(images, ImageLayout::plain({3, 8, 3}, together));
    EXPECT_TRUE(std::equal(images.data(), images.data() + images.elements(), same.data())) << together;
  }
}

TEST(ImageLayout, OfOtherImagesIsAnError) { EXPECT_THROW(laid_out(Tensor({2, 6, 7, 3}), kLayouts[0]), Error); }

}  // namespace
}  // namespace owt::image_layout_test
