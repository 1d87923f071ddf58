#include "src/parallel/optimizer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "src/core/bf16.h"
#include "src/core/blas.h"
#include "src/core/dispatch.h"
#include "src/core/poison.h"
#include "src/core/threads.h"
#include "src/parallel/update_rules.h"
#include "src/plan/plan_bytes.h"
#include "src/system/check.h"

namespace owt {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements per thread that justify waking it
constexpr int64_t kBlock = 1 << 12;  // elements

enum class Gradient { kPresent, kZero };

// Limited by memory bandwidth: one pass over every array, with branches outside of the loop.
template <Gradient present, class Rule>
void sweep(const Rule rule, int64_t count, const float* __restrict grad, float* __restrict first,
           float* __restrict second, float* __restrict weight) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    float a = first[i], b = 0;
    if constexpr (Rule::kStates > 1) b = second[i];
    weight[i] = rule(weight[i], present == Gradient::kPresent ? grad[i] : 0.0f, a, b);
    first[i] = a;
    if constexpr (Rule::kStates > 1) second[i] = b;
  }
}

// Calls function(i, count, gradient of these elements in f32) for the elements [begin, end); f64 are rounded.
template <class Function>
void each_gradient(const UpdateItem& item, int64_t begin, int64_t end, const Function& function) {
  if (item.gradient_type == DType::kF32 || !item.gradient)
    return function(begin, end - begin, item.gradient ? static_cast<const float*>(item.gradient) + begin : nullptr);
  float rounded[kBlock];
  const auto* const sums = static_cast<const double*>(item.gradient);
  for (int64_t i = begin; i < end; i += kBlock) {
    const int64_t count = std::min(kBlock, end - i);
    std::copy_n(sums + i, count, rounded);
    function(i, count, static_cast<const float*>(rounded));
  }
}

void update_average(const UpdateRule& rule, const UpdateItem& item) {
  const auto rate = static_cast<float>(item.lr_mult), scale = static_cast<float>(rule.gradient_scale);
  each_gradient(item, 0, item.count, [&](int64_t first, int64_t count, const float* gradient) {
    float* const weight = item.weight + first;
    for (int64_t i = 0; i < count; ++i) weight[i] += rate * (scale * gradient[i] - weight[i]);
  });
  if (item.copy16) std::copy_n(item.weight, item.count, static_cast<Bf16*>(item.copy16));
}

// The update of a trained parameter, element by element.
template <class Rule>
class Update {
 public:
  Update(const UpdateRule& rule, const StepRates& now, const UpdateItem& item, Gradient present)
      : item_(item),
        rule_(rule, RuleTerms(rule, item, now)),
        sweep_(present == Gradient::kPresent ? sweep<Gradient::kPresent, Rule> : sweep<Gradient::kZero, Rule>) {}

  // Updates the elements [begin, end), in blocks that stay in the cache until their copy is written. gradient: begins
  // with element `begin`; may be null.
  void operator()(int64_t begin, int64_t end, const float* gradient) const {
    for (int64_t i = begin; i < end; i += kBlock) {
      const int64_t count = std::min(kBlock, end - i);
      sweep_(rule_, count, gradient ? gradient + (i - begin) : nullptr, item_.states[0] + i,
             Rule::kStates > 1 ? item_.states[1] + i : nullptr, item_.weight + i);
      if (item_.copy16) std::copy_n(item_.weight + i, count, static_cast<Bf16*>(item_.copy16) + i);
    }
  }

 private:
  UpdateItem item_;
  Rule rule_;
  decltype(&sweep<Gradient::kPresent, Rule>) sweep_;
};

void update_trained(const UpdateRule& rule, const StepRates& now, const UpdateItem& item) {
  with_rule(rule.settings, [&](auto tag) {
    const Update<typename decltype(tag)::Rule> update(rule, now, item,
                                                      item.gradient ? Gradient::kPresent : Gradient::kZero);
    parallel_for(item.count, kGrain, [&](int64_t begin, int64_t end) {
      each_gradient(item, begin, end, [&](int64_t first, int64_t count, const float* gradient) {
        update(first, first + count, gradient);
      });
    });
  });
}

