#include "layers/batch_norm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <vector>

#include "src/core/check.h"
#include "src/core/dispatch.h"
#include "src/core/simd.h"
#include "src/core/threads.h"

namespace owt {
namespace {

constexpr int64_t kBatchNormGrain = 1 << 14;  // elements per thread that are worth waking it for
constexpr int64_t kMostChunks = 32;           // positions are summed apart in as many

template <int64_t number>
using Count = std::integral_constant<int64_t, number>;

// Two sums per channel over all positions, in double precision. Chunks of positions are summed apart and then
// added in order; they depend on the shape only, so that the sums do not depend on the number of threads.
class ChannelSums {
 public:
  ChannelSums(int64_t positions, int64_t channels)
      : positions_(positions),
        channels_(channels),
        chunks_(std::clamp<int64_t>(positions * channels / kBatchNormGrain, 1, kMostChunks)),
        sums_(static_cast<size_t>(2 * chunks_ * channels)) {}

  const double* first() const { return sums_.data(); }
  const double* second() const { return sums_.data() + channels_; }

  // add(position, count, first, second) adds the values of `count` positions to the sums of all channels, one by one.
  // The count is known to the compiler, and most often 4: sums that are loaded and stored for each value take longer
  // than the values.
  template <class Add>
  void run(const Add& add) {
    std::fill(sums_.begin(), sums_.end(), 0.0);
    parallel_for(chunks_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        double* sums = sums_.data() + 2 * channels_ * chunk;
        const Slice part = split(positions_, static_cast<int>(chunks_), static_cast<int>(chunk));
        int64_t p = part.begin;
        for (; p + 4 <= part.end; p += 4) add(p, Count<4>{}, sums, sums + channels_);
        for (; p < part.end; ++p) add(p, Count<1>{}, sums, sums + channels_);
      }
    });
    for (int64_t chunk = 1; chunk < chunks_; ++chunk)
      for (int64_t i = 0; i < 2 * channels_; ++i)
        sums_[static_cast<size_t>(i)] += sums_[static_cast<size_t>(2 * channels_ * chunk + i)];
  }

 private:
  int64_t positions_, channels_, chunks_;
  std::vector<double> sums_;  // chunks x {first, second} x channels
};

// grad = beta * grad + term(channel)
template <class Term>
void add_to_grad(Param& param, const Term& term) {
  const float beta = param.take_beta();
  float* grad = param.grad.data();
  for (int64_t c = 0; c < param.grad.elements(); ++c)
    grad[c] = (beta == 0 ? 0 : beta * grad[c]) + static_cast<float>(term(static_cast<size_t>(c)));
}

