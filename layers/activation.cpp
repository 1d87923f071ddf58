#include "layers/activation.h"

#include <array>

#include "layers/activation_formulas.h"
#include "layers/prelu.h"
#include "src/core/dispatch.h"
#include "src/core/simd_exp.h"
#include "src/core/threads.h"
#include "src/system/check.h"

namespace owt {
namespace {

constexpr int64_t kActivationGrain = 1 << 13;  // fewest elements per thread for which a thread is worth waking

struct VectorMath {
  using Value = Vector;
  static Vector exp(Vector x) { return exponential(x); }
  static Vector expm1(Vector x) { return exponential_less_one(x); }
};

// Calls function(first, lanes) for vectors that cover each element once, so that it may overwrite them.
template <class Function>
void for_each_once(int64_t elements, const Function& function) {
  parallel_for(elements, kActivationGrain, [&](int64_t begin, int64_t end) {
    for (; begin + kLanes <= end; begin += kLanes) function(begin, AllLanes{});
    if (begin < end) function(begin, end - begin);
  });
}

template <class Formula>
class ActivationOp : public Op {
 public:
  explicit ActivationOp(Formula formula) : formula_(formula) {}

  void forward(const Pass&, const Tensor& x, Tensor& y) override {
    with_cpu_element(x.dtype(), [&](auto element) {
      using T = decltype(element);
      const T* from = x.data<T>();
      T* to = y.data<T>();
      for_each_once(x.elements(), [=, formula = formula_](int64_t i, auto lanes) {
        store(formula.value(load(from + i, lanes)), to + i, lanes);
      });
    });
  }

  void backward_data(const Pass&, const Tensor& x, const Tensor& y, const Tensor& dy, Tensor* dx) override {
    if (!dx) return;
    with_cpu_element(dy.dtype(), [&](auto element) {
      using T = decltype(element);
      const T *of = (Formula::kFromOutput ? y : x).template data<T>(), *from = dy.data<T>();
      T* to = dx->data<T>();
      for_each_once(dy.elements(), [=, formula = formula_](int64_t i, auto lanes) {
        store(formula.gradient(load(of + i, lanes), load(from + i, lanes)), to + i, lanes);
      });
    });
  }

 private:
  Formula formula_;
};

struct NamedKind {
  const char* name;
  ActivationKind kind;
};
constexpr std::array kKinds{
    NamedKind{"sigmoid", ActivationKind::kSigmoid},     NamedKind{"tanh", ActivationKind::kTanh},
    NamedKind{"gelu", ActivationKind::kGelu},           NamedKind{"silu", ActivationKind::kSilu},
    NamedKind{"leaky", ActivationKind::kLeaky},         NamedKind{"relu6", ActivationKind::kRelu6},
    NamedKind{"softplus", ActivationKind::kSoftplus},   NamedKind{"abs", ActivationKind::kAbs},
    NamedKind{"square", ActivationKind::kSquare},       NamedKind{"hard_sigmoid", ActivationKind::kHardSigmoid},
    NamedKind{"hard_swish", ActivationKind::kHardSwish}};

class Activation : public Layer {
 public:
  Activation(const LayerSpec& spec, const NamedKind& kind)
      : Layer(spec.name, "activation"), described_{kind.name}, settings_{kind.kind} {
    if (kind.kind == ActivationKind::kLeaky) {
      const double slope = spec.config.number("slope", 0.01, {.low = 0});
      settings_.slope = static_cast<float>(slope);
      described_.attributes = {{"slope", slope}};
    }
    if (kind.kind == ActivationKind::kGelu) {
      const bool by_tanh = spec.config.word("approximate", "none", {"none", "tanh"}) == "tanh";
      if (by_tanh) settings_.kind = ActivationKind::kGeluTanh;
      described_.attributes = {{"by_tanh", int64_t{by_tanh}}};
    }
    with_formula<VectorMath>(settings_, [&](auto formula) {
      reads_of_output_ = formula.kReadsOfOutput;
      if (formula.kFromOutput) in_place_ = formula.kLeavesOfInput;
      flops_ = formula.kFlops;
    });
  }

  Shape out_shape(const Shape& in) const override { return in; }
  double flops(const Shape& in) const override { return flops_ * static_cast<double>(in.elements()); }
  Columns columns() const override { return Columns::kKeeps; }
  Content reads_of_output() const override { return reads_of_output_; }
  std::optional<Content> in_place() const override { return in_place_; }
  Described describe(const Shape&) override { return described_; }
  std::unique_ptr<Op> bind(const Shape&, const Compute& on) override {
    return dispatch(on, [&](auto tag) { return bind_activation(tag, settings_); });
  }

 private:
  Described described_;
  ActivationSettings settings_;
  Content reads_of_output_ = Content::kNothing;
  std::optional<Content> in_place_;
  double flops_ = 0;  // per element
};

}  // namespace

std::unique_ptr<Layer> make_activation(const LayerSpec& spec) {
  std::vector<std::string> names{"prelu"};
  for (const NamedKind& kind : kKinds) names.emplace_back(kind.name);
  const std::string wanted = spec.config.word("kind", names);
  for (const NamedKind& kind : kKinds)
    if (wanted == kind.name) return std::make_unique<Activation>(spec, kind);
  return make_prelu(spec);
}

std::unique_ptr<Op> bind_activation(Cpu, const ActivationSettings& settings) {
  return with_formula<VectorMath>(settings, [](auto formula) -> std::unique_ptr<Op> {
    return std::make_unique<ActivationOp<decltype(formula)>>(formula);
  });
}

}  // namespace owt
