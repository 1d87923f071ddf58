#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "layers/pool.h"
#include "src/core/simd.h"
#include "src/core/threads.h"

namespace owt {
namespace {

constexpr int64_t kPoolGrain = 1 << 14;  // fewest elements per thread for which a thread is worth waking

// The range of one window, or of the windows over one pixel, along one extent.
struct PoolRange {
  int64_t begin, end;
};

// The geometry of one pooling: windows over planes.
struct PoolGeometry {
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
  // Positions of window `out` inside the padded extent.
  int64_t positions(int64_t out, int64_t extent) const {
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

// Loads places in windows, starting at the first of `lanes` channels.
template <class Count>
VectorU32 load_places(const uint8_t* from, Count lanes) {
  return widened(load_first<VectorU8>(from, lanes));
}
template <class Count>
VectorU32 load_places(const uint32_t* from, Count lanes) {
  return load_first<VectorU32>(from, lanes);
}
template <class Count>
void store_places(VectorU32 places, uint8_t* to, Count lanes) {
  store_first(narrowed(places), to, lanes);
}
template <class Count>
void store_places(VectorU32 places, uint32_t* to, Count lanes) {
  store_first(places, to, lanes);
}

constexpr int kHalves = 2 * kLanes;
typedef int16_t Halves __attribute__((vector_size(2 * kHalves)));
typedef uint8_t HalvesAsBytes __attribute__((vector_size(kHalves)));

// Whether any lane is true.
bool any(Halves comparison) {
  uint64_t bits[sizeof comparison / sizeof(uint64_t)], all = 0;
  std::memcpy(bits, &comparison, sizeof comparison);
  for (const uint64_t some : bits) all |= some;
  return all != 0;
}

// Index: type of the place of a maximum in its window, in row order.
template <class Index>
class MaxPoolOp : public Op {
 public:
  MaxPoolOp(const Window& window, const Shape& in)
      : p_(window, in), places_(static_cast<size_t>(p_.rows * p_.out_height * p_.out_width * p_.channels)) {}

  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    with_cpu_element(x.dtype(), [&](auto element) {
      using T = decltype(element);
      if (pass.mode == Mode::kTrain)
        run<true>(x.data<T>(), y.data<T>());
      else
        run<false>(x.data<T>(), y.data<T>());
    });
  }

  void backward_data(const Pass&, const Tensor&, const Tensor&, const Tensor& dy, Tensor* dx) override {
    if (!dx) return;
    with_cpu_element(dy.dtype(), [&](auto element) {
      using T = decltype(element);
      give_back(dy.data<T>(), dx->data<T>());
    });
  }

 private:
  template <bool kKeepPlaces, class T>
  void run(const T* x, T* y) {
    for_each_window(p_, [&](int64_t row, int64_t oh, int64_t ow) {
      const PoolRange down = p_.pixels(oh, p_.height), across = p_.pixels(ow, p_.width);
      const T* corner = x + p_.pixel(row, down.begin, across.begin);
      const uint32_t place = p_.place(oh, ow, down.begin, across.begin);
      const int64_t out = p_.output(row, oh, ow);
      with_extents(down.end - down.begin, across.end - across.begin, [&](auto height, auto width) {
        const int64_t done = run_wide<kKeepPlaces>(corner, height, width, place, y + out, places_.data() + out);
        if (done == p_.channels) return;
        for_each_vector(p_.channels - done, [&](int64_t i, auto lanes) {
          const int64_t c = done + i;
          const auto [largest, from] = maximum<kKeepPlaces>(corner + c, height, width, place, lanes);
          store(largest, y + out + c, lanes);
          if (kKeepPlaces) store_places(from, places_.data() + out + c, lanes);
        });
      });
    });
  }

  // The maxima of the first channels of a bf16 window, with twice as many channels in a vector as f32 has. Returns the
  // number of channels done, or 0 if there is a NaN. bf16 values compare like integers except for the sign; -0 becomes
  // 0.
  template <bool kKeepPlaces, class T, class Height, class Width>
  int64_t run_wide(const T* x, Height height, Width width, uint32_t first, T* y, Index* places) const {
    if constexpr (std::is_same_v<T, Bf16> && sizeof(Index) == 1) {
      if (p_.channels < kHalves) return 0;
      Halves magnitudes{};  // the largest of all
      int64_t c = 0;
      for (; c + kHalves <= p_.channels; c += kHalves) {
        Halves largest = Halves{} - int16_t{0x7f80}, from = Halves{} + static_cast<int16_t>(first);  // minus infinity
        for (int64_t h = 0; h < height; ++h)
          for (int64_t w = 0; w < width; ++w) {
            const auto place = static_cast<int16_t>(static_cast<int64_t>(first) + h * p_.window.kernel + w);
            Halves bits;
            std::memcpy(&bits, x + (h * p_.width + w) * p_.channels + c, sizeof bits);
            const Halves magnitude = bits & int16_t{0x7fff}, here = bits < 0 ? -magnitude : magnitude;
            magnitudes = magnitudes > magnitude ? magnitudes : magnitude;
            if (kKeepPlaces) from = here > largest ? Halves{} + place : from;
            largest = here > largest ? here : largest;
          }
        const Halves value = largest < 0 ? -largest | int16_t{-0x8000} : largest;
        std::memcpy(y + c, &value, sizeof value);
        const auto bytes = __builtin_convertvector(from, HalvesAsBytes);
        if (kKeepPlaces) std::memcpy(places + c, &bytes, sizeof bytes);
      }
      return any(magnitudes > int16_t{0x7f80}) ? 0 : c;
    }
    return 0;
  }

  struct Maximum {
    Vector value;
    VectorU32 place;
  };

  // The maximum of height x width pixels starting at x, and its place. The first pixel has place `first`. If all pixels
  // are minus infinity, the first one is the maximum. The last NaN wins; it is tracked separately, so that the steps of
  // the loop do not depend on it.
  template <bool kKeepPlaces, class T, class Height, class Width, class Count>
  Maximum maximum(const T* x, Height height, Width width, uint32_t first, Count lanes) const {
    constexpr uint32_t kNone = ~0u;
    Vector largest = all_lanes(-std::numeric_limits<float>::infinity());
    VectorU32 place = VectorU32{} + first, of_largest = place, of_nan = VectorU32{} + kNone;
    for (int64_t h = 0; h < height; ++h) {
      const T* pixel = x + h * p_.width * p_.channels;
      place = VectorU32{} + (first + static_cast<uint32_t>(h * p_.window.kernel));
      for (int64_t w = 0; w < width; ++w, pixel += p_.channels, place += 1) {
        const Vector here = load(pixel, lanes);
        if (kKeepPlaces) of_largest = here > largest ? place : of_largest;
        largest = larger(here, largest);
        of_nan = here != here ? place : of_nan;
      }
    }
    const Vector nan = all_lanes(std::numeric_limits<float>::quiet_NaN());
    return {of_nan == kNone ? largest : nan, of_nan == kNone ? of_largest : of_nan};
  }

  template <class T>
  void give_back(const T* dy, T* dx) const {
    for_each_pixel(p_, [&](int64_t row, int64_t ih, int64_t iw) {
      const PoolRange down = p_.over_height[static_cast<size_t>(ih)], across = p_.over_width[static_cast<size_t>(iw)];
      const int64_t in = p_.pixel(row, ih, iw), out = p_.output(row, down.begin, across.begin);
      const uint32_t place = p_.place(down.begin, across.begin, ih, iw);
      with_extents(down.end - down.begin, across.end - across.begin, [&](auto height, auto width) {
        for_each_vector(p_.channels, [&](int64_t c, auto lanes) {
          store(gathered(dy, out + c, height, width, place, lanes), dx + in + c, lanes);
        });
      });
    });
  }

  // The sum of dy over the windows, among height x width of them, whose maximum came from a given pixel. `out`: the
  // outputs of the first window. `first`: the place of the pixel in the first window.
  template <class T, class Height, class Width, class Count>
  Vector gathered(const T* dy, int64_t out, Height height, Width width, uint32_t first, Count lanes) const {
    const auto stride = static_cast<uint32_t>(p_.window.stride), kernel = static_cast<uint32_t>(p_.window.kernel);
    Vector sum{};
    for (uint32_t h = 0; h < height; ++h)
      for (uint32_t w = 0; w < width; ++w) {
        const int64_t here = out + (h * p_.out_width + w) * p_.channels;
        const VectorU32 places = load_places(places_.data() + here, lanes);
        sum += places == first - stride * (kernel * h + w) ? load(dy + here, lanes) : Vector{};
      }
    return sum;
  }

  PoolGeometry p_;
  std::vector<Index> places_;
};

class AvgPoolOp : public Op {
 public:
  AvgPoolOp(const Window& window, const Shape& in) : p_(window, in), scales_(p_.inverse_positions()) {}

