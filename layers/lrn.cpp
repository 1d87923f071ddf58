#include "layers/lrn.h"

#include <algorithm>
#include <vector>

#include "layers/base/lrn_powers.h"
#include "src/core/dispatch.h"
#include "src/core/grid.h"
#include "src/core/simd.h"
#include "src/core/threads.h"
#include "src/system/check.h"

namespace owt {
namespace {

constexpr int64_t kLrnGrain = 1 << 13;  // fewest elements per thread for which a thread is worth waking

// For each lane: terms[0] + ... + terms[size - 1]. The terms of a lane start one after the terms of the lane before it.
template <class Count>
Vector sum_window(const float* terms, int64_t size, Count lanes) {
  Vector sum = load(terms, lanes);
  for (int64_t j = 1; j < size; ++j) sum += load(terms + j, lanes);
  return sum;
}

template <class Power>
class LrnOp : public Op {
 public:
  LrnOp(const LrnSettings& settings, Power power, const Shape& in)
      : settings_(settings),
        power_(power),
        per_size_(settings.per_square()),
        channels_(in[in.rank() - 1]),
        positions_(channels_ == 0 ? 0 : in.elements() / channels_) {}

  void forward(const Pass&, const Tensor& x, Tensor& y) override {
    with_cpu_element(x.dtype(), [&](auto element) {
      using T = decltype(element);
      const T* from = x.data<T>();
      T* to = y.data<T>();
      for_each_position([&](int64_t i, const PositionBuffers& scratch) {
        square(from + i, scratch);
        for_each_vector(channels_, [&](int64_t c, auto lanes) {
          store(load(from + i + c, lanes) * power_(scale(scratch, c, lanes)), to + i + c, lanes);
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
      for_each_position([&](int64_t i, const PositionBuffers& scratch) {
        square(input + i, scratch);
        direct_term(input + i, gradient + i, scratch);
        subtract_neighbours(input + i, scratch, to + i);
      });
    });
  }

 private:
  // Buffers for one position; squares and terms are padded with zeros on both sides.
  struct PositionBuffers {
    float *squares, *terms, *direct;
  };

  int64_t left() const { return settings_.size / 2; }  // channels of a window before the window's own channel

  // Calls function(index of the first element, scratch) for each position, divided among the threads.
  template <class Function>
  void for_each_position(const Function& function) {
    parallel_for(positions_, kLrnGrain / std::max<int64_t>(1, channels_), [&](int64_t begin, int64_t end) {
      const auto padded = static_cast<size_t>(channels_ + settings_.size - 1);
      std::vector<float> memory(2 * padded + static_cast<size_t>(channels_), 0.0f);
      const PositionBuffers scratch{memory.data(), memory.data() + padded, memory.data() + 2 * padded};
      for (int64_t i = begin; i < end; ++i) function(i * channels_, scratch);
    });
  }

  template <class T>
  void square(const T* x, const PositionBuffers& scratch) const {
    for_each_vector(channels_, [&](int64_t c, auto lanes) {
      const Vector value = load(x + c, lanes);
      store(value * value, scratch.squares + left() + c, lanes);
    });
  }

  template <class Count>
  Vector scale(const PositionBuffers& scratch, int64_t c, Count lanes) const {
    return settings_.k + per_size_ * sum_window(scratch.squares + c, settings_.size, lanes);
  }

  // Computes dx = dy * s^-beta, and the terms dy * x * s^(-beta - 1) for the sums over the windows that hold a channel.
  // These windows mirror the channel's own window. So there are as many zeros before the first term as the window has
  // channels after its own.
  template <class T>
  void direct_term(const T* x, const T* dy, const PositionBuffers& scratch) const {
    float* const terms = scratch.terms + settings_.size - 1 - left();
    for_each_vector(channels_, [&](int64_t c, auto lanes) {
      const Vector s = scale(scratch, c, lanes), direct = load(dy + c, lanes) * power_(s);
      store(direct, scratch.direct + c, lanes);
      store(direct * load(x + c, lanes) / s, terms + c, lanes);
    });
  }

  template <class T>
  void subtract_neighbours(const T* x, const PositionBuffers& scratch, T* dx) const {
    const float factor = 2 * settings_.beta * per_size_;
    for_each_vector(channels_, [&](int64_t c, auto lanes) {
      const Vector sum = sum_window(scratch.terms + c, settings_.size, lanes);
      store(load(scratch.direct + c, lanes) - factor * load(x + c, lanes) * sum, dx + c, lanes);
    });
  }

  LrnSettings settings_;
  Power power_;
  float per_size_;
  int64_t channels_, positions_;
};

class Lrn : public Layer {
 public:
  explicit Lrn(const LayerSpec& spec) : Layer(spec.name, "lrn") {
    settings_.size = spec.config.integer("size", settings_.size, {.low = 1});
    settings_.alpha = static_cast<float>(spec.config.number("alpha", 1e-4, {.low = 0}));
    settings_.beta = static_cast<float>(spec.config.number("beta", 0.75, {.low = 0}));
    // For a smaller k, squares of small activations divided by k would overflow.
    settings_.k = static_cast<float>(spec.config.number("k", 1, {.low = 1e-6}));
    settings_.within = spec.config.boolean("within", false);
  }

  Shape out_shape(const Shape& in) const override {
    if (in.rank() != 4)
      fail("lrn normalises images (rows x height x width x channels), not ", in,
           "; put it before the first dense layer");
    return in;
  }
  double flops(const Shape& in) const override {
    const int64_t window = settings_.within ? settings_.size * settings_.size : settings_.size;
    return static_cast<double>(in.elements()) * static_cast<double>(window + 5);
  }
  int64_t scratch_bytes(const Shape& in, const Compute& on) const override {
    const bool terms = on.device == Device::kCuda &&
                       !lrn_has_narrow_kernels(settings_, in[in.rank() - 1], activation_type(on.precision));
    return terms ? in.elements() * size_of(DType::kF32) : 0;
  }
  Columns columns() const override { return settings_.within ? Columns::kKeeps : Columns::kMixes; }
  std::unique_ptr<Op> bind(const Shape& in, const Compute& on) override {
    out_shape(in);
    return dispatch(on, [&](auto tag) { return bind_lrn(tag, settings_, in); });
  }

  Described describe(const Shape&) override {
    const auto& [size, alpha, beta, k, within] = settings_;
    return {within ? "lrn_within" : "lrn",
            {{"size", size}, {"alpha", double{alpha}}, {"beta", double{beta}}, {"k", double{k}}},
            {}};
  }
  const LrnSettings& settings() const { return settings_; }

 private:
  LrnSettings settings_;
};

}  // namespace

bool lrn_has_narrow_kernels(const LrnSettings& settings, int64_t channels, DType dtype) {
  const int64_t pack = 16 / size_of(dtype);
  return !settings.within && (settings.size == 3 || settings.size == 5) && channels % pack == 0 &&
         channels / pack <= int64_t{kBlockThreads};
}

const LrnSettings& lrn_settings(const Layer& layer) { return dynamic_cast<const Lrn&>(layer).settings(); }

std::unique_ptr<Layer> make_lrn(const LayerSpec& spec) { return std::make_unique<Lrn>(spec); }

std::unique_ptr<Op> bind_lrn(Cpu cpu, const LrnSettings& settings, const Shape& in) {
  if (settings.within) return bind_lrn_within(cpu, settings, in);
  return with_power(settings.beta, [&](auto power) -> std::unique_ptr<Op> {
    return std::make_unique<LrnOp<decltype(power)>>(settings, power, in);
  });
}

}  // namespace owt
