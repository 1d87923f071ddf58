#include "src/train/sgd.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "src/core/bf16.h"
#include "src/core/check.h"
#include "src/core/dispatch.h"
#include "src/core/threads.h"

namespace owt {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements per thread that are worth waking it for
constexpr int64_t kBlock = 1 << 12;  // elements

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

void update_average(const SgdRule& rule, const SgdItem& item) {
  const auto rate = static_cast<float>(item.lr_mult), scale = static_cast<float>(rule.gradient_scale);
  const auto* gradient = static_cast<const float*>(item.gradient);
  for (int64_t i = 0; i < item.count; ++i) item.weight[i] += rate * (scale * gradient[i] - item.weight[i]);
  if (item.copy16) std::copy_n(item.weight, item.count, static_cast<Bf16*>(item.copy16));
}

// The update of a trained parameter, element by element.
class Update {
 public:
  Update(const SgdRule& rule, double rate, const SgdItem& item, Gradient present)
      : item_(item), sweep_(sweep_for(rule.nesterov ? Rule::kNesterov : Rule::kPlain, present)) {
    const double lr = rate * item.lr_mult;
    factors_ = {static_cast<float>(rule.momentum), static_cast<float>(lr * rule.gradient_scale),
                static_cast<float>(lr * rule.decay * item.decay_mult)};
  }

  // Of the elements [begin, end), in blocks that stay in the cache until their copy is written. gradient: of the first
  // of them, or null.
  void operator()(int64_t begin, int64_t end, const float* gradient) const {
    for (int64_t i = begin; i < end; i += kBlock) {
      const int64_t count = std::min(kBlock, end - i);
      sweep_(factors_, count, gradient ? gradient + (i - begin) : nullptr, item_.velocity + i, item_.weight + i);
      if (item_.copy16) std::copy_n(item_.weight + i, count, static_cast<Bf16*>(item_.copy16) + i);
    }
  }

 private:
  SgdItem item_;
  decltype(sweep_for(Rule{}, Gradient{})) sweep_;
  Factors factors_;
};

void update_trained(const SgdRule& rule, double rate, const SgdItem& item) {
  const Update update(rule, rate, item, item.gradient ? Gradient::kPresent : Gradient::kZero);
  const auto* gradient = static_cast<const float*>(item.gradient);
  parallel_for(item.count, kGrain,
               [&](int64_t begin, int64_t end) { update(begin, end, gradient ? gradient + begin : nullptr); });
}

// On the CPU pages that are given back read as zero and come again when they are used, so that a run which only
// evaluates has no velocities in memory.
void make_zero(Tensor& velocity) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(velocity.raw()), end = begin + static_cast<size_t>(velocity.bytes());
  const uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
  if (velocity.device() != Device::kCpu || first >= last ||
      madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED) != 0)
    return velocity.zero();
  std::memset(reinterpret_cast<void*>(begin), 0, first - begin);
  std::memset(reinterpret_cast<void*>(last), 0, end - last);
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

Tensor& Sgd::velocity(const Param& param, Slice elements) {
  OWT_CHECK(param.role == ParamRole::kTrained, param.name, " is an average and has no velocity");
  Velocity& v = velocities_[&param];
  if (!v.values.defined()) {
    const bool whole = elements == Slice{0, param.shape().elements()};
    v = {elements, Tensor(whole ? param.shape() : Shape{elements.size()}, DType::kF32, param.value.device())};
    make_zero(v.values);
  }
  OWT_CHECK(v.elements == elements, param.name, ": there is a velocity of elements ", v.elements.begin, " to ",
            v.elements.end, ", not of ", elements.begin, " to ", elements.end);
  return v.values;
}

void Sgd::keep_velocity_in(const Param& param, const Tensor& memory) {
  OWT_CHECK_EQ(memory.shape(), param.shape());
  Velocity& v = velocities_[&param];
  OWT_CHECK(!v.values.defined(), param.name, " has a velocity already");
  v = {{0, memory.elements()}, memory};
  make_zero(v.values);
}

void Sgd::update(std::span<Param* const> params, const Rate& rate, double gradient_scale, const Stream& stream) {
  std::vector<ParamPart> parts;
  for (Param* param : params)
    parts.push_back({param, {0, param->shape().elements()}, param->grad_is_zero ? Tensor() : param->grad});
  update(parts, rate, gradient_scale, stream);
}

void Sgd::update(std::span<const ParamPart> parts, const Rate& rate, double gradient_scale, const Stream& stream) {
  std::vector<SgdItem> items;
  for (const auto& [param, elements, gradient] : parts) {
    const bool average = param->role == ParamRole::kAverage;
    if (average && !gradient.defined()) continue;
    if (elements.size() > 0) items.push_back(item_for(*param, elements, gradient));
    param->grad_is_zero = true;
    ++param->version;
  }
  dispatch(stream.device(), [&](auto tag) { sgd_update(tag, rule(gradient_scale), rate, items, stream); });
}

TakeGradient Sgd::update_in_pieces(Param& param, const Rate& rate, double gradient_scale) {
  ++param.version;
  const SgdItem item = item_for(param, {0, param.shape().elements()}, {});
  return [update = Update(rule(gradient_scale), rate.value, item, Gradient::kPresent)](
             int64_t first, int64_t count, const float* gradient) { update(first, first + count, gradient); };
}

SgdItem Sgd::item_for(Param& param, Slice elements, const Tensor& gradient) {
  const bool average = param.role == ParamRole::kAverage;
  const Shape shape{elements.size()};
  SgdItem item{};
  item.weight = param.value.part(elements.begin, shape).data();
  item.velocity = average ? nullptr : velocity(param, elements).data();
  item.gradient = gradient.defined() ? gradient.raw() : nullptr;
  item.bf16_gradient = gradient.defined() && gradient.dtype() == DType::kBF16;
  item.copy16 = param.copy16.defined() ? param.copy16.part(elements.begin, shape).raw() : nullptr;
  item.count = elements.size();
  item.lr_mult = param.lr_mult;
  item.decay_mult = param.decay_mult;
  return item;
}

void sgd_update(Cpu, const SgdRule& rule, const Sgd::Rate& rate, std::span<const SgdItem> items, const Stream&) {
  for (const SgdItem& item : items) {
    OWT_CHECK(!item.bf16_gradient, "gradients on the CPU are f32");
    if (item.velocity)
      update_trained(rule, rate.value, item);
    else
      update_average(rule, item);
  }
}

}  // namespace owt
