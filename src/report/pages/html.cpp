#include "src/report/pages/html.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "src/system/log.h"

namespace owt {
namespace {

bool looks_like_number(const std::string& cell) {
  return cell == "–" || (cell.find_first_of("0123456789") != std::string::npos &&
                         cell.find_first_not_of("0123456789.:eE+-% ×<s") == std::string::npos);
}

// For each column, whether it has only numbers.
std::vector<bool> columns_of_numbers(const HtmlTable& table) {
  std::vector<bool> all(table.head.size(), !table.rows.empty() && !table.words);
  for (const auto& row : table.rows)
    for (size_t i = 0; i < std::min(row.size(), all.size()); ++i) all[i] = all[i] && looks_like_number(row[i]);
  return all;
}

std::string row_of(const HtmlTable& table, const std::vector<std::string>& cells, const char* tag,
                   const std::vector<bool>& numbers) {
  std::string row = "<tr>";
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string head = table.stacks && &cells != &table.head ? table.head[i] : "";
    row += format("<{0}{1}{2}{3}>{4}</{5}>", tag, &cells == &table.head ? " scope=\"col\"" : "",
                  i < numbers.size() && numbers[i] ? " class=\"n\"" : "",
                  head.empty() ? "" : " data-head=\"" + escaped(head) + "\"", escaped(cells[i]), tag);
  }
  return row + "</tr>\n";
}

}  // namespace

std::string short_number(double value) {
  if (!std::isfinite(value)) return "–";
  const double size = std::abs(value);
  if (size >= 1000 && size < 1e9) return format("{:.0f}", value);
  return format("{:.4g}", value);
}

std::string aligned_number(double value, double largest) {
  if (!std::isfinite(value)) return "–";
  const int digits = largest > 0 ? std::clamp(3 - static_cast<int>(std::floor(std::log10(largest))), 0, 3) : 0;
  const double least = std::pow(10, -digits);
  return value > 0 && value < least / 2 ? format("<{:.{}f}", least, digits) : format("{:.{}f}", value, digits);
}

std::string html_of(const HtmlTable& table) {
  const std::vector<bool> numbers = columns_of_numbers(table);
  std::string text = format("<div class=\"scroll\"><table{}>\n<thead>{}</thead>\n<tbody>\n",
                            table.stacks ? " class=\"stacks\"" : "", row_of(table, table.head, "th", numbers));
  for (const auto& row : table.rows) text += row_of(table, row, "td", numbers);
  return text + "</tbody></table></div>\n";
}

std::string picture_label(const std::string& about) { return format("role=\"img\" aria-label=\"{}\"", escaped(about)); }

std::string html_of(const Figure& figure) {
  std::string text = format("<figure{}>\n<figcaption>{}{}</figcaption>\n", figure.wide ? " class=\"wide\"" : "",
                            escaped(figure.title), figure.tools);
  text += figure.picture + figure.legend;
  if (figure.about_shown || figure.picture.empty()) text += "<p class=\"about\">" + escaped(figure.about) + "</p>\n";
  if (!figure.numbers.rows.empty())
    text += "<details><summary>Numbers</summary>\n" + html_of(figure.numbers) + "</details>\n";
  return text + "</figure>\n";
}

std::string legend_of(const std::vector<Key>& keys) {
  std::string text = "<ul class=\"legend\">";
  for (const Key& key : keys)
    text += format("<li><i class=\"{}{}\"></i>{}</li>", class_of(key.color, 'b'), key.light ? " light" : "",
                   escaped(key.text));
  return text + "</ul>\n";
}

std::string section(const std::string& id, const std::string& title, const std::string& content) {
  return format("<section id=\"{0}\" aria-labelledby=\"{0}-title\">\n<h2 id=\"{0}-title\">{1}</h2>\n{2}</section>\n",
                id, escaped(title), content);
}

std::string class_of(int color, char of) {
  const int round = color / kColors % 3;
  return format("{}{}{}", of, color % kColors, round > 0 ? format(" k{}", round) : "");
}

std::string of_run(const std::string& name, size_t runs, const std::string& content) {
  constexpr size_t kFewRuns = 3;
  if (runs == 1) return content;
  return format("<details{}><summary>{}</summary>\n{}</details>\n", runs <= kFewRuns ? " open" : "", escaped(name),
                content);
}

std::string figures(const std::string& content) { return "<div class=\"figures\">\n" + content + "</div>\n"; }

std::string paragraph(const std::string& text) { return "<p>" + escaped(text) + "</p>\n"; }

std::string missing(const std::string& text) { return "<p class=\"missing\">" + escaped(text) + "</p>\n"; }

std::string warning(const std::string& text) { return "<p class=\"warning\">" + escaped(text) + "</p>\n"; }

// RFC 4648, section 4.
std::string base64(std::string_view bytes) {
  static constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t b = 0; b < 3; ++b) group = group << 8 | (b < count ? static_cast<uint8_t>(bytes[i + b]) : 0);
    for (size_t digit = 0; digit < 4; ++digit) text += digit <= count ? kDigits[group >> (18 - 6 * digit) & 63] : '=';
  }
  return text;
}

std::string data_uri(const char* type, std::string_view bytes) {
  return format("data:{};base64,", type) + base64(bytes);
}

}  // namespace owt
