// The arithmetic of cuDNN's graphs: each tensor is unpacked to f32 in the order N, H, W, C, and packed when it leaves
// the graph.
#include <atomic>
#include <cmath>
#include <stdexcept>

#include "tests/simulated_gpu/dnn_graph.h"

namespace simulated_gpu {
namespace {

enum { N, C, H, W };

struct Value {
  Extents extents{};
  std::vector<float> data;

  explicit Value(const Extents& e) : extents(e), data(static_cast<size_t>(e[N] * e[C] * e[H] * e[W])) {}
  Value() = default;

  int64_t index(int64_t n, int64_t c, int64_t h, int64_t w) const {
    return ((n * extents[H] + h) * extents[W] + w) * extents[C] + c;
  }
  // With extents of 1 repeated.
  float repeated(int64_t n, int64_t c, int64_t h, int64_t w) const {
    const auto at = [&](int64_t i, size_t axis) { return extents[axis] == 1 ? 0 : i; };
    return data[static_cast<size_t>(index(at(n, N), at(c, C), at(h, H), at(w, W)))];
  }
};

template <class Function>
void for_each(const Extents& extents, Function function) {
  for (int64_t n = 0; n < extents[N]; ++n)
    for (int64_t h = 0; h < extents[H]; ++h)
      for (int64_t w = 0; w < extents[W]; ++w)
        for (int64_t c = 0; c < extents[C]; ++c) function(n, c, h, w);
}

// The multiplications of a convolution: which element of the image, of the filter and of the result meet. Everything is
// a sum of scaled rows of channels, so that the inner loop runs over consecutive elements.
struct Convolution {
  ConvolutionSettings settings;
  Extents image, filter, result;  // filter: K, C / groups, R, S

  bool operator==(const Convolution&) const = default;

  int64_t groups() const { return image[C] / filter[C]; }
  int64_t outs() const { return filter[N] / groups(); }  // per group

