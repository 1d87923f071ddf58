#include "src/core/philox.h"

#include <cmath>
#include <numbers>

namespace owt {

float Philox::normal(uint64_t element) const {
  const auto four = block(element / 4);
  const size_t pair = element % 4 / 2 * 2;
  const double radius = std::sqrt(-2.0 * std::log((four[pair] + 1.0) * 0x1p-32));
  const double angle = 2.0 * std::numbers::pi * four[pair + 1] * 0x1p-32;
  return static_cast<float>(radius * (element % 2 == 0 ? std::cos(angle) : std::sin(angle)));
}

}  // namespace owt
