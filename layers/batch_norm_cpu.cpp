#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "layers/base/summing_op.h"
#include "layers/batch_norm.h"
#include "src/core/canonical.h"
#include "src/core/row_groups.h"
#include "src/core/simd.h"
#include "src/core/threads.h"
#include "src/system/check.h"

namespace owt {
namespace {

constexpr int64_t kBatchNormGrain = 1 << 14;  // fewest elements per thread for which a thread is worth waking
constexpr int64_t kMostChunks = 32;           // limit on the number of chunks of positions with separate sums

template <int64_t number>
using Count = std::integral_constant<int64_t, number>;

// Two sums per channel over some positions, in double precision. Chunks of positions are summed separately and then
// added in order. The chunks depend only on the number of positions and on the layer, so the sums do not depend on the
// number of threads, nor on the part of the channels.
class ChannelSums {
 public:
  // whole_channels: of the layer, of which the ranks may have parts.
  ChannelSums(int64_t most_positions, int64_t channels, int64_t whole_channels)
      : channels_(channels),
        whole_channels_(whole_channels),
        sums_(static_cast<size_t>(2 * chunks(most_positions) * channels)) {}

  const double* first() const { return sums_.data(); }
  const double* second() const { return sums_.data() + channels_; }

  // Adds the sums of the other ranks, over their positions of the same step.
  void add_up(StepSums& ranks, const Stream& stream) {
    if (!exchanged_.defined()) exchanged_ = Tensor({2 * channels_}, DType::kF64);
    std::copy_n(sums_.begin(), 2 * channels_, exchanged_.data<double>());
    ranks.add_up(exchanged_, stream);
    std::copy_n(exchanged_.data<double>(), 2 * channels_, sums_.begin());
  }

  // Calls add(position, count, first, second), which adds the values of `count` positions to the sums of all channels,
  // one by one. `count` is a compile-time constant, usually 4. Loading and storing the sums for each value would take
  // longer than loading the values.
  template <class Add>
  void run(const Slice& positions, const Add& add) {
    const int64_t parts = chunks(positions.size()), each = 2 * channels_;
    std::fill_n(sums_.begin(), parts * each, 0.0);
    parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        double* sums = sums_.data() + each * chunk;
        const Slice part = split(positions.size(), static_cast<int>(parts), static_cast<int>(chunk));
        int64_t p = positions.begin + part.begin;
        const int64_t last = positions.begin + part.end;
        for (; p + 4 <= last; p += 4) add(p, Count<4>{}, sums, sums + channels_);
        for (; p < last; ++p) add(p, Count<1>{}, sums, sums + channels_);
      }
    });
    for (int64_t chunk = 1; chunk < parts; ++chunk)
      for (int64_t i = 0; i < each; ++i) sums_[static_cast<size_t>(i)] += sums_[static_cast<size_t>(each * chunk + i)];
  }

 private:
  int64_t chunks(int64_t positions) const {
    return std::clamp<int64_t>(positions * whole_channels_ / kBatchNormGrain, 1, kMostChunks);
  }

  int64_t channels_, whole_channels_;
  std::vector<double> sums_;  // chunks x {first, second} x channels
  Tensor exchanged_;          // {first, second} x channels
};

// grad = beta * grad + terms, one for each channel
void add_to_grad(Param& param, const std::vector<double>& terms) {
  const float beta = param.take_beta();
  const auto add = [&](auto* grad) {
    using Element = std::remove_reference_t<decltype(*grad)>;
    for (size_t c = 0; c < terms.size(); ++c)
      grad[c] = (beta == 0 ? 0 : beta * grad[c]) + static_cast<Element>(terms[c]);
  };
  if (param.grad_type == DType::kF64)
    add(param.grad.data<double>());
  else
    add(param.grad.data());
}

// The statistics of a group, per channel; forward stores them for backward.
struct GroupStatistics {
  explicit GroupStatistics(size_t channels) : var(channels), mean(channels), inverse_std(channels) {}
  std::vector<double> var;
  std::vector<float> mean, inverse_std;
};

// Contributions of a pass to the gradients of the parameters, per channel.
struct ParamSums {
  explicit ParamSums(size_t channels) : weight(channels), bias(channels), mean(channels), var(channels) {}
  std::vector<double> weight, bias, mean, var;
};