  // body(group, image pixel, filter tap, result pixel) for all that meet.
  template <class Body>
  void for_each_meeting(Body body) const {
    for (int64_t n = 0; n < result[N]; ++n)
      for (int64_t i = 0; i < result[H]; ++i)
        for (int64_t j = 0; j < result[W]; ++j)
          for (int64_t u = 0; u < filter[H]; ++u)
            for (int64_t v = 0; v < filter[W]; ++v) {
              const int64_t h = i * settings.strides[0] - settings.before[0] + u * settings.dilations[0];
              const int64_t w = j * settings.strides[1] - settings.before[1] + v * settings.dilations[1];
              if (h < 0 || h >= image[H] || w < 0 || w >= image[W]) continue;
              const int64_t tap =
                  settings.flipped ? (filter[H] - 1 - u) * filter[W] + filter[W] - 1 - v : u * filter[W] + v;
              for (int64_t g = 0; g < groups(); ++g)
                body(g, (n * image[H] + h) * image[W] + w, tap, (n * result[H] + i) * result[W] + j);
            }
  }
};

template <class Sum>
void add_scaled(Sum* to, const float* from, float factor, int64_t count) {
  const Sum wide = static_cast<Sum>(factor);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] += wide * static_cast<Sum>(from[i]);
}

// Converts [K, taps, C] (unpacked) to [tap, C, K], and back; groups stay separate because K counts through them. K is
// longer than C where images have three channels.
template <bool kForward, class T>
std::vector<T> turned(const std::vector<T>& w, const Extents& filter) {
  const int64_t taps = filter[H] * filter[W];
  std::vector<T> to(w.size());
  for (int64_t k = 0; k < filter[N]; ++k)
    for (int64_t t = 0; t < taps; ++t)
      for (int64_t c = 0; c < filter[C]; ++c) {
        const auto last = static_cast<size_t>((k * taps + t) * filter[C] + c);
        const auto first = static_cast<size_t>((t * filter[C] + c) * filter[N] + k);
        if (kForward)
          to[first] = w[last];
        else
          to[last] = w[first];
      }
  return to;
}
template <class T>
std::vector<T> taps_first(const std::vector<T>& w, const Extents& filter) {
  return turned<true>(w, filter);
}
template <class T>
std::vector<T> taps_last(const std::vector<T>& w, const Extents& filter) {
  return turned<false>(w, filter);
}

template <class Sum>
std::vector<Sum> forward(const Convolution& conv, const std::vector<float>& x, const std::vector<float>& w) {
  const std::vector<float> taps = taps_first(w, conv.filter);
  const int64_t channels = conv.filter[C], all_outs = conv.filter[N], outs = conv.outs();
  std::vector<Sum> y(static_cast<size_t>(conv.result[N] * conv.result[H] * conv.result[W] * all_outs));
  conv.for_each_meeting([&](int64_t g, int64_t from, int64_t tap, int64_t to) {
    for (int64_t c = 0; c < channels; ++c)
      add_scaled(y.data() + to * all_outs + g * outs, taps.data() + (tap * channels + c) * all_outs + g * outs,
                 x[static_cast<size_t>(from * conv.image[C] + g * channels + c)], outs);
  });
  return y;
}

template <class Sum>
std::vector<Sum> data_gradient(const Convolution& conv, const std::vector<float>& dy, const std::vector<float>& w) {
  const int64_t channels = conv.filter[C], all_outs = conv.filter[N], outs = conv.outs();
  const int64_t taps = conv.filter[H] * conv.filter[W];
  std::vector<Sum> dx(static_cast<size_t>(conv.image[N] * conv.image[H] * conv.image[W] * conv.image[C]));
  conv.for_each_meeting([&](int64_t g, int64_t to, int64_t tap, int64_t from) {
    for (int64_t k = g * outs; k < (g + 1) * outs; ++k)
      add_scaled(dx.data() + to * conv.image[C] + g * channels, w.data() + (k * taps + tap) * channels,
                 dy[static_cast<size_t>(from * all_outs + k)], channels);
  });
  return dx;
}

template <class Sum>
std::vector<Sum> filter_gradient(const Convolution& conv, const std::vector<float>& x, const std::vector<float>& dy) {
  const int64_t channels = conv.filter[C], all_outs = conv.filter[N], outs = conv.outs();
  std::vector<Sum> dw(static_cast<size_t>(all_outs * conv.filter[H] * conv.filter[W] * channels));
  conv.for_each_meeting([&](int64_t g, int64_t of_x, int64_t tap, int64_t of_y) {
    for (int64_t c = 0; c < channels; ++c)
      add_scaled(dw.data() + (tap * channels + c) * all_outs + g * outs, dy.data() + of_y * all_outs + g * outs,
                 x[static_cast<size_t>(of_x * conv.image[C] + g * channels + c)], outs);
  });
  return taps_last(dw, conv.filter);
}

// A program measures a plan by some twenty runs on the same numbers. So each thread keeps its last sums.
template <class Sum>
const std::vector<Sum>& sums_of(cudnnBackendDescriptorType_t kind, const Convolution& conv, std::vector<float> a,
                                std::vector<float> b) {
  struct Last {
    cudnnBackendDescriptorType_t kind;
    Convolution conv;
    std::vector<float> a, b;
    std::vector<Sum> sums;
  };
  thread_local Last last{};
  if (last.kind == kind && last.conv == conv && last.a == a && last.b == b) return last.sums;
  auto sums = kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR         ? forward<Sum>(conv, a, b)
              : kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? data_gradient<Sum>(conv, a, b)
                                                                                     : filter_gradient<Sum>(conv, a, b);
  last = {kind, conv, std::move(a), std::move(b), std::move(sums)};
  return last.sums;
}

class Computation {
 public:
  Computation(const OperationGraph& graph, const Engine& engine, const Bindings& bindings)
      : graph_(graph), engine_(engine), bindings_(bindings) {}

  void run(const GraphOperation& operation) {
    operation_ = &operation;
    switch (operation.kind) {
      case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        convolve(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
        break;
      case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        convolve(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX);
        break;
      case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        convolve(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW);
        break;
      case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        apply();
        break;
      case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        reduce();
        break;
      case CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR:
        normalise();
        break;
      default:
        normalise_backward();
        break;
    }
  }

 private:
  bool has(int attribute) const { return operation_->tensors.count(attribute) > 0; }
  const GraphTensor& tensor(int attribute) const { return graph_.tensors.at(operation_->tensors.at(attribute)); }
  const Extents& extents(int attribute) const { return tensor(attribute).extents; }

  Value read(int attribute) const { return read(tensor(attribute)); }
  Value read(const GraphTensor& from) const {
    if (from.inside) return inside_.at(from.id);
    Value value(from.extents);
    const void* memory = bindings_.at(from.id);
    const Extents& s = from.strides;
    for_each(from.extents, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
      value.data[static_cast<size_t>(value.index(n, c, h, w))] =
          load(memory, from.type, n * s[N] + c * s[C] + h * s[H] + w * s[W]);
    });
    return value;
  }
  // The factors of a product, rounded as this engine does it.
  Value factor(int attribute) const {
    Value value = read(attribute);
    if (engine_.rounds_to_tf32)
      for (float& element : value.data) element = round_to_tf32(element);
    return value;
  }

