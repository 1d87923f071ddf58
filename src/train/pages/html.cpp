#include "src/train/pages/html.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "src/core/log.h"

namespace owt {
namespace {

bool looks_like_number(const std::string& cell) {
  return !cell.empty() && (cell == "–" || cell.find_first_not_of("0123456789.eE+-% ×") == std::string::npos);
}

std::string row_of(const std::vector<std::string>& cells, const char* tag) {
  std::string row = "<tr>";
  for (const std::string& cell : cells)
    row += format("<{0}{1}>{2}</{0}>", tag, looks_like_number(cell) ? " class=\"n\"" : "", escaped(cell));
  return row + "</tr>\n";
}

}  // namespace

std::string short_number(double value) {
  if (!std::isfinite(value)) return "–";
  const double size = std::abs(value);
  if (size >= 1000 && size < 1e9) return format("{:.0f}", value);
  return format("{:.4g}", value);
}

std::string mega_bytes(double bytes) { return short_number(bytes / 1e6); }

std::string html_of(const HtmlTable& table) {
  std::string text = "<div class=\"scroll\"><table>\n<thead>" + row_of(table.head, "th") + "</thead>\n<tbody>\n";
  for (const auto& row : table.rows) text += row_of(row, "td");
  return text + "</tbody></table></div>\n";
}

std::string picture_label(const std::string& about) { return format("role=\"img\" aria-label=\"{}\"", escaped(about)); }

std::string html_of(const Figure& figure) {
  std::string text =
      format("<figure{}>\n<figcaption>{}</figcaption>\n", figure.wide ? " class=\"wide\"" : "", escaped(figure.title));
  text += figure.picture + figure.legend;
  if (figure.about_shown || figure.picture.empty()) text += "<p class=\"about\">" + escaped(figure.about) + "</p>\n";
  if (!figure.numbers.rows.empty())
    text += "<details><summary>Numbers</summary>\n" + html_of(figure.numbers) + "</details>\n";
  return text + "</figure>\n";
}

std::string legend_of(const std::vector<Key>& keys) {
  std::string text = "<ul class=\"legend\">";
  for (const Key& key : keys)
    text += format("<li><i class=\"b{}{}\"></i>{}</li>", key.color, key.light ? " light" : "", escaped(key.text));
  return text + "</ul>\n";
}

std::string section(const std::string& id, const std::string& title, const std::string& content) {
  return format("<section id=\"{0}\" aria-labelledby=\"{0}-title\">\n<h2 id=\"{0}-title\">{1}</h2>\n{2}</section>\n",
                id, escaped(title), content);
}

std::string figures(const std::string& content) { return "<div class=\"figures\">\n" + content + "</div>\n"; }

std::string paragraph(const std::string& text) { return "<p>" + escaped(text) + "</p>\n"; }

std::string missing(const std::string& text) { return "<p class=\"missing\">" + escaped(text) + "</p>\n"; }

// RFC 4648, section 4.
std::string data_uri(const char* type, std::string_view bytes) {
  static constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text = format("data:{};base64,", type);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t b = 0; b < 3; ++b) group = group << 8 | (b < count ? static_cast<uint8_t>(bytes[i + b]) : 0);
    for (size_t digit = 0; digit < 4; ++digit) text += digit <= count ? kDigits[group >> (18 - 6 * digit) & 63] : '=';
  }
  return text;
}

}  // namespace owt
