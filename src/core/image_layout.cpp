#include "src/core/image_layout.h"

#include <algorithm>

#include "src/core/threads.h"
#include "src/system/check.h"

namespace owt {
namespace {

// Writes row h of a packed image; `to` holds zeros.
void lay_out_row(const ImageLayout& layout, const float* image, int h, float* to) {
  const int elements = layout.in_w * layout.in_c, run = layout.run();
  for (int block_row = 0; block_row < layout.block_h; ++block_row) {
    const int row = h * layout.block_h - layout.top + block_row;
    if (row < 0 || row >= layout.in_h) continue;
    for (int w = 0; w < layout.width; ++w) {
      const int first = (w * layout.block_w - layout.left) * layout.in_c;
      const int begin = std::clamp(first, 0, elements), end = std::clamp(first + run, 0, elements);
      std::copy(image + int64_t{row} * elements + begin, image + int64_t{row} * elements + end,
                to + w * layout.channels + block_row * run + (begin - first));
    }
  }
}

}  // namespace

Tensor laid_out(const Tensor& images, const ImageLayout& layout) {
  const Shape& plain = images.shape();
  OWT_CHECK_EQ(plain, Shape({plain.rows(), layout.in_h, layout.in_w, layout.in_c}));
  Tensor packed(layout.batch_of(plain.rows()));
  packed.zero();
  const int64_t row_elements = int64_t{layout.width} * layout.channels;
  parallel_for(plain.rows() * layout.height, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      lay_out_row(layout, images.data() + i / layout.height * plain.row_elements(), static_cast<int>(i % layout.height),
                  packed.data() + i * row_elements);
  });
  return packed;
}

}  // namespace owt