  void write(int attribute, Value value) {
    const GraphTensor& to = tensor(attribute);
    if (to.inside) {
      if (to.type == ElementType::kBf16)
        for (float& element : value.data) element = bf16_to_float(float_to_bf16(element));
      inside_[to.id] = std::move(value);
      return;
    }
    void* memory = bindings_.at(to.id);
    const Extents& s = to.strides;
    for_each(to.extents, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
      store(memory, to.type, n * s[N] + c * s[C] + h * s[H] + w * s[W],
            value.data[static_cast<size_t>(value.index(n, c, h, w))]);
    });
  }

  // x, w, y: the image, the filter and the result of the forward convolution; `wanted`: the one to compute.
  void convolve(int x, int w, int y, int wanted) {
    if (engine_.in_single_precision)
      convolve_in<float>(x, w, y, wanted);
    else
      convolve_in<double>(x, w, y, wanted);
  }

  template <class Sum>
  void convolve_in(int x, int w, int y, int wanted) {
    const Convolution conv{operation_->convolution, extents(x), extents(w), extents(y)};
    const std::vector<Sum>& sums =
        sums_of<Sum>(operation_->kind, conv, factor(wanted == x ? y : x).data, factor(wanted == w ? y : w).data);
    Value value(extents(wanted));
    const Value before = operation_->beta != 0 ? read(wanted) : Value();
    for (size_t i = 0; i < sums.size(); ++i) {
      value.data[i] = operation_->alpha * static_cast<float>(sums[i]) * wobble();
      if (operation_->beta != 0) value.data[i] += operation_->beta * before.data[i];
    }
    write(wanted, std::move(value));
  }

  // 1, or not quite 1 for an engine with a varying order of additions.
  float wobble() const { return wobble(engine_.changes_every_time); }
  static float wobble(bool varies) {
    static std::atomic<unsigned> calls{0};
    return varies ? 1.0f + 1e-6f * static_cast<float>(calls++ % 7) : 1.0f;
  }

  void apply() {
    const bool backward = operation_->mode == CUDNN_POINTWISE_RELU_BWD;
    const int out = backward ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC : CUDNN_ATTR_OPERATION_POINTWISE_YDESC;
    const Value x = read(CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    Value b;
    if (backward)
      b = read(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC);
    else if (has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC))
      b = read(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    Value y(extents(out));
    for_each(y.extents, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
      const float from = x.repeated(n, c, h, w), other = b.data.empty() ? 0 : b.repeated(n, c, h, w);
      y.data[static_cast<size_t>(y.index(n, c, h, w))] = pointwise(from, other);
    });
    write(out, std::move(y));
  }

  float pointwise(float x, float b) const {
    switch (operation_->mode) {
      case CUDNN_POINTWISE_ADD:
        return x + b;
      case CUDNN_POINTWISE_MUL:
        return x * b;
      case CUDNN_POINTWISE_RELU_FWD:
        return x > 0 || (engine_.keeps_nan && std::isnan(x)) ? x : 0;
      case CUDNN_POINTWISE_RELU_BWD:
        return x > 0 ? b : 0;
      default:  // CUDNN_POINTWISE_IDENTITY
        return x;
    }
  }

