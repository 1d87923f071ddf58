#include "layers/layer_norm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "src/core/dispatch.h"
#include "src/core/simd.h"
#include "src/core/threads.h"
#include "src/system/check.h"

namespace owt {
namespace {

constexpr int64_t kLayerNormGrain = 1 << 13;     // fewest elements per thread for which a thread is worth waking
constexpr int64_t kMostLayerNormChunks = 32;     // limit on the number of chunks of positions with separate sums
constexpr int64_t kLayerNormPartPositions = 32;  // positions whose gradients are summed in f32

// Calls function(i, lanes) for vectors that cover each of the elements once.
template <class Function>
void over_vectors_once(int64_t elements, const Function& function) {
  int64_t i = 0;
  for (; i + kLanes <= elements; i += kLanes) function(i, AllLanes{});
  if (i < elements) function(i, elements - i);
}

// The lanes that hold elements; 0 in the others.
inline Vector only_first(Vector lanes, AllLanes) { return lanes; }
inline Vector only_first(Vector lanes, int64_t count) {
  for (int64_t i = count; i < kLanes; ++i) lanes[i] = 0;
  return lanes;
}

inline float sum_of_lanes(Vector lanes) {
  float sums[kLanes];
  store(lanes, sums);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  return sums[0];
}

class LayerNormOp : public Op {
 public:
  LayerNormOp(LayerNormParams params, double eps, const Shape& in)
      : params_(params),
        eps_(static_cast<float>(eps)),
        channels_(in[in.rank() - 1]),
        positions_(in.elements() / channels_),
        statistics_(static_cast<size_t>(positions_)) {}

  void forward(const Pass&, const Tensor& x, Tensor& y) override {
    with_cpu_element(x.dtype(), [&](auto element) {
      using T = decltype(element);
      const T* from = x.data<T>();
      T* to = y.data<T>();
      parallel_for(positions_, kLayerNormGrain / channels_, [=, this](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p) normalise(p, from + p * channels_, to + p * channels_);
      });
    });
  }

  // Also computes the gradients of the parameters, from the values that are in the cache.
  void backward_data(const Pass&, const Tensor& x, const Tensor&, const Tensor& dy, Tensor* dx) override {
    const bool sums = learns(params_.weight.role) || learns(params_.bias.role);
    const int64_t chunks = std::clamp<int64_t>(positions_ * channels_ / kLayerNormGrain, 1, kMostLayerNormChunks);
    std::vector<double> terms(sums ? static_cast<size_t>(chunks * 2 * channels_) : 0);
    with_cpu_element(x.dtype(), [&](auto element) {
      using T = decltype(element);
      T* const to = dx ? dx->data<T>() : nullptr;
      parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
        for (int64_t chunk = begin; chunk < end; ++chunk)
          backward(split(positions_, static_cast<int>(chunks), static_cast<int>(chunk)), x.data<T>(), dy.data<T>(), to,
                   sums ? terms.data() + chunk * 2 * channels_ : nullptr);
      });
    });
    if (!sums) return;
    for (int64_t i = 2 * channels_; i < std::ssize(terms); ++i)
      terms[static_cast<size_t>(i % (2 * channels_))] += terms[static_cast<size_t>(i)];
    add_to(params_.weight, terms.data());
    add_to(params_.bias, terms.data() + channels_);
  }

 private:
  struct Statistics {
    float mean, inverse_std;
  };

  template <class T>
  void normalise(int64_t position, const T* x, T* y) {
    Vector sum{}, squares{};
    over_vectors_once(channels_, [&](int64_t c, auto lanes) { sum += load(x + c, lanes); });
    const float mean = sum_of_lanes(sum) / static_cast<float>(channels_);
    over_vectors_once(channels_, [&](int64_t c, auto lanes) {
      const Vector centred = only_first(load(x + c, lanes) - mean, lanes);
      squares += centred * centred;
    });
    const float inverse_std = 1 / std::sqrt(sum_of_lanes(squares) / static_cast<float>(channels_) + eps_);
    const float *weight = params_.weight.value.data(), *bias = params_.bias.value.data();
    for_each_vector(channels_, [=](int64_t c, auto lanes) {
      const Vector normal = (load(x + c, lanes) - mean) * inverse_std;
      store(normal * load(weight + c, lanes) + load(bias + c, lanes), y + c, lanes);
    });
    statistics_[static_cast<size_t>(position)] = {mean, inverse_std};
  }

  // With n = (x - mean) / std and g = dy * weight:  dx = (g - mean of g - n * mean of g * n) / std. dx or sums may be
  // null. The sums are of dy * n for all channels, then of dy; over few positions they are f32.
  template <class T>
  void backward(const Slice& positions, const T* x, const T* dy, T* dx, double* sums) const {
    std::vector<float> part(static_cast<size_t>(2 * channels_));
    for (int64_t first = positions.begin; first < positions.end; first += kLayerNormPartPositions) {
      const int64_t end = std::min(first + kLayerNormPartPositions, positions.end);
      std::fill(part.begin(), part.end(), 0.0f);
      for (int64_t p = first; p < end; ++p)
        backward_at(p, x + p * channels_, dy + p * channels_, dx ? dx + p * channels_ : nullptr, part.data());
      if (sums)
        for (size_t i = 0; i < part.size(); ++i) sums[i] += static_cast<double>(part[i]);
    }
  }

  template <class T>
  void backward_at(int64_t position, const T* x, const T* dy, T* dx, float* part) const {
    const auto [mean, inverse_std] = statistics_[static_cast<size_t>(position)];
    const float *weight = params_.weight.value.data(), share = 1 / static_cast<float>(channels_);
    Vector gradients{}, products{};
    over_vectors_once(channels_, [&, mean = mean, inverse_std = inverse_std](int64_t c, auto lanes) {
      const Vector gradient = load(dy + c, lanes), normal = (load(x + c, lanes) - mean) * inverse_std;
      const Vector scaled = gradient * load(weight + c, lanes);
      gradients += scaled;  // lanes without an element have gradient 0
      products += scaled * normal;
      store(load(part + c, lanes) + gradient * normal, part + c, lanes);
      store(load(part + channels_ + c, lanes) + gradient, part + channels_ + c, lanes);
    });
    if (!dx) return;
    const float shift = sum_of_lanes(gradients) * share, tilt = sum_of_lanes(products) * share;
    for_each_vector(channels_, [=, mean = mean, inverse_std = inverse_std](int64_t c, auto lanes) {
      const Vector normal = (load(x + c, lanes) - mean) * inverse_std;
      store((load(dy + c, lanes) * load(weight + c, lanes) - shift - normal * tilt) * inverse_std, dx + c, lanes);
    });
  }

  void add_to(Param& param, const double* terms) const {
    if (!learns(param.role)) return;
    const float beta = param.take_beta();
    float* grad = param.grad.data();
    for (int64_t c = 0; c < channels_; ++c) grad[c] = (beta == 0 ? 0 : beta * grad[c]) + static_cast<float>(terms[c]);
  }

  LayerNormParams params_;
  float eps_;
  int64_t channels_, positions_;
  std::vector<Statistics> statistics_;  // forward stores them for backward, for each position
};

