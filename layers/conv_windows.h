// The keys of conv and local that place windows on an image: kernel, stride (1), pad (0), each one number or [h, w],
// and round ("down" | "up"); for conv also dilation (1). layers/conv.h defines them.
#pragma once

#include "layers/base/geometry.h"
#include "layers/base/layer.h"

namespace owt {

struct Pair {
  int64_t h, w;
};

class ConvWindows {
 public:
  enum class Dilation { kNone, kKey };
  // Reads the keys. Throws Error if the input is no image, or is smaller than the kernel.
  explicit ConvWindows(const LayerSpec& spec, Dilation dilation = Dilation::kNone);

  Pair kernel() const { return kernel_; }
  // The geometry for a batch of images when the layer has out_c channels. Throws Error for images that are smaller than
  // the kernel or have another number of channels than the spec.
  ConvGeometry geometry(const Layer& layer, const Shape& in, int64_t out_c, int64_t groups = 1) const;

 private:
  enum class Round { kDown, kUp };
  // The number of windows, and the zeros that follow after the image so that the last window is whole.
  struct WindowCount {
    int64_t out, after;
  };
  WindowCount windows(int64_t in, int64_t reach, int64_t stride, int64_t pad) const;
  Pair reach() const;  // the extents of the pixels under a dilated kernel
  void check_kernel(const Config& config, const Shape& in) const;

  int64_t channels_ = 0;
  Pair kernel_{}, stride_{}, pad_{}, dilation_{1, 1};
  Round round_ = Round::kDown;
};

}  // namespace owt