class BatchNormOp : public Op {
 public:
  BatchNormOp(BatchNormParams params, double eps, const Shape& in)
      : params_(params),
        eps_(eps),
        frozen_(!learns(params.weight.role)),
        rows_(in[0]),
        channels_(in[in.rank() - 1]),
        positions_(channels_ == 0 ? 0 : in.elements() / channels_),
        sums_(positions_, channels_),
        var_(static_cast<size_t>(channels_)),
        mean_(static_cast<size_t>(channels_)),
        inverse_std_(static_cast<size_t>(channels_)),
        scale_(static_cast<size_t>(channels_)) {}

  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    with_cpu_element(x.dtype(), [&](auto element) {
      using T = decltype(element);
      forward(pass, x.data<T>(), y.data<T>());
    });
  }

  void backward_data(const Pass& pass, const Tensor& x, const Tensor&, const Tensor& dy, Tensor* dx) override {
    with_cpu_element(x.dtype(), [&](auto element) {
      using T = decltype(element);
      backward(pass, x.data<T>(), dy.data<T>(), dx ? dx->data<T>() : nullptr);
    });
  }

 private:
  template <class T>
  void forward(const Pass& pass, const T* from, T* to) {
    if (pass.mode == Mode::kTrain && !frozen_)
      measure(from);
    else
      take_running_averages();
    scale_by_weight();
    const float *mean = mean_.data(), *scale = scale_.data(), *bias = params_.bias.value.data();
    for_each_vector_of_positions([=](int64_t i, int64_t c, auto lanes) {
      const Vector centred = load(from + i, lanes) - load(mean + c, lanes);
      store(centred * load(scale + c, lanes) + load(bias + c, lanes), to + i, lanes);
    });
  }

  template <class T>
  void backward(const Pass& pass, const T* input, const T* gradient, T* dx) {
    if (frozen_) return dx ? write_scaled(gradient, dx) : void();
    const float* mean = mean_.data();
    sums_.run(
        [=, channels = channels_](int64_t p, auto count, double* __restrict dy_sums, double* __restrict products) {
          for (int64_t c = 0; c < channels; ++c) {
            double dy_sum = dy_sums[c], product_sum = products[c];
            for (int64_t i = 0; i < count; ++i) {
              const float dy = gradient[(p + i) * channels + c], x = input[(p + i) * channels + c];
              dy_sum += static_cast<double>(dy);
              product_sum += static_cast<double>(dy * (x - mean[c]));
            }
            dy_sums[c] = dy_sum;
            products[c] = product_sum;
          }
        });
    const double *dy_sum = sums_.first(), *product_sum = sums_.second();
    scale_by_weight();  // the weight may be another one than in forward (a pipeline's schedule)
    add_to_grad(params_.bias, [&](size_t c) { return dy_sum[c]; });
    add_to_grad(params_.weight, [&](size_t c) { return product_sum[c] * static_cast<double>(inverse_std_[c]); });
    add_statistics(static_cast<double>(rows_) / static_cast<double>(pass.step_rows));
    if (dx) write_dx(input, gradient, dx);
  }

  // A sum of squares in double precision is exact enough to subtract the mean's from: inputs have 24 bits.
  template <class T>
  void measure(const T* x) {
    sums_.run([=, channels = channels_](int64_t p, auto count, double* __restrict sums, double* __restrict squares) {
      for (int64_t c = 0; c < channels; ++c) {
        double sum = sums[c], square = squares[c];
        for (int64_t i = 0; i < count; ++i) {
          const auto value = static_cast<double>(float{x[(p + i) * channels + c]});
          sum += value;
          square += value * value;
        }
        sums[c] = sum;
        squares[c] = square;
      }
    });
    const auto count = static_cast<double>(positions_);
    for (size_t c = 0; c < mean_.size(); ++c) {
      const double mean = sums_.first()[c] / count;
      const double var = sums_.second()[c] / count - mean * mean;
      var_[c] = var < 0 ? 0 : var;  // rounding; NaN stays
      mean_[c] = static_cast<float>(mean);
      inverse_std_[c] = static_cast<float>(1 / std::sqrt(var_[c] + eps_));
    }
  }

  void scale_by_weight() {
    const float* weight = params_.weight.value.data();
    for (size_t c = 0; c < scale_.size(); ++c) scale_[c] = weight[c] * inverse_std_[c];
  }

  void take_running_averages() {
    const float *mean = params_.running_mean.value.data(), *var = params_.running_var.value.data();
    for (size_t c = 0; c < mean_.size(); ++c) {
      mean_[c] = mean[c];
      inverse_std_[c] = static_cast<float>(1 / std::sqrt(static_cast<double>(var[c]) + eps_));
    }
  }

  void add_statistics(double share) {
    const auto count = static_cast<double>(positions_);
    const double unbiased = positions_ > 1 ? count / (count - 1) : 1;
    add_to_grad(params_.running_mean, [&](size_t c) { return share * static_cast<double>(mean_[c]); });
    add_to_grad(params_.running_var, [&](size_t c) { return share * unbiased * var_[c]; });
  }

  // dx = scale * (dy - mean of dy - (x - mean) * mean of dy * (x - mean) / (var + eps))
  template <class T>
  void write_dx(const T* x, const T* dy, T* dx) {
    std::vector<float> dy_mean(mean_.size()), slope(mean_.size());
    const auto count = static_cast<double>(positions_);
    for (size_t c = 0; c < mean_.size(); ++c) {
      dy_mean[c] = static_cast<float>(sums_.first()[c] / count);
      slope[c] = static_cast<float>(sums_.second()[c] / count / (var_[c] + eps_));
    }
    const float *mean = mean_.data(), *scale = scale_.data(), *shift = dy_mean.data(), *tilt = slope.data();
    for_each_vector_of_positions([=](int64_t i, int64_t c, auto lanes) {
      const Vector centred = load(x + i, lanes) - load(mean + c, lanes), gradient = load(dy + i, lanes);
      const Vector change = gradient - load(shift + c, lanes) - centred * load(tilt + c, lanes);
      store(load(scale + c, lanes) * change, dx + i, lanes);
    });
  }

  // The gradient of what a frozen layer does: scale_ is that of the running averages.
  template <class T>
  void write_scaled(const T* dy, T* dx) {
    const float* scale = scale_.data();
    for_each_vector_of_positions(
        [=](int64_t i, int64_t c, auto lanes) { store(load(scale + c, lanes) * load(dy + i, lanes), dx + i, lanes); });
  }

  // function(index of the first element, its channel, lanes) for all positions, shared among the threads. The last ones
  // come first: those are what the sums left in the cache.
  template <class Function>
  void for_each_vector_of_positions(const Function& function) {
    parallel_for(positions_, kBatchNormGrain / std::max<int64_t>(1, channels_), [&](int64_t begin, int64_t end) {
      for (int64_t p = end; p-- > begin;)
        for_each_vector(channels_, [&](int64_t c, auto lanes) { function(p * channels_ + c, c, lanes); });
    });
  }

  BatchNormParams params_;
  double eps_;
  bool frozen_;
  int64_t rows_, channels_, positions_;
  ChannelSums sums_;
  std::vector<double> var_;
  std::vector<float> mean_, inverse_std_, scale_;
};

