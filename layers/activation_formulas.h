// The formulas of activation.h for CPUs and kernels. `Math` has a type Value (a float or a vector of floats) and the
// static functions Value exp(Value) and Value expm1(Value).
#pragma once

#include "layers/activation.h"
#include "src/core/on_devices.h"
#include "src/system/check.h"

namespace owt {

// Selects lane by lane if the arguments are vectors.
template <class Mask, class Value>
OWT_ON_DEVICES Value choose(Mask mask, Value yes, Value no) {
  return mask ? yes : no;
}

// Base of formulas whose `gradient` takes x.
struct FromInput {
  static constexpr bool kFromOutput = false;
  static constexpr Content kReadsOfOutput = Content::kNothing, kLeavesOfInput = Content::kNothing;
};

// Base of formulas whose `gradient` takes y and reads kReads of it. kLeaves: what in-place forward preserves of x
// (Layer::in_place()).
template <Content kReads, Content kLeaves>
struct FromOutput {
  static constexpr bool kFromOutput = true;
  static constexpr Content kReadsOfOutput = kReads, kLeavesOfInput = kLeaves;
};

// Each formula derives from FromInput or FromOutput, and has
//   kFlops                              operations for an element in forward; an exponential counts as one
//   Value value(Value x)
//   Value gradient(Value of, Value dy)  dx
template <class Math>
struct Formulas {
  using Value = typename Math::Value;

  OWT_ON_DEVICES static Value sigmoid(Value x) { return 1.0f / (1.0f + Math::exp(-x)); }
  OWT_ON_DEVICES static Value magnitude(Value x) { return choose(x < 0.0f, -x, x); }

  // A polynomial near 0, where the other formula would lose digits (Cephes' tanhf, Moshier).
  OWT_ON_DEVICES static Value tanh(Value x) {
    const Value square = x * x;
    Value sum = square * -5.70498872745e-3f + 2.06390887954e-2f;
    sum = sum * square - 5.37397155531e-2f;
    sum = sum * square + 1.33314422036e-1f;
    sum = sum * square - 3.33332819422e-1f;
    const Value near = sum * square * x + x, far = 1.0f - 2.0f / (Math::exp(magnitude(x) * 2.0f) + 1.0f);
    return choose(magnitude(x) < 0.625f, near, choose(x < 0.0f, -far, far));
  }

  struct Sigmoid : FromOutput<Content::kValues, Content::kNothing> {
    static constexpr double kFlops = 3;
    OWT_ON_DEVICES Value value(Value x) const { return sigmoid(x); }
    OWT_ON_DEVICES Value gradient(Value y, Value dy) const { return y * (1.0f - y) * dy; }
  };

  struct Tanh : FromOutput<Content::kValues, Content::kSigns> {
    static constexpr double kFlops = 4;
    OWT_ON_DEVICES Value value(Value x) const { return tanh(x); }
    OWT_ON_DEVICES Value gradient(Value y, Value dy) const { return (1.0f - y * y) * dy; }
  };

  // The normal distribution's P(x) by formula 7.1.26 of Abramowitz and Stegun for erfc, with an error of at most
  // 1.5e-7.
  struct Gelu : FromInput {
    static constexpr double kFlops = 16;
    struct Normal {
      Value below, bell;  // P(x), and exp(-x^2 / 2)
    };
    OWT_ON_DEVICES static Normal normal(Value x) {
      const Value bell = Math::exp(x * x * -0.5f), t = 1.0f / (magnitude(x) * 0.23164188f + 1.0f);
      Value sum = t * 1.061405429f - 1.453152027f;
      sum = sum * t + 1.421413741f;
      sum = sum * t - 0.284496736f;
      sum = sum * t + 0.254829592f;
      const Value tail = sum * t * bell * 0.5f;
      return {choose(x < 0.0f, tail, 1.0f - tail), bell};
    }
    OWT_ON_DEVICES Value value(Value x) const { return x * normal(x).below; }
    OWT_ON_DEVICES Value gradient(Value x, Value dy) const {
      const Normal at = normal(x);
      return (x * at.bell * 0.39894228f + at.below) * dy;
    }
  };

  struct GeluTanh : FromInput {
    static constexpr double kFlops = 8;
    static constexpr float kFactor = 1.59576912f, kCubic = 0.044715f;  // 2 * sqrt(2 / pi)
    OWT_ON_DEVICES static Value gate(Value x) { return sigmoid((x * x * kCubic + 1.0f) * x * kFactor); }
    OWT_ON_DEVICES Value value(Value x) const { return x * gate(x); }
    OWT_ON_DEVICES Value gradient(Value x, Value dy) const {
      const Value open = gate(x);
      return ((x * x * (3 * kCubic) + 1.0f) * kFactor * x * open * (1.0f - open) + open) * dy;
    }
  };

