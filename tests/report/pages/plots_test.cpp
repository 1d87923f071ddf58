#include "src/report/pages/plots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "src/report/draw_step.h"
#include "src/report/pages/page_texts.h"
#include "src/system/check.h"

namespace owt::plots_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

std::vector<double> up_to(size_t count, double factor = 1) {
  std::vector<double> values(count);
  std::iota(values.begin(), values.end(), 0.0);
  for (double& value : values) value *= factor;
  return values;
}

Plots plots_of(const std::string& name, const std::vector<double>& values, const std::vector<double>& hours) {
  Plots plots{"key", {{up_to(values.size(), 10), up_to(values.size(), 0.5), hours}}, {}};
  plots.plots.push_back({"Loss", "loss", {{.name = name, .kind = kTrainingKind, .light = true, .values = values}}});
  return plots;
}

// What the script reads.
Json data_in(const std::string& html) {
  const std::string begin = "<script type=\"application/json\">";
  const size_t at = html.find(begin) + begin.size();
  return Json::parse(html.substr(at, html.find("</script>", at) - at));
}

size_t count_in(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(what, at)) != text.npos; at += what.size()) ++count;
  return count;
}

TEST(Plots, HaveTheirPointsOnEveryAxis) {
  const std::string html = html_of(plots_of("a", {3, NAN, 1}, {0, 0.5, 1}));
  const Json data = data_in(html);
  EXPECT_EQ(data["axes"], Json({{"epochs", "epochs"}, {"steps", "steps"}, {"time", "minutes"}}));
  EXPECT_EQ(data["x"], Json::parse(R"([{"epochs":[0,0.5,1],"steps":[0,10,20],"time":[0,30,60]}])"));
  const Json line = data["plots"][0]["lines"][0];
  EXPECT_EQ(line["y"], Json::parse("[3,null,1]"));
  EXPECT_EQ(line["name"], "a");
  EXPECT_EQ(line["kind"], "training");
  for (const char* axis : {"epochs", "steps", "time"})
    EXPECT_THAT(html, HasSubstr("name=\"axis\" value=\"" + std::string(axis) + "\""));
}

TEST(Plots, HavePicturesWithoutTheScript) {
  const std::string html = html_of(plots_of("a", {3, 2, 1}, {0, 0.5, 1}));
  EXPECT_THAT(html,
              AllOf(HasSubstr("Loss over epochs"), HasSubstr("Loss over time"), HasSubstr("<td>a, training</td>")));
  EXPECT_EQ(count_in(html, "<path class=\"line s0 light\""), 2u);
}

TEST(Plots, WithoutTimesHaveNoAxisOfTime) {
  const std::string html = html_of(plots_of("a", {3, 2}, {NAN, NAN}));
  EXPECT_FALSE(data_in(html)["axes"].contains("time"));
  EXPECT_THAT(html, AllOf(Not(HasSubstr("over time")), Not(HasSubstr("value=\"time\""))));
}

TEST(Plots, WithoutPointsAreLeftOut) {
  Plots plots = plots_of("a", {NAN, NAN}, {0, 1});
  EXPECT_EQ(html_of(plots), "");
  plots.plots.push_back({"Top-1", "%", {{.name = "a", .values = {1, 2}}}});
  const Json data = data_in(html_of(plots));
  ASSERT_EQ(data["plots"].size(), 1u);
  EXPECT_EQ(data["plots"][0]["lines"][0]["y"], Json::parse("[1,2]"));
}

TEST(Plots, GiveTheMeansOfLongLines) {
  const Json data = data_in(html_of(plots_of("a", up_to(4 * kMostPoints), up_to(4 * kMostPoints))));
  const Json steps = data["x"][0]["steps"], y = data["plots"][0]["lines"][0]["y"];
  ASSERT_EQ(steps.size(), kMostPoints);
  ASSERT_EQ(y.size(), kMostPoints);
  EXPECT_EQ(y[0], 1.5);     // the mean of 0, 1, 2 and 3
  EXPECT_EQ(steps[0], 30);  // the last of them
}

