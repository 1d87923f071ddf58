#include <algorithm>
#include <vector>

#include "layers/lrn.h"
#include "layers/lrn_powers.h"
#include "src/core/threads.h"
#include "src/system/check.h"

namespace owt {
namespace {

// One vector of channels at each position of an image; fits into a cache.
using Plane = std::vector<Vector>;

// The number of positions of a window before and after its own, in both directions.
struct WindowReach {
  int64_t before, after;
  WindowReach mirrored() const { return {after, before}; }
};

template <class Power>
class LrnWithinOp : public Op {
 public:
  LrnWithinOp(const LrnSettings& settings, Power power, const Shape& in)
      : power_(power),
        k_(settings.k),
        per_square_(settings.per_square()),
        factor_(2 * settings.beta * per_square_),
        reach_{settings.size / 2, (settings.size - 1) / 2},
        rows_(in[0]),
        height_(in[1]),
        width_(in[2]),
        channels_(in[3]) {}

  void forward(const Pass&, const Tensor& x, Tensor& y) override {
    with_cpu_element(x.dtype(), [&](auto element) {
      using T = decltype(element);
      const T* from = x.data<T>();
      T* to = y.data<T>();
      for_each_block([&](int64_t first, auto lanes, Planes& planes) {
        find_scales(from + first, lanes, planes);
        for_each_position([&](int64_t i, size_t p) {
          store(load(from + first + i, lanes) * power_(planes.scales[p]), to + first + i, lanes);
        });
      });
    });
  }

  void backward_data(const Pass&, const Tensor& x, const Tensor&, const Tensor& dy, Tensor* dx) override {
    if (!dx) return;
    with_cpu_element(x.dtype(), [&](auto element) {
      using T = decltype(element);
      const T *input = x.data<T>(), *gradient = dy.data<T>();
      T* to = dx->data<T>();
      for_each_block([&](int64_t first, auto lanes, Planes& planes) {
        find_scales(input + first, lanes, planes);
        for_each_position([&](int64_t i, size_t p) {
          const Vector direct = load(gradient + first + i, lanes) * power_(planes.scales[p]);
          planes.values[p] = direct * load(input + first + i, lanes) / planes.scales[p];
          planes.scales[p] = direct;
        });
        sum_windows(planes.values, reach_.mirrored(), planes.across, planes.sums);
        for_each_position([&](int64_t i, size_t p) {
          const Vector others = factor_ * load(input + first + i, lanes) * planes.sums[p];
          store(planes.scales[p] - others, to + first + i, lanes);
        });
      });
    });
  }

 private:
  struct Planes {
    explicit Planes(size_t positions) : values(positions), across(positions), sums(positions), scales(positions) {}
    Plane values, across, sums, scales;
  };

  // Calls function(first element, lanes, planes) for each image and each vector of channels, divided among the threads.
  template <class Function>
  void for_each_block(const Function& function) const {
    const int64_t blocks = (channels_ + kLanes - 1) / kLanes;
    parallel_for(rows_ * blocks, 1, [&](int64_t begin, int64_t end) {
      Planes planes(static_cast<size_t>(height_ * width_));
      for (int64_t item = begin; item < end; ++item) {
        const int64_t c = item % blocks * kLanes, first = item / blocks * height_ * width_ * channels_ + c;
        if (c + kLanes <= channels_)
          function(first, AllLanes{}, planes);
        else
          function(first, channels_ - c, planes);
      }
    });
  }

  // Calls function(elements before it, index) for each position of an image.
  template <class Function>
  void for_each_position(const Function& function) const {
    for (int64_t p = 0; p < height_ * width_; ++p) function(p * channels_, static_cast<size_t>(p));
  }

  template <class T, class Count>
  void find_scales(const T* x, Count lanes, Planes& planes) const {
    for_each_position([&](int64_t i, size_t p) {
      const Vector value = load(x + i, lanes);
      planes.values[p] = value * value;
    });
    sum_windows(planes.values, reach_, planes.across, planes.sums);
    for (size_t p = 0; p < planes.sums.size(); ++p) planes.scales[p] = planes.sums[p] * per_square_ + k_;
  }

  // sums = the sum over each position's window of values; rows are summed first.
  void sum_windows(const Plane& values, const WindowReach& reach, Plane& across, Plane& sums) const {
    for (int64_t h = 0; h < height_; ++h)
      sum_line(values.data() + h * width_, width_, 1, reach, across.data() + h * width_);
    for (int64_t w = 0; w < width_; ++w) sum_line(across.data() + w, height_, width_, reach, sums.data() + w);
  }
  static void sum_line(const Vector* values, int64_t count, int64_t stride, const WindowReach& reach, Vector* sums) {
    for (int64_t i = 0; i < count; ++i) {
      Vector sum{};
      const int64_t last = std::min(i + reach.after, count - 1);
      for (int64_t j = std::max<int64_t>(i - reach.before, 0); j <= last; ++j) sum += values[j * stride];
      sums[i * stride] = sum;
    }
  }

  Power power_;
  float k_, per_square_, factor_;
  WindowReach reach_;
  int64_t rows_, height_, width_, channels_;
};

}  // namespace

std::unique_ptr<Op> bind_lrn_within(Cpu, const LrnSettings& settings, const Shape& in) {
  return with_power(settings.beta, [&](auto power) -> std::unique_ptr<Op> {
    return std::make_unique<LrnWithinOp<decltype(power)>>(settings, power, in);
  });
}

}  // namespace owt
