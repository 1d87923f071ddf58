#include "src/system/printable.h"

#include <algorithm>
#include <cstdio>

namespace owt {
namespace {

// Bytes of the text's first character; 0 if it is a control character or not UTF-8.
size_t visible_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return first >= ' ' && first != 0x7f ? 1 : 0;
  if (first < 0xc2 || first > 0xf4) return 0;
  // The range of the second byte excludes control characters (U+0080 to U+009F), overlong encodings, UTF-16 surrogates,
  // and code points beyond U+10FFFF.
  const unsigned least = first == 0xc2 || first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < least || byte(1) > most) return 0;
  const size_t count = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  for (size_t i = 1; i < count; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  return count;
}

std::string escaped(char c) {
  char text[5];
  std::snprintf(text, sizeof text, "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string all;
  while (!text.empty()) {
    const size_t bytes = visible_bytes(text);
    all += bytes > 0 ? std::string(text.substr(0, bytes)) : escaped(text.front());
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return all;
}

}  // namespace owt