void update_rows(const UpdateRule& rule, const StepRates& now, const RowsItem& of) {
  const auto* gradient = static_cast<const float*>(of.item.gradient);
  const int64_t width = of.row_elements;
  with_rule(rule.settings, [&](auto tag) {
    const Update<typename decltype(tag)::Rule> update(rule, now, of.item, Gradient::kPresent);
    parallel_for(of.item.count / width, std::max<int64_t>(1, kGrain / width), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end && of.rows[i] != kNoRow; ++i)
        update(of.rows[i] * width, (of.rows[i] + 1) * width, gradient + i * width);
    });
  });
}

// On the CPU, released pages read as zero and are allocated again when used, so an evaluation has no states in memory.
void make_zero(Tensor& state) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(state.raw()), end = begin + static_cast<size_t>(state.bytes());
  const uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
  if (state.device() != Device::kCpu || first >= last ||
      madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED) != 0)
    return state.zero();
  std::memset(reinterpret_cast<void*>(begin), 0, first - begin);
  std::memset(reinterpret_cast<void*>(last), 0, end - last);
}

using Type = OptimizerSettings::Type;

const std::vector<std::string> kTypes = {"sgd",  "adamw",    "rmsprop", "adagrad", "rmsprop_warmup",
                                         "lars", "proximal", "muon"};

double read_share(Config& config, const std::string& key, double otherwise, const char* why_below_1) {
  const double share = config.number(key, otherwise, {.low = 0, .high = 1});
  if (share == 1) config.error(key, concat("'", key, "' is 1, wanted less: ", why_below_1));
  return share;
}

double read_momentum(Config& config, double otherwise) {
  return read_share(config, "momentum", otherwise, "the velocity would never fade");
}

double read_average(Config& config, const std::string& key, double otherwise) {
  return read_share(config, key, otherwise, "the average would stay what it was");
}

double read_positive(Config& config, const std::string& key, double otherwise) {
  return config.number(key, otherwise, {.low = std::numeric_limits<double>::min()});
}

const std::vector<std::string> kAdjustments = {"none", "original", "match_rms_adamw"};

OptimizerSettings::AdjustLr adjustment_from(const std::string& word) {
  return static_cast<OptimizerSettings::AdjustLr>(std::find(kAdjustments.begin(), kAdjustments.end(), word) -
                                                  kAdjustments.begin());
}

void read_others(Config others, OptimizerSettings& s) {
  s.others_rate = read_positive(others, "learning_rate", s.learning_rate);
  s.others_momentum = read_momentum(others, s.others_momentum);
  s.others_nesterov = others.boolean("nesterov", s.others_nesterov);
  s.others_decay = others.number("decay", s.others_decay, {.low = 0});
  others.given("layers");  // read with the model (src/recipe/settings_from.cpp)
  others.finish("the others of optimizer type 'muon'");
}

void read_rule(Config& config, OptimizerSettings& s) {
  switch (s.type) {
    case Type::kSgd:
      s.momentum = read_momentum(config, s.momentum);
      s.nesterov = config.boolean("nesterov", s.nesterov);
      s.momentum_correction = config.boolean("momentum_correction", s.momentum_correction);
      return;
    case Type::kAdamW:
      s.beta1 = read_average(config, "beta1", s.beta1);
      s.beta2 = read_average(config, "beta2", s.beta2);
      break;
    case Type::kRmsprop:
      s.alpha = read_average(config, "alpha", s.alpha);
      s.momentum = read_momentum(config, 0);
      break;
    case Type::kAdagrad:
      break;
    case Type::kLars:
      s.momentum = read_momentum(config, s.momentum);
      s.nesterov = config.boolean("nesterov", s.nesterov);
      s.trust = read_positive(config, "trust", s.trust);
      s.adapt_all = config.boolean("adapt_all", s.adapt_all);
      s.eps = read_positive(config, "eps", 1e-9);
      return;
    case Type::kRmspropWarmup:
      s.alpha = read_average(config, "alpha", s.alpha);
      s.momentum = read_momentum(config, s.momentum);
      s.rmsprop_rate = read_positive(config, "rmsprop_rate", s.rmsprop_rate);
      s.center = config.number("center", s.center, {.low = 0});
      s.period = read_positive(config, "period", s.period);
      break;
    case Type::kProximal:
      s.l1 = config.number("l1", s.l1, {.low = 0});
      s.trust_region = read_positive(config, "trust_region", s.trust_region);
      return;
    case Type::kMuon:
      s.momentum = read_momentum(config, 0.95);
      s.nesterov = config.boolean("nesterov", true);
      s.ns_steps = static_cast<int>(config.integer("ns_steps", s.ns_steps, {.low = 1, .high = 99}));
      s.unit_weights = config.boolean("unit_weights", s.unit_weights);
      s.adjust_lr = adjustment_from(config.word("adjust_lr", "original", kAdjustments));
      read_others(config.table("others"), s);
      return;
  }
  s.eps = read_positive(config, "eps", s.type == Type::kAdagrad ? 1e-10 : s.eps);
}

