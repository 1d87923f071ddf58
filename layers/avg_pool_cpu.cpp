#include <algorithm>
#include <vector>

#include "layers/pool.h"
#include "layers/pool_geometry.h"
#include "src/core/simd.h"
#include "src/core/threads.h"

namespace owt {
namespace {

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
      const PoolGeometry::PoolRange down = p_.pixels(oh, p_.height), across = p_.pixels(ow, p_.width);
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
      const PoolGeometry::PoolRange down = p_.over_height[static_cast<size_t>(ih)],
                                    across = p_.over_width[static_cast<size_t>(iw)];
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

std::unique_ptr<Op> bind_avg_pool(Cpu, const Window& window, const Shape& in) {
  return std::make_unique<AvgPoolOp>(window, in);
}
std::unique_ptr<Op> bind_global_avg_pool(Cpu, const Shape& in) { return std::make_unique<GlobalAvgPoolOp>(in); }

}  // namespace owt