class BatchNorm : public Layer {
 public:
  explicit BatchNorm(const LayerSpec& spec)
      : Layer(spec.name, "batch_norm"), eps_(spec.config.number("eps", 1e-5, {.low = 1e-12})) {
    const double momentum = spec.config.number("momentum", 0.1, {.low = 0, .high = 1});
    const int64_t channels = spec.in[spec.in.rank() - 1];
    const Slice part = spec.part.value_or(Slice{0, channels});
    const std::array<const char*, 4> names = {"weight", "bias", "running_mean", "running_var"};
    for (size_t i = 0; i < names.size(); ++i) {
      params_[i].name = spec.name + "." + names[i];
      params_[i].full_shape = params_[i].file_shape = {channels};
      params_[i].part = part;
    }
    params_[kWeight].init.value = params_[kRunningVar].init.value = 1;
    for (const size_t trained : {kWeight, kBias}) {
      Config table = spec.config.table(names[trained]);
      read_multipliers(table, params_[trained]);
      table.finish(std::string("batch_norm's ") + names[trained]);
    }
    for (const size_t average : {kRunningMean, kRunningVar}) {
      params_[average].role = ParamRole::kAverage;
      params_[average].lr_mult = momentum;
      params_[average].decay_mult = 0;
    }
  }

  Shape out_shape(const Shape& in) const override {
    if (in.rank() != 2 && in.rank() != 4)
      fail("batch_norm takes rows x features or rows x height x width x channels, not ", in);
    return in;
  }
  double flops(const Shape& in) const override { return 8.0 * static_cast<double>(in.elements()); }
  std::vector<Param*> params() override { return pointers_to(params_); }
  Columns columns() const override { return Columns::kKeeps; }

  std::unique_ptr<Op> bind(const Shape& in, const Compute& on) override {
    OWT_CHECK_EQ(out_shape(in)[in.rank() - 1], params_[kWeight].part.size(), "layer '", name(), "'");
    const BatchNormParams params{params_[kWeight], params_[kBias], params_[kRunningMean], params_[kRunningVar]};
    return dispatch(on, [&](auto tag) { return bind_batch_norm(tag, params, eps_, in); });
  }

  Described describe(const Shape&) override {
    return {type(), {{"eps", eps_}, {"momentum", params_[kRunningMean].lr_mult}}, params()};
  }

 private:
  enum : size_t { kWeight, kBias, kRunningMean, kRunningVar };
  double eps_;
  std::array<Param, 4> params_;
};

}  // namespace

std::unique_ptr<Layer> make_batch_norm(const LayerSpec& spec) { return std::make_unique<BatchNorm>(spec); }

std::unique_ptr<Op> bind_batch_norm(Cpu, BatchNormParams params, double eps, const Shape& in) {
  return std::make_unique<BatchNormOp>(params, eps, in);
}

}  // namespace owt
