#include "src/report/net_marks.h"

#include "src/system/log.h"
#include "src/system/markup.h"

namespace owt::drawing {

std::string with_unit(int64_t number) {
  const auto count = static_cast<double>(number);
  if (count < 1e3) return format("{:.0f}", count);
  if (count < 1e6) return format("{:.1f} K", count / 1e3);
  return count < 1e9 ? format("{:.2f} M", count / 1e6) : format("{:.2f} G", count / 1e9);
}

std::string two_digits(double value) {
  if (value == 0) return "";
  return value < 0.005 ? "<0.01" : format("{:.{}f}", value, value < 100 ? 2 : 1);
}

std::string bytes_in_mb(int64_t bytes) { return two_digits(static_cast<double>(bytes) / 1e6); }

std::string written(double x, double y, const std::string& text, const char* look, Anchor anchor) {
  static constexpr const char* kAnchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
  return text.empty() ? ""
                      : format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\"{}>{}</text>\n", x, y, look,
                               kAnchors[static_cast<int>(anchor)], escaped(text));
}

std::string rounded(const Area& area, double height, const char* look, double radius) {
  return format(
      "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
      "rx=\"{:.0f}\"/>\n",
      look, area.x, area.y, area.width, height, radius);
}

std::string path(const std::string& way) { return "<path class=\"edge\" d=\"" + way + "\"/>\n"; }

std::string arrow(double x, double from, double to) {
  return path(format("M{0:.1f} {1:.1f}V{2:.1f}", x, from, to - 4)) +
         format("<path class=\"head\" d=\"M{0:.1f} {1:.1f}l-4 -7h8z\"/>\n", x, to);
}

}  // namespace owt::drawing
