#include "src/system/texts.h"

#include <charconv>

#include "src/system/check.h"

namespace owt {

std::string packed(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += std::to_string(text.size()) + ':' + text;
  return all;
}

std::vector<std::string> unpacked(const std::string& all) {
  std::vector<std::string> texts;
  for (size_t at = 0; at < all.size();) {
    size_t bytes = 0;
    const char* const end = all.data() + all.size();
    const auto [colon, error] = std::from_chars(all.data() + at, end, bytes);
    const auto begin = static_cast<size_t>(colon - all.data()) + 1;
    if (error != std::errc() || colon == end || *colon != ':' || bytes > all.size() - begin)
      fail("a message between processes is damaged at byte ", at);
    texts.push_back(all.substr(begin, bytes));
    at = begin + bytes;
  }
  return texts;
}

}  // namespace owt
