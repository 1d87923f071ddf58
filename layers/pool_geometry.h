// The loops of pooling on the CPU: over the windows of planes, and over the pixels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "layers/pool.h"
#include "src/core/threads.h"

namespace owt {

constexpr int64_t kPoolGrain = 1 << 14;  // fewest elements per thread for which a thread is worth waking

// The geometry of one pooling: windows over planes.
struct PoolGeometry {
  // The range of one window, or of the windows over one pixel, along one extent.
  struct PoolRange {
    int64_t begin, end;
  };

  Window window;
  int64_t rows, height, width, channels, out_height, out_width;
  std::vector<PoolRange> over_height, over_width;  // for each pixel, the windows that hold it

  PoolGeometry(const Window& w, const Shape& in)
      : window(w),
        rows(in[0]),
        height(in[1]),
        width(in[2]),
        channels(in[3]),
        out_height(w.count(in[1])),
        out_width(w.count(in[2])) {
    for (int64_t ih = 0; ih < height; ++ih) over_height.push_back(windows_over(ih, out_height));
    for (int64_t iw = 0; iw < width; ++iw) over_width.push_back(windows_over(iw, out_width));
  }

  // Pixels of window `out` inside an image extent.
  PoolRange pixels(int64_t out, int64_t extent) const {
    const int64_t start = out * window.stride - window.pad;
    return {std::max<int64_t>(start, 0), std::min(start + window.kernel, extent)};
  }
  // Positions of window `out` that count: the positions inside the padded extent, or the pixels.
  int64_t positions(int64_t out, int64_t extent) const {
    if (!window.counts_pad) return pixels(out, extent).end - pixels(out, extent).begin;
    const int64_t start = out * window.stride - window.pad;
    return std::min(start + window.kernel, extent + window.pad) - start;
  }
  // Windows that hold pixel `in`; `windows`: their number along the extent.
  PoolRange windows_over(int64_t in, int64_t windows) const {
    const int64_t place = in + window.pad;
    const int64_t first = place < window.kernel ? 0 : (place - window.kernel) / window.stride + 1;
    return {first, std::min(place / window.stride + 1, windows)};
  }
  // The place of pixel (ih, iw) in window (oh, ow), in row order.
  uint32_t place(int64_t oh, int64_t ow, int64_t ih, int64_t iw) const {
    const int64_t top = oh * window.stride - window.pad, left = ow * window.stride - window.pad;
    return static_cast<uint32_t>((ih - top) * window.kernel + iw - left);
  }
  int64_t pixel(int64_t row, int64_t ih, int64_t iw) const { return ((row * height + ih) * width + iw) * channels; }
  int64_t output(int64_t row, int64_t oh, int64_t ow) const {
    return ((row * out_height + oh) * out_width + ow) * channels;
  }
  // The reciprocal of the number of positions, for each window of a plane.
  std::vector<float> inverse_positions() const {
    std::vector<float> inverse;
    for (int64_t oh = 0; oh < out_height; ++oh)
      for (int64_t ow = 0; ow < out_width; ++ow)
        inverse.push_back(1.0f / static_cast<float>(positions(oh, height) * positions(ow, width)));
    return inverse;
  }
};

// Calls function(row, line) for the lines of all planes, divided among the threads.
template <class Function>
void for_each_line(int64_t rows, int64_t lines, int64_t line_elements, const Function& function) {
  parallel_for(rows * lines, kPoolGrain / std::max<int64_t>(1, line_elements), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) function(i / lines, i % lines);
  });
}

// Calls function(row, oh, ow) for all windows.
template <class Function>
void for_each_window(const PoolGeometry& p, const Function& function) {
  for_each_line(p.rows, p.out_height, p.out_width * p.channels, [&](int64_t row, int64_t oh) {
    for (int64_t ow = 0; ow < p.out_width; ++ow) function(row, oh, ow);
  });
}

// Calls function(row, ih, iw) for all pixels. Each pixel gathers from the windows over it. So no two threads write to
// one place, and every element is written once.
template <class Function>
void for_each_pixel(const PoolGeometry& p, const Function& function) {
  for_each_line(p.rows, p.height, p.width * p.channels, [&](int64_t row, int64_t ih) {
    for (int64_t iw = 0; iw < p.width; ++iw) function(row, ih, iw);
  });
}

template <int64_t number>
using Known = std::integral_constant<int64_t, number>;

// Calls function(height, width); the arguments are compile-time constants for common windows inside planes and for the
// windows over a pixel.
template <class Function>
void with_extents(int64_t height, int64_t width, const Function& function) {
  if (height == 3 && width == 3) return function(Known<3>{}, Known<3>{});
  if (height == 2 && width == 2) return function(Known<2>{}, Known<2>{});
  if (height == 2 && width == 1) return function(Known<2>{}, Known<1>{});
  if (height == 1 && width == 2) return function(Known<1>{}, Known<2>{});
  if (height == 1 && width == 1) return function(Known<1>{}, Known<1>{});
  function(height, width);
}

}  // namespace owt