TEST(Plots, PlacesOfMarksTakeNoPointsFromOtherLines) {
  Plots plots = plots_of("a", up_to(kMostPoints), up_to(kMostPoints));
  plots.places.resize(100, {{1, 2}, {1, 2}, {1, 2}, true});
  EXPECT_EQ(data_in(html_of(plots))["plots"][0]["lines"][0]["y"].size(), kMostPoints);
}

TEST(Plots, EscapeNamesInMarkupAndInTheirPoints) {
  const std::string name = "</script><img src=x onerror=\"alert(1)\">'&\\\n";
  Plots plots = plots_of(name, {3, 2}, {0, 1});
  plots.plots[0].lines[0].kind = name;
  plots.key = name;
  const std::string html = html_of(plots);
  EXPECT_EQ(count_in(html, "</script>"), 1u);
  EXPECT_THAT(html, Not(HasSubstr("<img")));
  EXPECT_THAT(html, HasSubstr("&lt;/script&gt;&lt;img src=x onerror=&quot;alert(1)&quot;&gt;'&amp;\\\\x0a"));
  // The script finds a line by its checkbox's value.
  EXPECT_EQ(data_in(html)["plots"][0]["lines"][0]["name"], "</script><img src=x onerror=\"alert(1)\">'&\\\\x0a");
}

TEST(Plots, OfManyRunsShowEvaluationsFirstAndHaveAFilter) {
  const auto html_of_runs = [](size_t count) {
    Plots plots{"key", {{{1, 2}, {1, 2}, {1, 2}}}, {{"Loss", "loss", {}}}};
    for (size_t i = 0; i < count; ++i) {
      const std::string name = "r" + std::to_string(i);
      plots.plots[0].lines.push_back({.name = name, .kind = kTrainingKind, .light = true, .values = {1, 2}});
      plots.plots[0].lines.push_back({.name = name, .kind = "test", .dots = true, .values = {1, 2}});
    }
    return html_of(plots);
  };
  const std::string training = "value=\"training\" id=\"key-kind-training\"", hidden = "<label hidden>Filter";
  EXPECT_THAT(html_of_runs(3), AllOf(HasSubstr(training + " checked"), HasSubstr(hidden)));
  const std::string many = html_of_runs(30);
  EXPECT_THAT(many, AllOf(HasSubstr(training + ">"), Not(HasSubstr(hidden)), HasSubstr("chart many")));
  EXPECT_EQ(count_in(many, "name=\"name\""), 30u);
}

TEST(Scripts, AreSmallAndLoadNothing) {
  const std::string charts = kChartScript, live = kLiveScript;
  EXPECT_LE(charts.size(), 8192u);
  EXPECT_THAT(charts, Not(HasSubstr("\n//")));
  EXPECT_THAT(charts, Not(HasSubstr("</script")));
  for (const char* way : {"fetch(", "EventSource", "XMLHttpRequest", "WebSocket", "import", "http:", "https:", "eval("})
    EXPECT_THAT(charts, Not(HasSubstr(way)));
  EXPECT_THAT(live, AllOf(HasSubstr("new EventSource('events')"), HasSubstr("fetch('./')"), Not(HasSubstr("http"))));
}

TEST(Styles, GiveAThingOneColour) {
  const std::string page = kPageStyle, step = kStepStyle;
  for (int color = 0; color < 8; ++color) {
    size_t at = 0;
    for (const char* mode : {"light", "dark"}) {
      const std::string name = concat("--c", color, ":#");
      at = page.find(name, at) + name.size();
      EXPECT_THAT(step, HasSubstr(concat(".c", color, "{fill:#", page.substr(at, 6), "}"))) << mode;
    }
  }
}

}  // namespace
}  // namespace owt::plots_test