  struct Silu : FromInput {
    static constexpr double kFlops = 4;
    OWT_ON_DEVICES Value value(Value x) const { return x * sigmoid(x); }
    OWT_ON_DEVICES Value gradient(Value x, Value dy) const {
      const Value open = sigmoid(x);
      return ((1.0f - open) * x * open + open) * dy;
    }
  };

  struct Leaky : FromOutput<Content::kSigns, Content::kSigns> {
    static constexpr double kFlops = 1;
    float factor;
    OWT_ON_DEVICES Value value(Value x) const { return choose(x > 0.0f, x, x * factor); }
    OWT_ON_DEVICES Value gradient(Value y, Value dy) const { return choose(y > 0.0f, dy, dy * factor); }
  };

  // NaN stays NaN.
  struct Relu6 : FromOutput<Content::kValues, Content::kValues> {
    static constexpr double kFlops = 0;
    OWT_ON_DEVICES Value value(Value x) const { return choose(x < 0.0f, Value{}, choose(x > 6.0f, Value{} + 6.0f, x)); }
    OWT_ON_DEVICES Value gradient(Value y, Value dy) const {
      return choose(y > 0.0f, choose(y < 6.0f, dy, Value{}), Value{});
    }
  };

  // log(1 + e) = 2 * artanh(s) with s = e / (2 + e), which is at most 1/3.
  struct Softplus : FromOutput<Content::kValues, Content::kNothing> {
    static constexpr double kFlops = 20;
    OWT_ON_DEVICES Value value(Value x) const {
      const Value e = Math::exp(-magnitude(x)), s = e / (e + 2.0f), square = s * s;
      Value sum = square * (2.0f / 13) + 2.0f / 11;
      sum = sum * square + 2.0f / 9;
      sum = sum * square + 2.0f / 7;
      sum = sum * square + 2.0f / 5;
      sum = sum * square + 2.0f / 3;
      sum = sum * square + 2.0f;
      return sum * s + choose(x < 0.0f, Value{}, x);
    }
    OWT_ON_DEVICES Value gradient(Value y, Value dy) const { return -Math::expm1(-y) * dy; }
  };

  struct Abs : FromInput {
    static constexpr double kFlops = 0;
    OWT_ON_DEVICES Value value(Value x) const { return magnitude(x); }
    OWT_ON_DEVICES Value gradient(Value x, Value dy) const {
      return choose(x > 0.0f, dy, choose(x < 0.0f, -dy, Value{}));
    }
  };

  struct Square : FromInput {
    static constexpr double kFlops = 1;
    OWT_ON_DEVICES Value value(Value x) const { return x * x; }
    OWT_ON_DEVICES Value gradient(Value x, Value dy) const { return x * 2.0f * dy; }
  };

  // NaN stays NaN.
  OWT_ON_DEVICES static Value hard_gate(Value x) {
    const Value gate = (x + 3.0f) * (1.0f / 6);
    return choose(x <= -3.0f, Value{}, choose(x >= 3.0f, Value{} + 1.0f, gate));
  }

  struct HardSigmoid : FromOutput<Content::kValues, Content::kNothing> {
    static constexpr double kFlops = 2;
    OWT_ON_DEVICES Value value(Value x) const { return hard_gate(x); }
    OWT_ON_DEVICES Value gradient(Value y, Value dy) const {
      return choose(y > 0.0f, choose(y < 1.0f, dy * (1.0f / 6), Value{}), Value{});
    }
  };

  struct HardSwish : FromInput {
    static constexpr double kFlops = 3;
    OWT_ON_DEVICES Value value(Value x) const { return x * hard_gate(x); }
    OWT_ON_DEVICES Value gradient(Value x, Value dy) const {
      const Value between = (x * (1.0f / 3) + 0.5f) * dy;
      return choose(x <= -3.0f, Value{}, choose(x >= 3.0f, dy, between));
    }
  };
};

// Calls function(formula) with the formula of the settings.
template <class Math, class Function>
auto with_formula(const ActivationSettings& settings, const Function& function) {
  using F = Formulas<Math>;
  switch (settings.kind) {
    case ActivationKind::kSigmoid:
      return function(typename F::Sigmoid{});
    case ActivationKind::kTanh:
      return function(typename F::Tanh{});
    case ActivationKind::kGelu:
      return function(typename F::Gelu{});
    case ActivationKind::kGeluTanh:
      return function(typename F::GeluTanh{});
    case ActivationKind::kSilu:
      return function(typename F::Silu{});
    case ActivationKind::kLeaky:
      return function(typename F::Leaky{{}, settings.slope});
    case ActivationKind::kRelu6:
      return function(typename F::Relu6{});
    case ActivationKind::kSoftplus:
      return function(typename F::Softplus{});
    case ActivationKind::kAbs:
      return function(typename F::Abs{});
    case ActivationKind::kSquare:
      return function(typename F::Square{});
    case ActivationKind::kHardSigmoid:
      return function(typename F::HardSigmoid{});
    case ActivationKind::kHardSwish:
      return function(typename F::HardSwish{});
  }
  fail("there is no such activation");
}

}  // namespace owt