// Defaults as in PyTorch, except sgd (Krizhevsky) and rmsprop_warmup (Goyal et al. 2017).
double usual_decay(Type type) {
  switch (type) {
    case Type::kSgd:
    case Type::kLars:
      return OptimizerSettings().decay;
    case Type::kAdamW:
      return 0.01;
    case Type::kMuon:
      return 0.1;
    case Type::kRmspropWarmup:
      return 1e-4;
    default:
      return 0;
  }
}

}  // namespace

OptimizerSettings OptimizerSettings::from(Config& config) {
  OptimizerSettings s;
  const std::string type = config.word("type", kTypes.front(), kTypes);
  s.type = static_cast<Type>(std::find(kTypes.begin(), kTypes.end(), type) - kTypes.begin());
  s.learning_rate = config.number("learning_rate", {.low = std::numeric_limits<double>::min()});
  read_rule(config, s);
  s.decay = config.number("decay", usual_decay(s.type), {.low = 0});
  s.clip = config.number("clip", s.clip, {.low = 0});
  config.finish("optimizer type '" + type + "'");
  return s;
}

std::vector<std::string> OptimizerSettings::states() const {
  switch (type) {
    case Type::kAdamW:
      return {".exp_avg", ".exp_avg_sq"};
    case Type::kRmsprop:
      return momentum > 0 ? std::vector<std::string>{".square_avg", ".momentum_buffer"}
                          : std::vector<std::string>{".square_avg"};
    case Type::kAdagrad:
      return {".sum"};
    case Type::kRmspropWarmup:
      return {".momentum_buffer", ".square_avg"};
    case Type::kProximal:
      return {".trust_region"};
    case Type::kMuon:
      return {".momentum_buffer"};
    case Type::kLars:
    case Type::kSgd:
      break;
  }
  return {momentum_correction ? ".momentum_buffer" : ""};
}

double OptimizerSettings::penalty(const Param& param) const {
  return param.role == ParamRole::kTrained && !param.is_bias() ? l1 * param.decay_mult : 0;
}

std::string OptimizerSettings::name() const {
  const std::string& rule = kTypes[static_cast<size_t>(type)];
  if (type == Type::kSgd && momentum_correction) return rule + " with momentum_correction";
  return type == Type::kRmsprop && momentum > 0 ? rule + " with momentum" : rule;
}

OptimizerSettings OptimizerSettings::by_element() const {
  if (type != Type::kMuon) return *this;
  return {.learning_rate = others_rate,
          .momentum = others_momentum,
          .decay = others_decay,
          .nesterov = others_nesterov,
          .momentum_correction = true,
          .clip = clip};
}

double OptimizerSettings::adjustment(int64_t rows, int64_t columns) const {
  const auto high = static_cast<double>(rows), wide = static_cast<double>(columns);
  if (adjust_lr == AdjustLr::kOriginal) return std::sqrt(std::max(1.0, high / wide));
  return adjust_lr == AdjustLr::kMatchRmsAdamW ? 0.2 * std::sqrt(std::max(high, wide)) : 1;
}

NormSettings OptimizerSettings::norms() const {
  return {.clip = clip, .trust = trust, .eps = eps, .decay = decay, .adapt_all = adapt_all};
}

double OptimizerSettings::sgd_share(double epoch) const {
  if (type != Type::kRmspropWarmup) return 1;
  const double from_center = (epoch - center) / period;
  return from_center < 0 ? std::exp(2 * from_center) / 2 : std::min(1.0, 0.5 + from_center);
}

std::vector<Tensor>& Optimizer::states(const Param& param, Slice elements) {
  OWT_CHECK(param.role == ParamRole::kTrained, param.name, " is an average and has no state");
  Kept& kept = states_[&param];
  if (kept.tensors.empty()) {
    const bool whole = elements == Slice{0, param.shape().elements()};
    kept.elements = elements;
    for (size_t i = 0; i < settings_.states().size(); ++i)
      make_zero(
          kept.tensors.emplace_back(whole ? param.shape() : Shape{elements.size()}, DType::kF32, param.value.device()));
  }
  OWT_CHECK(kept.elements == elements, param.name, ": there is a state of elements ", kept.elements.begin, " to ",
            kept.elements.end, ", not of ", elements.begin, " to ", elements.end);
  return kept.tensors;
}

