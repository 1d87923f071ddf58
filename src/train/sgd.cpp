#include "src/train/sgd.h"

#include <limits>

#include "src/core/check.h"
#include "src/core/threads.h"

namespace owt {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements per thread that are worth waking it for

struct Factors {
  float momentum, gradient, decay;  // v = momentum * v - (gradient * g + decay * w)
};

enum class Rule { kPlain, kNesterov };
enum class Gradient { kPresent, kZero };

// Bound by memory: every array is walked once, and the choices are made outside the loop.
template <Rule rule, Gradient present>
void sweep(const Factors f, int64_t count, const float* __restrict grad, float* __restrict velocity,
           float* __restrict weight) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float w = weight[i];
    const float step = present == Gradient::kPresent ? f.gradient * grad[i] + f.decay * w : f.decay * w;
    const float v = f.momentum * velocity[i] - step;
    velocity[i] = v;
    weight[i] = rule == Rule::kNesterov ? w + (f.momentum * v - step) : w + v;
  }
}

auto sweep_for(Rule rule, Gradient present) {
  if (rule == Rule::kPlain)
    return present == Gradient::kPresent ? sweep<Rule::kPlain, Gradient::kPresent>
                                         : sweep<Rule::kPlain, Gradient::kZero>;
  return present == Gradient::kPresent ? sweep<Rule::kNesterov, Gradient::kPresent>
                                       : sweep<Rule::kNesterov, Gradient::kZero>;
}

void update_average(Param& param, double gradient_scale) {
  const auto rate = static_cast<float>(param.lr_mult), scale = static_cast<float>(gradient_scale);
  const float* statistic = param.grad.data();
  float* value = param.value.data();
  for (int64_t i = 0; i < param.value.elements(); ++i) value[i] += rate * (scale * statistic[i] - value[i]);
}

}  // namespace

SgdSettings SgdSettings::from(Config& config) {
  SgdSettings s;
  config.word("type", "sgd", {"sgd"});
  s.learning_rate = config.number("learning_rate", {.low = std::numeric_limits<double>::min()});
  s.momentum = config.number("momentum", s.momentum, {.low = 0, .high = 1});
  if (s.momentum == 1) config.error("momentum", "'momentum' is 1, wanted less: the velocity would never fade");
  s.decay = config.number("decay", s.decay, {.low = 0});
  s.nesterov = config.boolean("nesterov", s.nesterov);
  config.finish("optimizer type 'sgd'");
  return s;
}

Tensor& Sgd::velocity(const Param& param) {
  OWT_CHECK(param.role == ParamRole::kTrained, param.name, " is an average and has no velocity");
  Tensor& v = velocities_[&param];
  if (!v.defined()) {
    v = Tensor(param.shape());
    v.zero();
  }
  return v;
}

void Sgd::update_trained(Param& param, double rate, double gradient_scale) {
  const double lr = rate * param.lr_mult;
  const Factors factors{static_cast<float>(settings_.momentum), static_cast<float>(lr * gradient_scale),
                        static_cast<float>(lr * settings_.decay * param.decay_mult)};
  const auto run = sweep_for(settings_.nesterov ? Rule::kNesterov : Rule::kPlain,
                             param.grad_is_zero ? Gradient::kZero : Gradient::kPresent);
  float *v = velocity(param).data(), *w = param.value.data();
  const float* g = param.grad.data();
  parallel_for(param.value.elements(), kGrain,
               [&](int64_t begin, int64_t end) { run(factors, end - begin, g + begin, v + begin, w + begin); });
}

void Sgd::update(std::span<Param* const> params, double rate, double gradient_scale) {
  for (Param* param : params) {
    if (param->role == ParamRole::kAverage) {
      if (param->grad_is_zero) continue;
      update_average(*param, gradient_scale);
    } else {
      update_trained(*param, rate, gradient_scale);
    }
    param->grad_is_zero = true;
    ++param->version;
  }
}

}  // namespace owt
