#include "src/core/markup.h"

#include "src/core/printable.h"

namespace owt {

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : printable(text)) {
    switch (c) {
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '&':
        safe += "&amp;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::string shortened(const std::string& text, size_t characters) {
  const auto begins = [&](size_t i) { return (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80; };
  size_t end = 0, count = 0;  // of the text that stays, where it does not fit
  for (size_t i = 0; i < text.size(); ++i) {
    if (begins(i) && ++count == characters) end = i;
    if (count > characters) return text.substr(0, end) + "…";
  }
  return text;
}

}  // namespace owt
