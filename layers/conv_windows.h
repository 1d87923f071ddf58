// How windows move over an image, as the keys of conv and local say: kernel, stride (1), pad (0), each one number or
// [h, w], and round ("down" | "up"). layers/conv.h says what they mean.
#pragma once

#include "layers/conv.h"

namespace owt {

struct Pair {
  int64_t h, w;
};

class ConvWindows {
 public:
  // Reads the keys. Throws Error for a row that is no image, or smaller than the kernel.
  explicit ConvWindows(const LayerSpec& spec);

  Pair kernel() const { return kernel_; }
  // Of a batch of images that the layer gives out_c channels. Throws Error for images of other channels than the
  // spec's, or smaller than the kernel.
  ConvGeometry geometry(const Layer& layer, const Shape& in, int64_t out_c, int64_t groups = 1) const;

 private:
  enum class Round { kDown, kUp };
  // How many windows fit, and how many zeros follow after the image so that the last one is whole.
  struct Extent {
    int64_t out, after;
  };
  Extent windows(int64_t in, int64_t kernel, int64_t stride, int64_t pad) const;
  void check_kernel(const Config& config, const Shape& in) const;

  int64_t channels_ = 0;
  Pair kernel_{}, stride_{}, pad_{};
  Round round_ = Round::kDown;
};

}  // namespace owt
