// s^-beta for vectors s: by square roots for the beta of lrn.h that allow it, by pow for others.
#pragma once

#include <cmath>

#include "src/core/simd.h"

namespace owt {

struct PowerHalf {
  Vector operator()(Vector s) const { return 1.0f / square_root(s); }
};
struct PowerThreeQuarters {
  Vector operator()(Vector s) const {
    const Vector root = square_root(s);
    return 1.0f / (root * square_root(root));
  }
};
struct PowerOne {
  Vector operator()(Vector s) const { return 1.0f / s; }
};
struct PowerAny {
  float beta;
  Vector operator()(Vector s) const {
    for (int i = 0; i < kLanes; ++i) s[i] = std::pow(s[i], -beta);
    return s;
  }
};

// Calls function(power) with the power for this beta.
template <class Function>
auto with_power(float beta, const Function& function) {
  if (beta == 0.5f) return function(PowerHalf{});
  if (beta == 0.75f) return function(PowerThreeQuarters{});
  if (beta == 1.0f) return function(PowerOne{});
  return function(PowerAny{beta});
}

}  // namespace owt
