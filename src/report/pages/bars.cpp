#include "src/report/pages/bars.h"

#include <algorithm>
#include <numeric>

#include "src/system/log.h"

namespace owt {
namespace {

double sum_of(const Bar& bar) {
  return std::accumulate(bar.values.begin(), bar.values.end(), 0.0,
                         [](double sum, double value) { return sum + std::max(value, 0.0); });
}

int color_of(const Bars& bars, size_t part) { return bars.colors.empty() ? static_cast<int>(part) : bars.colors[part]; }

double end_of(const Bar& bar) { return std::max(sum_of(bar), bar.most); }

std::string html_bar(const Bars& bars, const Bar& bar, double longest) {
  std::string html =
      format("<div class=\"bar\"><span class=\"label\">{}</span><span class=\"track\">", escaped(bar.name));
  for (size_t part = 0; part < bar.values.size(); ++part)
    if (bar.values[part] > 0)
      html += format("<i class=\"b{}\" style=\"width:{:.2f}%\" title=\"{}: {} {}\"></i>", color_of(bars, part),
                     100 * bar.values[part] / longest, escaped(bars.parts[part]), short_number(bar.values[part]),
                     escaped(bars.unit));
  const std::string most = aligned_number(bar.most, longest);
  if (bar.most > 0)
    html += format("<b style=\"left:{:.2f}%\" title=\"{}: {} {}\"></b>", 100 * bar.most / longest, escaped(bar.most_is),
                   most, escaped(bars.unit));
  html +=
      format("</span><span class=\"value\">{} {}", escaped(aligned_number(sum_of(bar), longest)), escaped(bars.unit));
  if (bar.most > 0) html += format("<small>{}: {}</small>", escaped(bar.most_is), escaped(most));
  return html + "</span></div>\n";
}

std::string about_bars(const Bars& bars) {
  const auto longest = std::max_element(bars.bars.begin(), bars.bars.end(),
                                        [](const Bar& a, const Bar& b) { return sum_of(a) < sum_of(b); });
  return format("{} bars; the longest is {} with {} {}.", bars.bars.size(), longest->name,
                short_number(sum_of(*longest)), bars.unit);
}

}  // namespace

Figure figure_of(const Bars& bars) {
  if (bars.bars.empty()) return {bars.title, "", "There is nothing to draw."};
  double longest = 0;
  for (const Bar& bar : bars.bars) longest = std::max(longest, end_of(bar));
  const bool ranges = std::any_of(bars.bars.begin(), bars.bars.end(), [](const Bar& bar) { return bar.most > 0; });
  Figure figure{bars.title, "", about_bars(bars)};
  figure.wide = true;
  figure.about_shown = false;
  figure.numbers.head = {""};
  for (const std::string& part : bars.parts) figure.numbers.head.push_back(part + ", " + bars.unit);
  if (ranges) figure.numbers.head.insert(figure.numbers.head.end(), {"most, " + bars.unit, "of"});
  std::vector<Key> keys;
  for (size_t part = 0; part < bars.parts.size(); ++part) keys.push_back({bars.parts[part], color_of(bars, part)});
  figure.picture =
      format("<div class=\"bars{}\" {}>\n", ranges ? " ranges" : "", picture_label(bars.title + ". " + figure.about));
  for (const Bar& bar : bars.bars) {
    figure.picture += html_bar(bars, bar, longest > 0 ? longest : 1);
    figure.numbers.rows.push_back({bar.name});
    for (const double value : bar.values) figure.numbers.rows.back().push_back(short_number(value));
    if (ranges)
      figure.numbers.rows.back().insert(figure.numbers.rows.back().end(), {short_number(bar.most), bar.most_is});
  }
  figure.picture += "</div>\n";
  if (keys.size() > 1) figure.legend = legend_of(keys);
  return figure;
}

}  // namespace owt
