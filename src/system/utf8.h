// Characters of UTF-8.
#pragma once

namespace owt {

// Whether a character of UTF-8 begins with this byte.
inline bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }

}  // namespace owt
