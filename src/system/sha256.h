// SHA-256 (FIPS 180-4), where a standard requires it. For small texts: it is not fast.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace owt {

std::array<uint8_t, 32> sha256(std::string_view text);

}  // namespace owt
