#include "src/report/pages/page.h"

#include <algorithm>
#include <array>

#include "src/report/draw_net.h"
#include "src/report/draw_step.h"
#include "src/report/pages/html.h"
#include "src/report/pages/page_texts.h"
#include "src/system/log.h"
#include "src/system/sha256.h"
#include "src/system/version.h"

namespace owt {
namespace {

constexpr struct {
  const char *id, *name;
} kLinks[] = {{"overview", "Overview"}, {"curves", "Curves"}, {"settings", "Settings"}, {"sizes", "Weights"},
              {"filters", "Filters"},   {"pairs", "Pairs"},   {"answers", "Answers"},   {"inputs", "Inputs"},
              {"times", "Time"},        {"plan", "Plan"},     {"machines", "Machine"}};

std::string title_of(Runs runs) {
  constexpr size_t kNamed = 4;
  if (runs.size() > kNamed) return format("{} runs", runs.size());
  std::string title;
  for (const RunRecord& run : runs) title += (title.empty() ? "" : ", ") + run.name;
  return title;
}

std::string links(const PageOptions& options) {
  std::string html = "<nav aria-label=\"Sections\">";
  if (options.in_list) html += "<a href=\"../../\">All runs</a>";
  for (const auto& [id, name] : kLinks) html += format("<a href=\"#{}\">{}</a>", id, name);
  return html + "</nav>\n";
}

// The hash that allows an inline text in a content security policy.
std::string hash_of(const char* text) {
  const std::array<uint8_t, 32> hash = sha256(text);
  return format("'sha256-{}'", base64({reinterpret_cast<const char*>(hash.data()), hash.size()}));
}

}  // namespace

// Bar widths are attributes, which cannot load anything.
std::string content_policy(const PageOptions& options) {
  static const std::string charts = hash_of(kChartScript), live = hash_of(kLiveScript),
                           style = hash_of(kPageStyle) + ' ' + hash_of(kNetStyle) + ' ' + hash_of(kStepStyle);
  return format("default-src 'none';style-src {};style-src-attr 'unsafe-inline';img-src data:;script-src {}{}", style,
                charts, options.live ? " " + live + ";connect-src 'self'" : "");
}

namespace {

// above: between the title and the content that a live page replaces.
std::string page_with(const std::string& title_text, const PageOptions& options, const std::string& above,
                      const std::string& content) {
  const std::string title = escaped(title_text);
  std::string page =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n";
  page += "<meta http-equiv=\"Content-Security-Policy\" content=\"" + content_policy(options) + "\">\n";
  page += "<title>" + title + "</title>\n<style>" + kPageStyle + "</style>\n</head>\n<body>\n";
  page += "<header><h1>" + title + "</h1></header>\n" + above + "<main>\n" + content;
  page += "</main>\n<footer>owt " + escaped(program_version()) + "</footer>\n";
  page += std::string("<script>") + kChartScript + "</script>\n";
  if (options.live) page += std::string("<script>") + kLiveScript + "</script>\n";
  return page + "</body>\n</html>\n";
}

}  // namespace

std::string page_of(Runs runs, const PageOptions& options) {
  std::string content = overview_section(runs) + curves_section(runs) + settings_section(runs) + sizes_section(runs);
  content += filters_section(runs, options.layer) + pairs_section(runs) + answers_section(options.answers) +
             inputs_section(options.seen);
  content += times_section(runs) + plan_section(runs) + machines_section(runs);
  return page_with(title_of(runs), options, links(options), content);
}

std::string list_page_of(Runs runs, const std::string& folder) {
  const std::string links =
      "<nav aria-label=\"Sections\"><a href=\"#overview\">Runs</a><a href=\"#curves\">Curves</a></nav>\n";
  return page_with(folder, {.live = true}, links, runs_section(runs) + curves_section(runs));
}

std::string name_in_url(const std::string& name) {
  std::string url;
  for (const char c : name) {
    const bool plain = ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || ('0' <= c && c <= '9') ||
                       std::string_view("-._~=,+@").find(c) != std::string_view::npos;
    url += plain ? std::string(1, c) : format("%{:02X}", static_cast<unsigned char>(c));
  }
  return url;
}

}  // namespace owt