void Optimizer::keep_states_in(const Param& param, const std::vector<Tensor>& memory) {
  OWT_CHECK_EQ(memory.size(), settings_.states().size());
  Kept& kept = states_[&param];
  OWT_CHECK(kept.tensors.empty(), param.name, " has its states already");
  kept = {{0, param.shape().elements()}, memory};
  for (Tensor& state : kept.tensors) {
    OWT_CHECK_EQ(state.shape(), param.shape());
    make_zero(state);
  }
}

UpdateRule Optimizer::rule(const Rates& rates, double gradient_scale) const {
  return {settings_.by_element(),    gradient_scale, norms_ ? norms_->factors() : nullptr, std::log(settings_.beta1),
          std::log(settings_.beta2), rates.earlier};
}

void Optimizer::update(std::span<Param* const> params, const Rates& rates, double gradient_scale,
                       const Stream& stream) {
  std::vector<ParamPart> parts;
  for (Param* param : params)
    parts.push_back({param, {0, param->shape().elements()}, param->grad_is_zero ? Tensor() : param->grad});
  // The gradient of the other rows is not zero: they take no part.
  std::erase_if(parts,
                [](const ParamPart& part) { return part.param->most_grad_rows > 0 && part.param->grad_is_zero; });
  update(parts, rates, gradient_scale, stream);
}

void Optimizer::update(std::span<const ParamPart> parts, const Rates& rates, double gradient_scale,
                       const Stream& stream) {
  UpdateItems items;
  std::vector<Tensor> used;  // no longer read after the update
  for (const auto& [param, elements, gradient, value] : parts) {
    const bool average = param->role == ParamRole::kAverage;
    if (average && !gradient.defined()) continue;
    const UpdateItem item = elements.size() > 0 ? item_for(*param, elements, gradient, value) : UpdateItem{};
    if (param->is_matrix) {
      update_matrix(*param, item, elements, rates, gradient_scale, stream);
      used.push_back(gradient);
    } else if (param->factors) {
      const auto& [dy, x] = *param->factors;
      items.products.push_back({item, dy.raw(), x.raw(), static_cast<int>(dy.shape().rows()),
                                static_cast<int>(param->part.size()), static_cast<int>(param->shape().row_elements())});
      used.push_back(dy);
    } else if (elements.size() > 0) {
      if (param->most_grad_rows > 0)
        items.of_rows.push_back({item, param->grad_rows.data<int32_t>(), param->shape().row_elements()});
      else
        items.stored.push_back(item);
      used.push_back(gradient);
    }
    if (value.defined()) continue;
    param->factors.reset();
    param->grad_is_zero = true;
    ++param->version;
  }
  dispatch(stream.device(), [&](auto tag) { update_items(tag, rule(rates, gradient_scale), rates, items, stream); });
  for (const Tensor& each : used) poison(each, stream);
}

TakeGradient Optimizer::update_in_pieces(Param& param, const Rates& rates, double gradient_scale) {
  ++param.version;
  const UpdateItem item = item_for(param, {0, param.shape().elements()}, {});
  const UpdateRule of = rule(rates, gradient_scale);
  return with_rule(of.settings, [&](auto tag) -> TakeGradient {
    using Rule = typename decltype(tag)::Rule;
    return [update = Update<Rule>(of, rates.of_step, item, Gradient::kPresent)](
               int64_t first, int64_t count, const float* gradient) { update(first, first + count, gradient); };
  });
}

UpdateItem Optimizer::item_for(Param& param, Slice elements, const Tensor& gradient, const Tensor& value) {
  const Shape shape{elements.size()};
  UpdateItem item{};
  Tensor weights = value.defined() ? value : param.value.part(elements.begin, shape);
  item.weight = weights.data();
  item.average = param.role == ParamRole::kAverage;
  if (!item.average) {
    std::vector<Tensor>& kept = states(param, elements);
    for (size_t i = 0; i < kept.size(); ++i) item.states[i] = kept[i].data();
  }
  item.gradient = gradient.defined() ? gradient.raw() : nullptr;
  item.gradient_type = gradient.defined() ? gradient.dtype() : DType::kF32;
  item.copy16 = param.copy16.defined() && !value.defined() ? param.copy16.part(elements.begin, shape).raw() : nullptr;
  item.count = param.most_grad_rows > 0 ? gradient.elements() : elements.size();
  item.lr_mult = param.lr_mult;
  if (settings_.type == Type::kMuon && !param.is_matrix && !item.average)
    item.lr_mult *= settings_.others_rate / settings_.learning_rate;  // the rate of a step is muon's
  item.decay_mult = param.decay_mult;
  item.bias = param.is_bias();
  item.factor = norms_ && !item.average ? norms_->rate_factor(param) : 0;
  return item;
}

