// Reads numbers from the bytes of an image file.
#pragma once

#include <cstdint>
#include <string_view>

#include "data/photos/photo.h"

namespace owt {

// Reading beyond the end throws BadPhoto: "truncated BMP".
class Bytes {
 public:
  Bytes(std::string_view bytes, const char* format) : bytes_(bytes), format_(format) {}

  std::string_view part(uint64_t offset, uint64_t count) const {
    if (offset > bytes_.size() || count > bytes_.size() - offset) throw BadPhoto(concat("truncated ", format_));
    return bytes_.substr(offset, count);
  }
  uint32_t little(uint64_t offset, int bytes) const {
    const std::string_view digits = part(offset, bytes);
    uint32_t value = 0;
    for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit) value = value << 8 | uint8_t(*digit);
    return value;
  }
  uint32_t big(uint64_t offset, int bytes) const {
    uint32_t value = 0;
    for (const char digit : part(offset, bytes)) value = value << 8 | uint8_t(digit);
    return value;
  }
  [[noreturn]] void damaged(const char* why) const { throw BadPhoto(concat("damaged ", format_, ": ", why)); }

 private:
  std::string_view bytes_;
  const char* format_;
};

}  // namespace owt
