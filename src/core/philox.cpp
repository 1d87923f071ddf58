#include "src/core/philox.h"

#include <cmath>
#include <numbers>

namespace owt {

std::array<float, 4> Philox::normals(uint64_t index) const {
  const auto four = block(index);
  std::array<float, 4> values;
  for (size_t pair = 0; pair < 4; pair += 2) {
    const double radius = std::sqrt(-2.0 * std::log((four[pair] + 1.0) * 0x1p-32));
    const double angle = 2.0 * std::numbers::pi * four[pair + 1] * 0x1p-32;
    values[pair] = static_cast<float>(radius * std::cos(angle));
    values[pair + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return values;
}

}  // namespace owt