void Optimizer::reserve_matrices(int64_t elements, Device device) {
  matrices_.values = Tensor({elements}, DType::kF32, device);
  if (device == Device::kCuda) matrices_.partials = Tensor({kMatrixSums}, DType::kF64, device);
}

void Optimizer::update_matrix(const Param& param, const UpdateItem& item, const Slice& elements, const Rates& rates,
                              double gradient_scale, const Stream& stream) {
  MatrixItem matrix{item, &param, elements, param.full_shape.rows(), param.full_shape.row_elements()};
  if (gather_ && gather_->gathers(param)) matrix.gather = gather_;
  if (elements.size() == 0 && !matrix.gather) return;
  OWT_CHECK(matrices_.values.defined() && matrices_.values.elements() >= matrix_elements(matrix.rows, matrix.columns));
  UpdateRule of = rule(rates, gradient_scale);
  of.settings = settings_;
  dispatch(stream.device(), [&](auto tag) { owt::update_matrix(tag, of, rates, matrix, matrices_, stream); });
}

// Ranks with a part of the matrix gather the others' parts; all compute the same.
void update_matrix(Cpu, const UpdateRule& rule, const Optimizer::Rates& rates, const MatrixItem& matrix,
                   MatrixMemory& memory, const Stream& stream) {
  const UpdateItem& item = matrix.item;
  const Param& param = *matrix.param;
  MatrixGather* const gather = matrix.gather;
  const int64_t rows = matrix.rows, columns = matrix.columns, count = matrix.elements.size();
  const OptimizerSettings& settings = rule.settings;
  float *const whole = memory.values.data(), *const mine = gather ? gather->mine() : whole;
  const RuleTerms terms(rule, item, rates.of_step);
  const auto scale = static_cast<float>(terms.scale), momentum = static_cast<float>(settings.momentum);
  const auto* const gradient = static_cast<const float*>(item.gradient);
  float* const velocity = item.states[0];
  const bool nesterov = settings.nesterov;
  parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float g = gradient ? scale * gradient[i] : 0.0f;
      velocity[i] = momentum * velocity[i] + g;
      mine[i] = nesterov ? g + momentum * velocity[i] : velocity[i];
    }
  });
  double squares = settings.unit_weights ? sum_of_squares(item.weight, count) : 0;
  if (gather) squares = gather->run(param, squares, whole, stream);
  orthogonalise(rows, columns, settings.ns_steps, whole, whole + rows * columns);

  const double unit = squares > 0 ? std::sqrt(static_cast<double>(rows) / squares) : 1;
  const auto kept = static_cast<float>(unit * (1 - terms.lr * terms.decay));
  const auto rate = static_cast<float>(terms.lr * settings.adjustment(rows, columns));
  // The part is some of the elements in order, or some columns of all rows.
  const Slice part = param.columns.value_or(Slice{0, columns});
  const int64_t before = param.part.begin * columns + matrix.elements.begin;
  parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t place = param.columns ? i / part.size() * columns + part.begin + i % part.size() : before + i;
      item.weight[i] = kept * item.weight[i] - rate * whole[place];
    }
    if (item.copy16) std::copy_n(item.weight + begin, end - begin, static_cast<Bf16*>(item.copy16) + begin);
  });
}

void update_items(Cpu, const UpdateRule& rule, const Optimizer::Rates& rates, const UpdateItems& items, const Stream&) {
  OWT_CHECK(items.products.empty(), "the CPU updates while it computes a gradient");
  for (const UpdateItem& item : items.stored) {
    OWT_CHECK(item.gradient_type != DType::kBF16, "gradients on the CPU are f32 or f64");
    if (item.average)
      update_average(rule, item);
    else
      update_trained(rule, rates.of_step, item);
  }
  for (const RowsItem& item : items.of_rows) update_rows(rule, rates.of_step, item);
}

}  // namespace owt
