// Code shared by the pooling kernels: the geometry of windows, and the assignment of threads to pixels. For .cu files.
#pragma once

#include <limits>
#include <type_traits>

#include "layers/base/geometry.h"
#include "src/core/elements.cuh"
#include "src/core/launch.cuh"
#include "src/core/row_grid.cuh"

namespace owt::pooling {

inline int to_int(int64_t value) {
  OWT_CHECK(value >= 0 && value <= std::numeric_limits<int>::max(), value, " is beyond what kernels count with");
  return static_cast<int>(value);
}

// The range of one window, or of the windows over one pixel, along one extent.
struct WindowRange {
  int begin, end;
};

// A position in a batch of `rows` images.
struct PixelPlace {
  int row, i, j;
};

// The geometry of one pooling: windows over planes.
struct CudaPoolGeometry {
  int kernel, stride, pad;
  int rows, height, width, channels, out_height, out_width;

  CudaPoolGeometry(const Window& window, const Shape& in)
      : kernel(to_int(window.kernel)),
        stride(to_int(window.stride)),
        pad(to_int(window.pad)),
        rows(to_int(in[0])),
        height(to_int(in[1])),
        width(to_int(in[2])),
        channels(to_int(in[3])),
        out_height(to_int(window.count(in[1]))),
        out_width(to_int(window.count(in[2]))) {
    to_int(in.row_elements());                           // indexes within an image are ints
    to_int(int64_t{rows} * (height + 1) * (width + 1));  // and so are positions in all images
  }

  int64_t places(int down, int across) const { return int64_t{rows} * down * across; }
  // The position with this index in a batch of images of down x across.
  __device__ static PixelPlace place(int64_t position, int down, int across) {
    // Unsigned division is faster.
    const auto at = static_cast<unsigned>(position), width = static_cast<unsigned>(across);
    const unsigned line = at / width, height = static_cast<unsigned>(down);
    return {static_cast<int>(line / height), static_cast<int>(line % height), static_cast<int>(at % width)};
  }

  __device__ int start(int out) const { return out * stride - pad; }  // first row of a window; negative in the padding
  // Pixels of window `out` inside an image extent.
  __device__ WindowRange pixels(int out, int extent) const {
    return {max(start(out), 0), min(start(out) + kernel, extent)};
  }
  // The windows over pixel `in`; `windows`: their number along the extent.
  __device__ WindowRange windows_over(int in, int windows) const {
    return {in + pad < kernel ? 0 : (in + pad - kernel) / stride + 1, min((in + pad) / stride + 1, windows)};
  }

  __device__ int pixel(int ih, int iw) const { return (ih * width + iw) * channels; }
  __device__ int64_t image(int row) const { return static_cast<int64_t>(row) * height * width * channels; }
  __device__ int output(int oh, int ow) const { return (oh * out_width + ow) * channels; }
  __device__ int64_t out_image(int row) const { return static_cast<int64_t>(row) * out_height * out_width * channels; }
};

// The output or input pixel of a thread, and its first channel.
struct Pixel {
  int row, i, j, c;
  bool inside;
};

// For threads of row_grid(rows * down, across * channels / N).
template <int N>
__device__ Pixel this_pixel(int rows, int down, int across, int channels) {
  const int packs = channels / N;
  const RowItem at = row_item(rows * down, across * packs);
  // Unsigned division is faster.
  const auto row = static_cast<unsigned>(at.row), item = static_cast<unsigned>(at.item);
  const auto row_down = static_cast<unsigned>(down), pixel_packs = static_cast<unsigned>(packs);
  return {static_cast<int>(row / row_down), static_cast<int>(row % row_down), static_cast<int>(item / pixel_packs),
          static_cast<int>(item % pixel_packs) * N, at.inside};
}

template <class T, int N>
__device__ void store_sum(const float (&sum)[N], T* to) {
  Pack<T, N> pack;
#pragma unroll
  for (int c = 0; c < N; ++c) pack.at[c] = from_float<T>(sum[c]);
  store_pack(to, pack);
}

// Calls function(std::integral_constant<int, N>): packs of N channels, the widest that channels and addresses allow.
template <class T, class Function, class... Address>
void with_pack(int channels, const Function& function, const Address*... addresses) {
  if (channels % kPack<T> == 0 && hold_packs<kPack<T>>(addresses...))
    function(std::integral_constant<int, kPack<T>>{});
  else
    function(std::integral_constant<int, 1>{});
}

}  // namespace owt::pooling