class LayerNorm : public Layer {
 public:
  explicit LayerNorm(const LayerSpec& spec)
      : Layer(spec.name, "layer_norm"), eps_(spec.config.number("eps", 1e-5, {.low = 1e-12})) {
    const std::array<const char*, 2> names = {"weight", "bias"};
    for (size_t i = 0; i < names.size(); ++i) {
      params_[i].name = spec.name + "." + names[i];
      params_[i].full_shape = params_[i].file_shape = {spec.in[spec.in.rank() - 1]};
      params_[i].part = {0, params_[i].full_shape[0]};
      params_[i].init.value = i == 0 ? 1 : 0;
      Config table = spec.config.table(names[i]);
      read_multipliers(table, params_[i]);
      table.finish(std::string("layer_norm's ") + names[i]);
    }
  }

  Shape out_shape(const Shape& in) const override {
    if (in.rank() != 2 && in.rank() != 4)
      fail("layer_norm takes rows x features or rows x height x width x channels, not ", in);
    return in;
  }
  double flops(const Shape& in) const override { return 8.0 * static_cast<double>(in.elements()); }
  std::vector<Param*> params() override { return pointers_to(params_); }
  Described describe(const Shape&) override { return {type(), {{"eps", eps_}}, params()}; }
  std::unique_ptr<Op> bind(const Shape& in, const Compute& on) override {
    OWT_CHECK_EQ(out_shape(in)[in.rank() - 1], params_[0].part.size(), "layer '", name(), "'");
    return dispatch(on, [&](auto tag) { return bind_layer_norm(tag, {params_[0], params_[1]}, eps_, in); });
  }

 private:
  double eps_;
  std::array<Param, 2> params_;
};

}  // namespace

std::unique_ptr<Layer> make_layer_norm(const LayerSpec& spec) { return std::make_unique<LayerNorm>(spec); }

std::unique_ptr<Op> bind_layer_norm(Cpu, LayerNormParams params, double eps, const Shape& in) {
  return std::make_unique<LayerNormOp>(params, eps, in);
}

}  // namespace owt