  void forward(const Pass&, const Tensor& x, Tensor& y) override {
    with_cpu_element(x.dtype(), [&](auto element) {
      using T = decltype(element);
      take_means(x.data<T>(), y.data<T>());
    });
  }

  void backward_data(const Pass&, const Tensor&, const Tensor&, const Tensor& dy, Tensor* dx) override {
    if (!dx) return;
    with_cpu_element(dy.dtype(), [&](auto element) {
      using T = decltype(element);
      share_out(dy.data<T>(), dx->data<T>());
    });
  }

 private:
  template <class T>
  void take_means(const T* x, T* y) const {
    for_each_window(p_, [&](int64_t row, int64_t oh, int64_t ow) {
      const PoolRange down = p_.pixels(oh, p_.height), across = p_.pixels(ow, p_.width);
      const T* corner = x + p_.pixel(row, down.begin, across.begin);
      T* const to = y + p_.output(row, oh, ow);
      const Vector scale = all_lanes(scales_[static_cast<size_t>(oh * p_.out_width + ow)]);
      with_extents(down.end - down.begin, across.end - across.begin, [&](auto height, auto width) {
        for_each_vector(p_.channels, [&](int64_t c, auto lanes) {
          Vector sum{};
          for (int64_t h = 0; h < height; ++h)
            for (int64_t w = 0; w < width; ++w) sum += load(corner + (h * p_.width + w) * p_.channels + c, lanes);
          store(sum * scale, to + c, lanes);
        });
      });
    });
  }

