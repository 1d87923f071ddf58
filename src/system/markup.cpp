#include "src/system/markup.h"

#include "src/system/printable.h"
#include "src/system/utf8.h"

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
  size_t end = 0, count = 0;  // end: of the kept part, if the text does not fit
  for (size_t i = 0; i < text.size(); ++i) {
    if (begins_character(text[i]) && ++count == characters) end = i;
    if (count > characters) return text.substr(0, end) + "…";
  }
  return text;
}

std::string shortened_in_front(const std::string& name, size_t characters) {
  if (shortened(name, characters) == name) return name;
  size_t begin = name.size();
  for (size_t kept = 1; kept < characters; ++kept)
    for (--begin; !begins_character(name[begin]);) --begin;
  return "…" + name.substr(begin);
}

}  // namespace owt