// The lanes rounded to elements of T, as they would be in memory.
template <class T>
Vector rounded_to(Vector lanes) {
  if constexpr (std::is_same_v<T, Bf16>) return reinterpret_cast<Vector>(widened(rounded_to_bf16(lanes)) << 16);
  return lanes;
}

// The gradient of normalisation: dy, or with a following relu dy where y > 0.
template <class T, bool kRelu>
struct GradientBeforeRelu {
  const T *y, *dy;

  float at(int64_t i) const {
    const float gradient = dy[i];  // loaded in any case, so that the selection needs no branch
    if constexpr (!kRelu) return gradient;
    return float{y[i]} > 0 ? gradient : 0.0f;
  }
  template <class Lanes>
  Vector at(int64_t i, Lanes lanes) const {
    const Vector gradient = load(dy + i, lanes);
    if constexpr (!kRelu) return gradient;
    return load(y + i, lanes) > 0.0f ? gradient : Vector{};
  }
};

// Processes one group of rows after the other, so that the values are still in the cache when they are normalised.
class BatchNormOp : public SummingOp {
 public:
  BatchNormOp(BatchNormParams params, const BatchNormSettings& settings, const Shape& in)
      : params_(params),
        eps_(settings.eps),
        relu_(settings.relu),
        frozen_(!learns(params.weight.role)),
        channels_(in[in.rank() - 1]),
        pixels_(channels_ == 0 ? 0 : in.row_elements() / channels_),
        whole_step_(settings.rows == kRowsOfStep),
        groups_{in[0], settings.rows > 0 ? settings.rows : std::max<int64_t>(in[0], 1)},
        sums_(groups_.most() * pixels_, channels_, params.weight.full_shape.elements()),
        statistics_(static_cast<size_t>(groups_.count()), GroupStatistics(static_cast<size_t>(channels_))),
        scale_(static_cast<size_t>(channels_)) {}

  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    with_cpu_element(x.dtype(), [&](auto element) {
      using T = decltype(element);
      if (relu_)
        forward(pass, x.data<T>(), y.data<T>(), [](Vector value, auto...) { return larger(Vector{}, value); });
      else
        forward(pass, x.data<T>(), y.data<T>(), [](Vector value, auto...) { return value; });
    });
  }

  void forward_sum(const Pass& pass, const Tensor& x, const Tensor& b, bool relu, Tensor& y) override {
    with_cpu_element(x.dtype(), [&](auto element) {
      using T = decltype(element);
      const auto sum = [other = b.data<T>()](Vector value, int64_t i, auto lanes) {
        return rounded_to<T>(value) + load(other + i, lanes);
      };
      if (relu)
        forward(pass, x.data<T>(), y.data<T>(), [=](auto... value_at) { return larger(Vector{}, sum(value_at...)); });
      else
        forward(pass, x.data<T>(), y.data<T>(), sum);
    });
  }

  void backward_data(const Pass& pass, const Tensor& x, const Tensor& y, const Tensor& dy, Tensor* dx) override {
    with_cpu_element(x.dtype(), [&](auto element) {
      using T = decltype(element);
      T* to = dx ? dx->data<T>() : nullptr;
      if (relu_)
        backward(pass, x.data<T>(), GradientBeforeRelu<T, true>{y.data<T>(), dy.data<T>()}, to);
      else
        backward(pass, x.data<T>(), GradientBeforeRelu<T, false>{nullptr, dy.data<T>()}, to);
    });
  }

 private:
  Slice positions_of(const Slice& rows) const { return {rows.begin * pixels_, rows.end * pixels_}; }
  GroupStatistics& of(int64_t group) { return statistics_[static_cast<size_t>(group)]; }

  // then(value, i, lanes): y for the normalised lanes at element i. NaN must stay NaN.
  template <class T, class Then>
  void forward(const Pass& pass, const T* from, T* to, const Then& then) {
    if (pass.mode == Mode::kEval || frozen_) {
      take_running_averages(of(0));
      return normalise(of(0), positions_of({0, groups_.rows}), from, to, then);
    }
    for (int64_t group = 0; group < groups_.count(); ++group) {
      const Slice positions = positions_of(groups_.of(group));
      measure(pass, of(group), positions, from);
      normalise(of(group), positions, from, to, then);
    }
  }

  template <class T, class Then>
  void normalise(const GroupStatistics& with, const Slice& positions, const T* from, T* to, const Then& then) {
    scale_by_weight(with);
    const float *mean = with.mean.data(), *scale = scale_.data(), *bias = params_.bias.value.data();
    for_each_vector_of(positions, [=](int64_t i, int64_t c, auto lanes) {
      const Vector centred = load(from + i, lanes) - load(mean + c, lanes);
      store(then(centred * load(scale + c, lanes) + load(bias + c, lanes), i, lanes), to + i, lanes);
    });
  }

  template <class T, class Gradient>
  void backward(const Pass& pass, const T* x, const Gradient& dy, T* dx) {
    if (frozen_) return dx ? write_scaled(dy, dx) : void();
    ParamSums sums(scale_.size());
    for (int64_t group = 0; group < groups_.count(); ++group) {
      const Slice rows = groups_.of(group), positions = positions_of(rows);
      const double count = positions_of_statistics(pass, positions);
      sum_gradients(of(group), positions, x, dy);
      add(of(group), count, static_cast<double>(rows.size()) / static_cast<double>(pass.step_rows), sums);
      if (!dx) continue;
      if (exchanges(pass)) sums_.add_up(*pass.sums, *pass.stream);
      write_dx(of(group), count, positions, x, dy, dx);
    }
    add_to_grad(params_.bias, sums.bias);
    add_to_grad(params_.weight, sums.weight);
    add_to_grad(params_.running_mean, sums.mean);
    add_to_grad(params_.running_var, sums.var);
  }

  // Sums dy and dy * (x - mean).
  template <class T, class Gradient>
  void sum_gradients(const GroupStatistics& of, const Slice& positions, const T* input, const Gradient& gradient) {
    const float* mean = of.mean.data();
    sums_.run(positions, [=, channels = channels_](int64_t p, auto count, double* __restrict dy_sums,
                                                   double* __restrict products) {
      for (int64_t c = 0; c < channels; ++c) {
        double dy_sum = dy_sums[c], product_sum = products[c];
        for (int64_t i = 0; i < count; ++i) {
          const float dy = gradient.at((p + i) * channels + c), x = input[(p + i) * channels + c];
          dy_sum += static_cast<double>(dy);
          product_sum += static_cast<double>(dy * (x - mean[c]));
        }
        dy_sums[c] = dy_sum;
        products[c] = product_sum;
      }
    });
  }

  // Adds a group's gradient sums and its statistics. count: positions in the group. share: the op's rows in the group,
  // as a fraction of the step.
  void add(const GroupStatistics& of, double count, double share, ParamSums& sums) const {
    const double unbiased = count > 1 ? count / (count - 1) : 1;
    const bool exact = params_.weight.grad_type == DType::kF64;
    const auto add = [exact](double term, double unit, double& sum) { sum += exact ? canonical(term, unit) : term; };
    for (size_t c = 0; c < scale_.size(); ++c) {
      add(sums_.first()[c], kCanonicalUnit, sums.bias[c]);
      add(sums_.second()[c] * static_cast<double>(of.inverse_std[c]), kCanonicalUnit, sums.weight[c]);
      add(share * static_cast<double>(of.mean[c]), kCanonicalAverageUnit, sums.mean[c]);
      add(share * unbiased * of.var[c], kCanonicalAverageUnit, sums.var[c]);
    }
  }

  bool exchanges(const Pass& pass) const { return whole_step_ && pass.sums; }
  // The number of positions that the statistics cover.
  double positions_of_statistics(const Pass& pass, const Slice& positions) const {
    return static_cast<double>(exchanges(pass) ? pass.step_rows * pixels_ : positions.size());
  }

  // A sum of squares in double precision is exact enough to subtract the squared mean, because inputs have 24 bits.
  template <class T>
  void measure(const Pass& pass, GroupStatistics& of, const Slice& positions, const T* x) {
    sums_.run(positions,
              [=, channels = channels_](int64_t p, auto count, double* __restrict sums, double* __restrict squares) {
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
    if (exchanges(pass)) sums_.add_up(*pass.sums, *pass.stream);
    const double count = positions_of_statistics(pass, positions);
    for (size_t c = 0; c < of.mean.size(); ++c) {
      const double mean = sums_.first()[c] / count;
      const double var = sums_.second()[c] / count - mean * mean;
      of.var[c] = var < 0 ? 0 : var;  // negative by rounding; NaN stays
      of.mean[c] = static_cast<float>(mean);
      of.inverse_std[c] = static_cast<float>(1 / std::sqrt(of.var[c] + eps_));
    }
  }

  // The weight in backward may differ from the one in forward (pipeline schedules).
  void scale_by_weight(const GroupStatistics& of) {
    const float* weight = params_.weight.value.data();
    for (size_t c = 0; c < scale_.size(); ++c) scale_[c] = weight[c] * of.inverse_std[c];
  }

  void take_running_averages(GroupStatistics& to) const {
    const float *mean = params_.running_mean.value.data(), *var = params_.running_var.value.data();
    for (size_t c = 0; c < to.mean.size(); ++c) {
      to.mean[c] = mean[c];
      to.inverse_std[c] = static_cast<float>(1 / std::sqrt(static_cast<double>(var[c]) + eps_));
    }
  }

  // dx = scale * (dy - mean of dy - (x - mean) * mean of dy * (x - mean) / (var + eps))
  template <class T, class Gradient>
  void write_dx(const GroupStatistics& of, double count, const Slice& positions, const T* x, const Gradient& dy,
                T* dx) {
    scale_by_weight(of);
    std::vector<float> dy_mean(scale_.size()), slope(scale_.size());
    for (size_t c = 0; c < scale_.size(); ++c) {
      dy_mean[c] = static_cast<float>(sums_.first()[c] / count);
      slope[c] = static_cast<float>(sums_.second()[c] / count / (of.var[c] + eps_));
    }
    const float *mean = of.mean.data(), *scale = scale_.data(), *shift = dy_mean.data(), *tilt = slope.data();
    for_each_vector_of(positions, [=](int64_t i, int64_t c, auto lanes) {
      const Vector centred = load(x + i, lanes) - load(mean + c, lanes), gradient = dy.at(i, lanes);
      const Vector change = gradient - load(shift + c, lanes) - centred * load(tilt + c, lanes);
      store(load(scale + c, lanes) * change, dx + i, lanes);
    });
  }

  // The gradient of a frozen layer, where scale_ comes from the running averages.
  template <class T, class Gradient>
  void write_scaled(const Gradient& dy, T* dx) {
    const float* scale = scale_.data();
    for_each_vector_of(positions_of({0, groups_.rows}), [=](int64_t i, int64_t c, auto lanes) {
      store(load(scale + c, lanes) * dy.at(i, lanes), dx + i, lanes);
    });
  }

  // Calls function(index of the first element, its channel, lanes) for all positions, divided among the threads. It
  // starts with the last positions, because these are still in the cache after the sums.
  template <class Function>
  void for_each_vector_of(const Slice& positions, const Function& function) {
    const int64_t grain = kBatchNormGrain / std::max<int64_t>(1, channels_);
    parallel_for(positions.size(), grain, [&](int64_t begin, int64_t end) {
      for (int64_t p = positions.begin + end; p-- > positions.begin + begin;)
        for_each_vector(channels_, [&](int64_t c, auto lanes) { function(p * channels_ + c, c, lanes); });
    });
  }

  BatchNormParams params_;
  double eps_;
  bool relu_, frozen_;
  int64_t channels_, pixels_;  // per row
  bool whole_step_;            // the whole step is one group, and other ranks may have rows of it
  RowGroups groups_;
  ChannelSums sums_;
  std::vector<GroupStatistics> statistics_;  // one for each group
  std::vector<float> scale_;
};

}  // namespace

std::unique_ptr<Op> bind_batch_norm(Cpu, BatchNormParams params, const BatchNormSettings& settings, const Shape& in) {
  return std::make_unique<BatchNormOp>(params, settings, in);
}

}  // namespace owt