  void reduce() {
    const Value x = read(CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
    Value y(extents(CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
    std::vector<double> sums(y.data.size());
    for_each(x.extents, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
      const auto at = [&](int64_t i, size_t axis) { return y.extents[axis] == 1 ? 0 : i; };
      sums[static_cast<size_t>(y.index(at(n, N), at(c, C), at(h, H), at(w, W)))] +=
          static_cast<double>(x.data[static_cast<size_t>(x.index(n, c, h, w))]);
    });
    const bool varies = engine_.changes_every_time || (engine_.compiled && !operation_->deterministic);
    for (size_t i = 0; i < sums.size(); ++i) y.data[i] = static_cast<float>(sums[i]) * wobble(varies);
    write(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, std::move(y));
  }

  struct Moments {
    std::vector<double> mean, variance;
    double count;
  };

  static Moments moments(const Value& x) {
    const auto channels = static_cast<size_t>(x.extents[C]);
    Moments result{std::vector<double>(channels), std::vector<double>(channels),
                   static_cast<double>(x.extents[N] * x.extents[H] * x.extents[W])};
    for (size_t i = 0; i < x.data.size(); ++i)
      result.mean[i % channels] += static_cast<double>(x.data[i]) / result.count;
    for (size_t i = 0; i < x.data.size(); ++i) {
      const double distance = static_cast<double>(x.data[i]) - result.mean[i % channels];
      result.variance[i % channels] += distance * distance / result.count;
    }
    return result;
  }

  void normalise() {
    const Value x = read(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC), scale = read(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC),
                bias = read(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC);
    const auto epsilon = static_cast<double>(read(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC).data[0]);
    const Moments found = moments(x);
    Value y(x.extents), mean(scale.extents), inverse(scale.extents);
    for (size_t c = 0; c < found.mean.size(); ++c) {
      mean.data[c] = static_cast<float>(found.mean[c]);
      inverse.data[c] = static_cast<float>(1 / std::sqrt(found.variance[c] + epsilon));
    }
    for (size_t i = 0; i < x.data.size(); ++i) {
      const size_t c = i % found.mean.size();
      y.data[i] = scale.data[c] * ((x.data[i] - mean.data[c]) * inverse.data[c]) + bias.data[c];
    }
    write(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, std::move(y));
    if (has(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC)) write(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, mean);
    if (has(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC))
      write(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, inverse);
    update_running(found);
  }

  void update_running(const Moments& found) {
    if (!has(CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC)) return;
    Value mean = read(CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC),
          variance = read(CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC);
    const float share = read(CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC).data[0];
    const double unbiased = found.count > 1 ? found.count / (found.count - 1) : 1;
    for (size_t c = 0; c < found.mean.size(); ++c) {
      mean.data[c] = (1 - share) * mean.data[c] + share * static_cast<float>(found.mean[c]);
      variance.data[c] = (1 - share) * variance.data[c] + share * static_cast<float>(found.variance[c] * unbiased);
    }
    write(CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC, std::move(mean));
    write(CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC, std::move(variance));
  }

  void normalise_backward() {
    const Value x = read(CUDNN_ATTR_OPERATION_NORM_BWD_XDESC), dy = read(CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC),
                scale = read(CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC),
                mean = read(CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC),
                inverse = read(CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC);
    const auto channels = static_cast<size_t>(x.extents[C]);
    const double count = static_cast<double>(x.data.size()) / static_cast<double>(channels);
    std::vector<double> sums(channels), products(channels);
    const auto normal = [&](size_t i) { return (x.data[i] - mean.data[i % channels]) * inverse.data[i % channels]; };
    for (size_t i = 0; i < x.data.size(); ++i) {
      sums[i % channels] += static_cast<double>(dy.data[i]);
      products[i % channels] += static_cast<double>(dy.data[i]) * static_cast<double>(normal(i));
    }
    Value dx(x.extents), dscale(scale.extents), dbias(scale.extents);
    for (size_t i = 0; i < x.data.size(); ++i) {
      const size_t c = i % channels;
      const double rest =
          static_cast<double>(dy.data[i]) - sums[c] / count - static_cast<double>(normal(i)) * products[c] / count;
      dx.data[i] = static_cast<float>(static_cast<double>(scale.data[c]) * static_cast<double>(inverse.data[c]) * rest);
    }
    for (size_t c = 0; c < channels; ++c) {
      dscale.data[c] = static_cast<float>(products[c]);
      dbias.data[c] = static_cast<float>(sums[c]);
    }
    write(CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, std::move(dx));
    write(CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, std::move(dscale));
    write(CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, std::move(dbias));
  }

  const OperationGraph& graph_;
  const Engine& engine_;
  const Bindings& bindings_;
  const GraphOperation* operation_ = nullptr;
  std::map<int64_t, Value> inside_;
};

}  // namespace

void compute(const OperationGraph& graph, const Engine& engine, const Bindings& bindings) {
  Computation computation(graph, engine, bindings);
  for (const GraphOperation& operation : graph.operations) computation.run(operation);
}

}  // namespace simulated_gpu
