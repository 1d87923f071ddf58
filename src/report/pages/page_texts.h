// The scripts and the style of a page, which the build takes from charts.js, live.js and page.css (embed.cmake).
#pragma once

namespace owt {

extern const char* const kChartScript;
extern const char* const kLiveScript;
extern const char* const kPageStyle;

}  // namespace owt
