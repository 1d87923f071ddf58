#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

#include "layers/pool.h"
#include "src/core/bf16.h"
#include "src/core/threads.h"

namespace owt {
namespace {

constexpr int64_t kPoolGrain = 1 << 14;  // elements per thread that are worth waking it for

// The part of one window, or of the windows over one pixel, along one extent.
struct Span {
  int64_t begin, end;
};

// The geometry of one pooling: windows over planes.
struct Planes {
  Window window;
  int64_t rows, height, width, channels, out_height, out_width;

  Planes(const Window& w, const Shape& in)
      : window(w),
        rows(in[0]),
        height(in[1]),
        width(in[2]),
        channels(in[3]),
        out_height(w.count(in[1])),
        out_width(w.count(in[2])) {}

  // Pixels of window `out` inside an image extent.
  Span pixels(int64_t out, int64_t extent) const {
    const int64_t start = out * window.stride - window.pad;
    return {std::max<int64_t>(start, 0), std::min(start + window.kernel, extent)};
  }
  // Positions of window `out` inside the padded extent.
  int64_t positions(int64_t out, int64_t extent) const {
    const int64_t start = out * window.stride - window.pad;
    return std::min(start + window.kernel, extent + window.pad) - start;
  }
  // Windows that hold pixel `in`, of `windows` along the extent.
  Span windows_over(int64_t in, int64_t windows) const {
    const int64_t place = in + window.pad;
    const int64_t first = place < window.kernel ? 0 : (place - window.kernel) / window.stride + 1;
    return {first, std::min(place / window.stride + 1, windows)};
  }
  // Where pixel (ih, iw) lies in window (oh, ow), counted in row order.
  int64_t place(int64_t oh, int64_t ow, int64_t ih, int64_t iw) const {
    const int64_t top = oh * window.stride - window.pad, left = ow * window.stride - window.pad;
    return (ih - top) * window.kernel + iw - left;
  }
  template <class T>
  const T* pixel(const T* x, int64_t row, int64_t ih, int64_t iw) const {
    return x + ((row * height + ih) * width + iw) * channels;
  }
  int64_t output(int64_t row, int64_t oh, int64_t ow) const {
    return ((row * out_height + oh) * out_width + ow) * channels;
  }
  float inverse_positions(int64_t oh, int64_t ow) const {
    return 1.0f / static_cast<float>(positions(oh, height) * positions(ow, width));
  }
};

// function(row, oh) for all rows of outputs, shared among the threads.
template <class Function>
void for_each_output_row(const Planes& p, const Function& function) {
  const int64_t grain = kPoolGrain / std::max<int64_t>(1, p.out_width * p.channels);
  parallel_for(p.rows * p.out_height, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) function(i / p.out_height, i % p.out_height);
  });
}

// Sums in f32 of a line of elements: in the elements themselves where those are f32.
template <class T>
class LineOfSums {
 public:
  explicit LineOfSums(int64_t elements) : sums_(std::is_same_v<T, float> ? 0 : static_cast<size_t>(elements)) {}

  // Zeros, which function(sums) adds to; then they are the elements at `to`.
  template <class Function>
  void fill(T* to, int64_t elements, const Function& function) {
    if constexpr (std::is_same_v<T, float>) {
      std::fill_n(to, elements, 0.0f);
      function(to);
    } else {
      std::fill_n(sums_.data(), elements, 0.0f);
      function(sums_.data());
      std::copy_n(sums_.data(), elements, to);
    }
  }

 private:
  std::vector<float> sums_;
};

// function(row, ih, gradients of that row of pixels), the gradients being zero before. A row of pixels gathers from all
// windows over it, so that no two threads write to one place and a row stays in the cache while it is summed.
template <class T, class Function>
void for_each_pixel_row(const Planes& p, T* dx, const Function& function) {
  const int64_t row_elements = p.width * p.channels;
  parallel_for(p.rows * p.height, kPoolGrain / std::max<int64_t>(1, row_elements), [&](int64_t begin, int64_t end) {
    LineOfSums<T> line(row_elements);
    for (int64_t i = begin; i < end; ++i)
      line.fill(dx + i * row_elements, row_elements, [&](float* to) { function(i / p.height, i % p.height, to); });
  });
}

// Index: which position of its window a maximum came from, counted in row order.
template <class Index>
class MaxPoolOp : public Op {
 public:
  MaxPoolOp(const Window& window, const Shape& in)
      : p_(window, in), from_({p_.rows, p_.out_height, p_.out_width, p_.channels}, DTypeOf<Index>::value) {}

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
  template <class T>
  void give_back(const T* gradient, T* dx) const {
    const Index* from = from_.template data<Index>();
    for_each_pixel_row(p_, dx, [&](int64_t row, int64_t ih, float* to) {
      const Span windows = p_.windows_over(ih, p_.out_height);
      for (int64_t oh = windows.begin; oh < windows.end; ++oh)
        for (int64_t ow = 0; ow < p_.out_width; ++ow) {
          const int64_t out = p_.output(row, oh, ow);
          const Span across = p_.pixels(ow, p_.width);
          for (int64_t iw = across.begin; iw < across.end; ++iw)
            give(gradient + out, from + out, static_cast<Index>(p_.place(oh, ow, ih, iw)), p_.channels,
                 to + iw * p_.channels);
        }
    });
  }

