// Which elements of a tensor a rank works on where all ranks work on one together.
#pragma once

#include <algorithm>

#include "src/core/shape.h"

namespace owt {

// Equal but for whole cache lines, in rank order, together all elements; may be empty.
inline Slice share_of(int64_t elements, int ranks, int rank) {
  constexpr int64_t kUnit = 64;  // elements
  const Slice units = split((elements + kUnit - 1) / kUnit, ranks, rank);
  return {std::min(units.begin * kUnit, elements), std::min(units.end * kUnit, elements)};
}

}  // namespace owt
