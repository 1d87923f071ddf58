// The elements that each rank processes if all ranks work on one tensor.
#pragma once

#include <algorithm>

#include "src/core/shape.h"

namespace owt {

// Shares of equal size up to whole cache lines, in rank order; together they cover all elements. A share may be empty.
inline Slice share_of(int64_t elements, int ranks, int rank) {
  constexpr int64_t kUnit = 64;  // elements
  const Slice units = split((elements + kUnit - 1) / kUnit, ranks, rank);
  return {std::min(units.begin * kUnit, elements), std::min(units.end * kUnit, elements)};
}

}  // namespace owt