  template <bool kKeepIndex, class T>
  void run(const T* x, T* y) {
    Index* from = from_.template data<Index>();
    for_each_output_row(p_, [&](int64_t row, int64_t oh) {
      const Span down = p_.pixels(oh, p_.height);
      for (int64_t ow = 0; ow < p_.out_width; ++ow) {
        const Span across = p_.pixels(ow, p_.width);
        const int64_t out = p_.output(row, oh, ow);
        std::fill_n(y + out, p_.channels, T(-std::numeric_limits<float>::infinity()));
        // Where every pixel is minus infinity, the first one is the first of equal maxima.
        if (kKeepIndex)
          std::fill_n(from + out, p_.channels, static_cast<Index>(p_.place(oh, ow, down.begin, across.begin)));
        for (int64_t ih = down.begin; ih < down.end; ++ih)
          for (int64_t iw = across.begin; iw < across.end; ++iw) {
            const T* pixel = p_.pixel(x, row, ih, iw);
            if (kKeepIndex)
              take_larger(pixel, static_cast<Index>(p_.place(oh, ow, ih, iw)), p_.channels, y + out, from + out);
            else
              take_larger(pixel, p_.channels, y + out);
          }
      }
    });
  }

  // The second comparison lets NaN win.
  static bool wins(float x, float best) { return x > best || x != x; }

  template <class T>
  static void take_larger(const T* __restrict x, int64_t channels, T* __restrict best) {
    for (int64_t c = 0; c < channels; ++c) {
      const T here = x[c], before = best[c];
      best[c] = wins(here, before) ? here : before;
    }
  }
  template <class T>
  static void take_larger(const T* __restrict x, Index place, int64_t channels, T* __restrict best,
                          Index* __restrict from) {
    for (int64_t c = 0; c < channels; ++c) {
      const T here = x[c], before = best[c];
      const bool win = wins(here, before);
      best[c] = win ? here : before;
      from[c] = win ? place : from[c];
    }
  }
  template <class T>
  static void give(const T* __restrict dy, const Index* __restrict from, Index place, int64_t channels,
                   float* __restrict dx) {
    for (int64_t c = 0; c < channels; ++c) {
      const float gradient = dy[c];
      dx[c] += from[c] == place ? gradient : 0;
    }
  }

  Planes p_;
  Tensor from_;
};

class AvgPoolOp : public Op {
 public:
  AvgPoolOp(const Window& window, const Shape& in) : p_(window, in) {}

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
  void take_means(const T* from, T* to) const {
    for_each_output_row(p_, [&](int64_t row, int64_t oh) {
      LineOfSums<T> line(p_.channels);
      const Span down = p_.pixels(oh, p_.height);
      for (int64_t ow = 0; ow < p_.out_width; ++ow)
        line.fill(to + p_.output(row, oh, ow), p_.channels, [&](float* mean) {
          const Span across = p_.pixels(ow, p_.width);
          for (int64_t ih = down.begin; ih < down.end; ++ih)
            for (int64_t iw = across.begin; iw < across.end; ++iw)
              add(p_.pixel(from, row, ih, iw), 1, p_.channels, mean);
          const float scale = p_.inverse_positions(oh, ow);
          for (int64_t c = 0; c < p_.channels; ++c) mean[c] *= scale;
        });
    });
  }

  template <class T>
  void share_out(const T* gradient, T* dx) const {
    for_each_pixel_row(p_, dx, [&](int64_t row, int64_t ih, float* to) {
      const Span windows = p_.windows_over(ih, p_.out_height);
      for (int64_t oh = windows.begin; oh < windows.end; ++oh)
        for (int64_t ow = 0; ow < p_.out_width; ++ow) {
          const Span across = p_.pixels(ow, p_.width);
          const float scale = p_.inverse_positions(oh, ow);
          for (int64_t iw = across.begin; iw < across.end; ++iw)
            add(gradient + p_.output(row, oh, ow), scale, p_.channels, to + iw * p_.channels);
        }
    });
  }

  template <class T>
  static void add(const T* __restrict from, float scale, int64_t channels, float* __restrict sum) {
    for (int64_t c = 0; c < channels; ++c) sum[c] += scale * from[c];
  }

  Planes p_;
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
  static constexpr int64_t kBlock = 512;  // channels summed at once

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
  // One byte per output is a quarter of the traffic; only windows beyond 16 x 16 need more.
  if (window.kernel * window.kernel <= 256) return std::make_unique<MaxPoolOp<uint8_t>>(window, in);
  return std::make_unique<MaxPoolOp<int32_t>>(window, in);
}
std::unique_ptr<Op> bind_avg_pool(Cpu, const Window& window, const Shape& in) {
  return std::make_unique<AvgPoolOp>(window, in);
}
std::unique_ptr<Op> bind_global_avg_pool(Cpu, const Shape& in) { return std::make_unique<GlobalAvgPoolOp>(in); }

}  // namespace owt