  template <class T>
  void share_out(const T* dy, T* dx) const {
    for_each_pixel(p_, [&](int64_t row, int64_t ih, int64_t iw) {
      const PoolRange down = p_.over_height[static_cast<size_t>(ih)], across = p_.over_width[static_cast<size_t>(iw)];
      const T* first = dy + p_.output(row, down.begin, across.begin);
      const float* scales = scales_.data() + down.begin * p_.out_width + across.begin;
      T* const to = dx + p_.pixel(row, ih, iw);
      with_extents(down.end - down.begin, across.end - across.begin, [&](auto height, auto width) {
        for_each_vector(p_.channels, [&](int64_t c, auto lanes) {
          Vector sum{};
          for (int64_t h = 0; h < height; ++h)
            for (int64_t w = 0; w < width; ++w) {
              const int64_t window = h * p_.out_width + w;
              sum += all_lanes(scales[window]) * load(first + window * p_.channels + c, lanes);
            }
          store(sum, to + c, lanes);
        });
      });
    });
  }

  PoolGeometry p_;
  std::vector<float> scales_;
};

class GlobalAvgPoolOp : public Op {
 public:
  explicit GlobalAvgPoolOp(const Shape& in) : rows_(in[0]), positions_(in[1] * in[2]), channels_(in[3]) {}

  void forward(const Pass&, const Tensor& x, Tensor& y) override {
    with_cpu_element(x.dtype(), [&](auto element) {
      using T = decltype(element);
      const T* from = x.data<T>();
      T* to = y.data<T>();
      parallel_for(rows_, grain(), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row)
          for (int64_t c = 0; c < channels_; c += kBlock)
            mean(from + row * positions_ * channels_ + c, std::min(kBlock, channels_ - c), to + row * channels_ + c);
      });
    });
  }

  void backward_data(const Pass&, const Tensor&, const Tensor&, const Tensor& dy, Tensor* dx) override {
    if (!dx) return;
    const float scale = 1.0f / static_cast<float>(positions_);
    with_cpu_element(dy.dtype(), [&](auto element) {
      using T = decltype(element);
      const T* from = dy.data<T>();
      T* to = dx->data<T>();
      parallel_for(rows_, grain(), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row)
          for (int64_t p = 0; p < positions_; ++p)
            for (int64_t c = 0; c < channels_; ++c)
              to[(row * positions_ + p) * channels_ + c] = scale * from[row * channels_ + c];
      });
    });
  }

 private:
  static constexpr int64_t kBlock = 512;  // channels that are summed together

  int64_t grain() const { return kPoolGrain / std::max<int64_t>(1, positions_ * channels_); }

  // In double precision: a plane has thousands of positions.
  template <class T>
  void mean(const T* x, int64_t channels, T* y) const {
    double sums[kBlock] = {};
    for (int64_t p = 0; p < positions_; ++p)
      for (int64_t c = 0; c < channels; ++c) sums[c] += static_cast<double>(float{x[p * channels_ + c]});
    for (int64_t c = 0; c < channels; ++c) y[c] = static_cast<float>(sums[c] / static_cast<double>(positions_));
  }

  int64_t rows_, positions_, channels_;
};

}  // namespace

std::unique_ptr<Op> bind_max_pool(Cpu, const Window& window, const Shape& in) {
  // One byte per output needs a quarter of the memory traffic; windows beyond 16 x 16 need more.
  if (window.kernel * window.kernel <= 256) return std::make_unique<MaxPoolOp<uint8_t>>(window, in);
  return std::make_unique<MaxPoolOp<uint32_t>>(window, in);
}
std::unique_ptr<Op> bind_avg_pool(Cpu, const Window& window, const Shape& in) {
  return std::make_unique<AvgPoolOp>(window, in);
}
std::unique_ptr<Op> bind_global_avg_pool(Cpu, const Shape& in) { return std::make_unique<GlobalAvgPoolOp>(in); }

}  // namespace owt
