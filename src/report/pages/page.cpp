#include "src/report/pages/page.h"

#include <array>

#include "src/report/draw_net.h"
#include "src/report/draw_step.h"
#include "src/report/pages/html.h"
#include "src/system/log.h"
#include "src/system/sha256.h"
#include "src/system/version.h"

namespace owt {
namespace {

// The colours differ in lightness, so colour-blind readers can distinguish them (Okabe and Ito 2008).
constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--bg:#fff;--ink:#1d2126;--soft:#5d6670;--rule:#e3e6ea;--card:#f7f8fa;--warn:#8a4b00;--depth:1;
--c0:#0b6bcb;--c1:#d3541b;--c2:#12855f;--c3:#a8418c;--c4:#a67c00;--c5:#4b3fb0;--c6:#1f8bc0;--c7:#7c848d}
@media(prefers-color-scheme:dark){:root{--bg:#14171a;--ink:#e6e8eb;--soft:#9aa3ad;--rule:#2c3238;--card:#1b1f23;--warn:#e8b06a;--depth:.6;
--c0:#62a8ff;--c1:#ff8f5c;--c2:#45c99b;--c3:#e58acb;--c4:#e0bb4a;--c5:#a79cff;--c6:#7fd0f7;--c7:#7d858e}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.5rem 1.25rem 4rem;max-width:76rem;overflow-wrap:break-word;background:var(--bg);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
h1{font-size:1.5rem;margin:0 0 .25rem}h2{font-size:1.15rem;margin:2.5rem 0 .75rem;padding-bottom:.3rem;border-bottom:1px solid var(--rule)}
h3{font-size:1rem;margin:1.25rem 0 .25rem}p{margin:.5rem 0;max-width:60rem}
nav{display:flex;flex-wrap:wrap;gap:.25rem 1rem;margin:.5rem 0;font-size:.9rem}a{color:var(--c0)}
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,27rem),1fr));gap:1rem}
figure{margin:0 0 1rem;padding:.75rem .9rem;background:var(--card);border:1px solid var(--rule);border-radius:.5rem;min-width:0}
figcaption{font-weight:600;margin-bottom:.4rem;overflow-wrap:anywhere}
figure>svg{display:block;width:100%;height:auto}
svg text{fill:var(--soft);font-size:11.5px}.usual{fill:var(--c2);opacity:.13}
.grid{stroke:var(--rule);stroke-width:1}.axis{stroke:var(--soft);stroke-width:1}
.line{fill:none;stroke-width:1.8;stroke-linejoin:round}.line.light{stroke-width:1.1;opacity:.8}.band{opacity:.16}
.about,.missing,footer{color:var(--soft);font-size:.87rem}.missing{border-left:3px solid var(--rule);padding-left:.7rem}
details{margin:.4rem 0}summary{cursor:pointer;color:var(--soft);font-size:.87rem}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.1rem .9rem;margin:.4rem 0 0;padding:0;font-size:.85rem}
.legend i{display:inline-block;width:.75em;height:.75em;margin-right:.4em;border-radius:2px}.legend i.light{opacity:.65}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.87rem;font-variant-numeric:tabular-nums}
th,td{padding:.22rem 1.1rem .22rem 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--rule)}
th{font-weight:600;color:var(--soft)}.n{text-align:right;white-space:nowrap}td{max-width:44rem}tbody td:first-child{white-space:nowrap}
table:not([class]) td:not(.n):not(:first-child){overflow-wrap:anywhere;min-width:min(9rem,42vw)}
.warning{border-left:3px solid var(--c1);padding-left:.7rem;color:var(--warn);font-size:.9rem}.bottleneck{font-size:1.05rem;border-left:3px solid var(--c0);padding-left:.7rem}
.bar{display:grid;grid-template-columns:minmax(5rem,11rem) 1fr 6rem;gap:.6rem;align-items:center;font-size:.85rem;line-height:1.55}
.label{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}.track{display:flex;position:relative;height:.85rem;min-width:0}
.track i{display:block;min-width:1px}.track b{position:absolute;top:-.12rem;bottom:-.12rem;width:2px;margin-left:-2px;background:var(--ink)}
.value{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}.value small{color:var(--soft);display:inline-block;width:7.5rem}
.ranges .bar{grid-template-columns:minmax(5rem,11rem) 1fr 13rem}.drawing{display:block;width:100%;min-width:52rem;height:auto}
.pixels{max-width:100%;height:auto;image-rendering:pixelated;display:block}
.images{list-style:none;padding:0;margin:0;display:grid;grid-template-columns:repeat(auto-fill,minmax(7rem,1fr));gap:.75rem;font-size:.8rem;line-height:1.35}
.images img{width:100%;border-radius:.25rem}.images span{color:var(--soft)}
.confusion td{text-align:right;padding:.22rem .45rem;min-width:2.4rem}.confusion .right{background:color-mix(in srgb,var(--c2) calc(var(--share)*var(--depth)),transparent)}
.confusion .none{color:var(--soft)}.confusion .wrong{background:color-mix(in srgb,var(--c1) calc(var(--share)*var(--depth)),transparent)}
.confusion thead th{vertical-align:bottom}.confusion thead .n{writing-mode:vertical-rl;transform:rotate(180deg);text-align:left;padding:.45rem 0}
.plan td{padding-top:.1rem;padding-bottom:.1rem;border-bottom:0}.plan .move td{color:var(--soft);font-size:.8rem;padding-left:1.2rem}
.plan small{color:var(--soft)}.boundary td{border-top:2px solid var(--c1);color:var(--warn);font-size:.8rem}
.both{display:flex;flex-wrap:wrap;gap:1rem 3rem}.both>*{min-width:0;max-width:100%;flex:0 1 auto}.both .legend{max-width:30rem}
.boxes{white-space:nowrap;line-height:1}.box{position:relative;display:inline-block;width:2.6rem;height:1rem;margin-right:2px;background:var(--rule);border-radius:2px;overflow:hidden}
.box i{position:absolute;top:0;bottom:0}i.rows{background:var(--c0)}i.outputs{background:var(--c1)}i.inputs{background:var(--c3)}i.all{background:var(--c2)}
.s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}.s4{stroke:var(--c4)}.s5{stroke:var(--c5)}.s6{stroke:var(--c6)}.s7{stroke:var(--c7)}
svg .b0{fill:var(--c0)}svg .b1{fill:var(--c1)}svg .b2{fill:var(--c2)}svg .b3{fill:var(--c3)}svg .b4{fill:var(--c4)}svg .b5{fill:var(--c5)}svg .b6{fill:var(--c6)}svg .b7{fill:var(--c7)}
i.b0{background:var(--c0)}i.b1{background:var(--c1)}i.b2{background:var(--c2)}i.b3{background:var(--c3)}i.b4{background:var(--c4)}i.b5{background:var(--c5)}i.b6{background:var(--c6)}i.b7{background:var(--c7)}
.line.k1{stroke-dasharray:7 3}.line.k2{stroke-dasharray:2 3}
i.k1{mask:repeating-linear-gradient(90deg,#000 0 .3em,#0000 .3em .45em)}i.k2{mask:repeating-linear-gradient(90deg,#000 0 .12em,#0000 .12em .3em)}
@media(max-width:30rem){.confusion{font-size:.68rem}.confusion td{min-width:1.5rem;padding:.2rem .2rem}.confusion th{padding-right:.3rem}.images{grid-template-columns:repeat(auto-fill,minmax(5.5rem,1fr))}body{padding:1rem .75rem 3rem}.box{width:1.5rem}.boxes{white-space:normal;min-width:4rem}svg text{font-size:15px}
.bar,.ranges .bar{grid-template-columns:5.5rem 1fr 5.5rem;gap:.4rem}.label{white-space:normal;overflow-wrap:anywhere;line-height:1.25}.value small{display:block;width:auto}
svg.net{max-width:none!important}
.stacks,.stacks tbody{display:block}.stacks thead{display:none}.stacks tr{display:block;padding:.4rem 0;border-bottom:2px solid var(--rule)}
.stacks td{display:flex;justify-content:space-between;gap:1rem;max-width:none;padding-right:0;text-align:right}.stacks td::before{content:attr(data-head);color:var(--soft)}}
@media print{:root{color-scheme:light}.scroll{overflow:visible}.stacks{font-size:7pt}.stacks td,.stacks th{padding-right:.5rem}h2,h3,figcaption{break-after:avoid}body{max-width:none;padding:0;font-size:10pt}nav,figure summary{display:none}
details:not(figure details)::details-content{content-visibility:visible}section>details table{font-size:7pt}#settings>details{columns:2}tr{break-inside:avoid}
figure{break-inside:avoid;background:none}figure:has(.both){break-inside:auto}.both{display:block}svg.net{width:12cm}.figures{grid-template-columns:1fr 1fr}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
)";

constexpr const char* kScript = R"(
const events=new EventSource('events');
events.onmessage=async()=>{const open=[...document.querySelectorAll('details')].map(d=>d.open);
const page=new DOMParser().parseFromString(await(await fetch('./')).text(),'text/html');
document.querySelector('main').replaceWith(page.querySelector('main'));
document.querySelectorAll('details').forEach((d,i)=>d.open=open[i]);};
)";

constexpr struct {
  const char *id, *name;
} kLinks[] = {{"overview", "Overview"}, {"curves", "Curves"},   {"settings", "Settings"}, {"sizes", "Weights"},
              {"filters", "Filters"},   {"answers", "Answers"}, {"inputs", "Inputs"},     {"times", "Time"},
              {"plan", "Plan"},         {"machines", "Machine"}};

std::string title_of(Runs runs) {
  std::string title;
  for (const RunRecord& run : runs) title += (title.empty() ? "" : ", ") + run.name;
  return title;
}

std::string links() {
  std::string html = "<nav aria-label=\"Sections\">";
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
  static const std::string script = hash_of(kScript),
                           style = hash_of(kStyle) + ' ' + hash_of(kNetStyle) + ' ' + hash_of(kStepStyle);
  return format("default-src 'none';style-src {};style-src-attr 'unsafe-inline';img-src data:{}", style,
                options.live ? ";script-src " + script + ";connect-src 'self'" : "");
}

std::string page_of(Runs runs, const PageOptions& options) {
  const std::string title = escaped(title_of(runs));
  std::string page =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n";
  page += "<meta http-equiv=\"Content-Security-Policy\" content=\"" + content_policy(options) + "\">\n";
  page += "<title>" + title + "</title>\n<style>" + kStyle + "</style>\n</head>\n<body>\n";
  page += "<header><h1>" + title + "</h1>\n" + links() + "</header>\n<main>\n";
  page += overview_section(runs) + curves_section(runs) + settings_section(runs) + sizes_section(runs);
  page += filters_section(runs, options.layer) + answers_section(options.answers) + inputs_section(options.seen);
  page += times_section(runs) + plan_section(runs) + machines_section(runs);
  page += "</main>\n<footer>owt " + escaped(program_version()) + "</footer>\n";
  if (options.live) page += std::string("<script>") + kScript + "</script>\n";
  return page + "</body>\n</html>\n";
}

}  // namespace owt
