#include "src/report/pages/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/report/pages/bars.h"

namespace owt::chart_test {
namespace {

using ::testing::AllOf;
using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<Point> points_of(const std::vector<double>& ys) {
  std::vector<Point> points;
  for (const double y : ys) points.push_back({static_cast<double>(points.size()), y});
  return points;
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

TEST(Columns, HaveTheRangeAndTheMeanOfTheirPoints) {
  const std::vector<ChartColumn> columns = columns_of(points_of({1, 5, 3, -2, 8, 0, 0, 9}), 0, 8, 2);
  ASSERT_EQ(columns.size(), 2u);
  EXPECT_EQ(columns[0].low, -2);
  EXPECT_EQ(columns[0].high, 5);
  EXPECT_EQ(columns[0].mean, 7.0 / 4);
  EXPECT_EQ(columns[0].x, 2);
  EXPECT_EQ(columns[1].low, 0);
  EXPECT_EQ(columns[1].high, 9);
  EXPECT_EQ(columns[1].points, 4);
}

TEST(Columns, LeaveOutWhatIsNoNumberAndWhatLiesOutside) {
  std::vector<Point> points = points_of({1, NAN, INFINITY, 3});
  points.push_back({100, 7});
  points.push_back({NAN, 7});
  const std::vector<ChartColumn> columns = columns_of(points, 0, 4, 2);
  ASSERT_EQ(columns.size(), 2u);
  EXPECT_EQ(columns[0].points, 1);
  EXPECT_EQ(columns[0].mean, 1);
  EXPECT_EQ(columns[1].points, 1);
  EXPECT_EQ(columns[1].high, 3);
}

// One peak among a million points is still to be seen.
TEST(Columns, KeepEveryPeak) {
  std::vector<double> ys(1000000, 1.0);
  ys[654321] = 50, ys[123456] = -50;
  double low = 0, high = 0;
  for (const ChartColumn& column : columns_of(points_of(ys), 0, 1e6, 250))
    low = std::min(low, column.low), high = std::max(high, column.high);
  EXPECT_EQ(low, -50);
  EXPECT_EQ(high, 50);
}

TEST(Ticks, AreRoundNumbersWithinTheRange) {
  EXPECT_THAT(ticks_of(0, 10, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(ticks_of(0.13, 0.34, 4), ElementsAre(DoubleEq(0.2), DoubleEq(0.30000000000000004)));
  EXPECT_THAT(ticks_of(-1.5e6, 1.1e6, 5), ElementsAre(-1e6, 0, 1e6));
}

TEST(Ticks, OfZeroHaveNoSign) { EXPECT_FALSE(std::signbit(ticks_of(0, 10, 5).at(0))); }

TEST(Ticks, OfAnyRangeAreFew) {
  const double more = std::nextafter(1.0, 2.0);
  for (const auto& [low, high] : {std::pair(1.0, more),
                                  {0.1, 0.1 * more},
                                  {1e20, 1e20 + 1e5},
                                  {1.0, 1.0},
                                  {0.0, 0.0},
                                  {NAN, 1.0},
                                  {INFINITY, -INFINITY}})
    EXPECT_LE(ticks_of(low, high, 5).size(), 6u) << low << " to " << high;
}

// The mean of equal numbers may differ from them by a rounding error.
TEST(Charts, OfEqualValuesAreFlat) {
  const Figure figure = figure_of({"Rate", "epochs", "rate", {{"a", points_of(std::vector<double>(880, 0.1)), 0}}});
  const std::string from = figure.picture.substr(figure.picture.find("class=\"line")),
                    line = from.substr(0, from.find('>'));
  const size_t y = line.find(' ', line.find("d=\"M"));
  EXPECT_EQ(count_of(line, line.substr(y, line.find('L', y) - y)), 250u) << line;
}

TEST(Charts, NameTheirNumbersForWhoCannotSeeThem) {
  const Figure figure = figure_of({"Loss", "epochs", "loss", {{"a run", points_of({2.5, 1.5, 0.75}), 0}}});
  EXPECT_EQ(figure.about, "a run: 2.5 at first, 0.75 at epochs 2 in the end, between 0.75 and 2.5.");
  EXPECT_THAT(figure.picture, HasSubstr("aria-label=\"Loss. a run: 2.5 at first"));
  EXPECT_THAT(figure.numbers.rows, ElementsAre(ElementsAre("a run", "0", "2.5"), ElementsAre("a run", "1", "1.5"),
                                               ElementsAre("a run", "2", "0.75")));
  EXPECT_THAT(html_of(figure), HasSubstr("<details><summary>Numbers"));
}

TEST(Charts, BreakALineWhereAValueIsNone) {
  const std::string whole = figure_of({"", "", "", {{"", points_of({1, 2, 3, 4}), 0}}}).picture;
  const std::string broken = figure_of({"", "", "", {{"", points_of({1, 2, NAN, 4}), 0}}}).picture;
  const auto moves = [](const std::string& svg) {
    const size_t begin = svg.find("class=\"line");
    return count_of(svg.substr(begin, svg.find("/>", begin) - begin), "M");
  };
  EXPECT_EQ(moves(whole), 1u);
  EXPECT_EQ(moves(broken), 2u);
  EXPECT_THAT(broken, Not(HasSubstr("nan")));
}

TEST(Charts, OfManyPointsAreSmall) {
  std::vector<Point> points;
  for (int i = 0; i < 1000000; ++i) points.push_back({i * 1e-3, std::sin(i * 1e-4) + (i % 7) * 0.1});
  const Figure figure = figure_of({"", "", "", {{"sine", points, 0}}});
  EXPECT_LT(figure.picture.size(), 30000u);
  EXPECT_GT(figure.picture.size(), 5000u);
  EXPECT_EQ(count_of(figure.picture, "class=\"band"), 1u);
  EXPECT_LE(figure.numbers.rows.size(), 12u);
}

TEST(Charts, WithoutAValueSayThat) {
  for (const LineChart& chart : {LineChart{"Empty", "", "", {}}, LineChart{"Empty", "", "", {{"", {}, 0}}},
                                 LineChart{"Empty", "", "", {{"", points_of({NAN, INFINITY}), 0}}},
                                 LineChart{"Empty", "", "", {{"", points_of({0, -1}), 0}}, true}}) {
    const Figure figure = figure_of(chart);
    EXPECT_EQ(figure.picture, "");
    EXPECT_EQ(figure.about, "There is no value to draw.");
  }
}

TEST(Charts, OfOneValueHaveAxes) {
  for (const double value : {0.0, -3.0, 1e-30, 1e30}) {
    const std::string svg = figure_of({"", "", "", {{"", {{5, value}}, 0}}}).picture;
    EXPECT_THAT(svg, Not(HasSubstr("nan"))) << value;
    EXPECT_THAT(svg, Not(HasSubstr("inf"))) << value;
    EXPECT_GE(count_of(svg, "class=\"grid"), 1u) << value;
  }
}

TEST(Charts, OnALogarithmLeaveOutWhatHasNone) {
  const Figure figure = figure_of({"", "", "", {{"", points_of({1e-4, 0, -1, 1e-1}), 0}}, true});
  EXPECT_THAT(figure.about, HasSubstr("between 0.0001 and 0.1"));
  EXPECT_THAT(figure.picture, HasSubstr(">0.001</text>"));
}

TEST(Charts, OnALogarithmHaveTicksBetweenPowersOfTenWhereThoseAreFew) {
  const std::string few = figure_of({"", "", "", {{"", points_of({0.02, 0.4}), 0}}, true}).picture;
  for (const char* tick : {">0.05</text>", ">0.1</text>", ">0.2</text>"}) EXPECT_THAT(few, HasSubstr(tick));
  const std::string many = figure_of({"", "", "", {{"", points_of({1e-9, 1}), 0}}, true}).picture;
  EXPECT_LE(count_of(many, "class=\"grid"), 7u);
  EXPECT_THAT(many, Not(HasSubstr(">2e-")));
  // Short enough for a phone.
  for (const char* tick : {">1e-8</text>", ">1e-6</text>", ">0.01</text>"}) EXPECT_THAT(many, HasSubstr(tick));
}

// From 1e-4 to 1 a decade is a quarter of the width, 362, as with any number of points.
TEST(Charts, MayHaveALogarithmicXAxis) {
  const auto chart_of = [](int points) {
    LineChart chart{"", "", "", {{"", {}, 0}}};
    chart.log_x = true;
    for (int i = 0; i <= points; ++i)
      chart.lines[0].points.push_back({std::pow(10, 4.0 * i / points - 4), static_cast<double>(i)});
    return figure_of(chart).picture;
  };
  const std::string few = chart_of(4), many = chart_of(400);
  EXPECT_THAT(few, AllOf(HasSubstr("d=\"M60.0 "), HasSubstr("L150.5 "), HasSubstr("L241.0 "), HasSubstr("L331.5 "),
                         HasSubstr("L422.0 ")));
  EXPECT_THAT(few, AllOf(HasSubstr(">1e-4</text>"), HasSubstr(">0.001</text>"), HasSubstr(">0.1</text>")));
  EXPECT_EQ(count_of(many.substr(many.find("class=\"line")), "L"), 400u);
  EXPECT_THAT(many, AllOf(Not(HasSubstr("class=\"band")), HasSubstr("L331.5 ")));
}

TEST(Charts, NameTheirUnitsBesideTheirAxes) {
  const std::string svg = figure_of({"", "epochs", "images/s", {{"", points_of({1, 2}), 0}}}).picture;
  EXPECT_THAT(svg, HasSubstr(">epochs</text>"));
  EXPECT_THAT(svg, HasSubstr(">images/s</text>"));
}

TEST(Charts, ShadeTheUsualRange) {
  LineChart chart{"", "", "ratio", {{"", points_of({1e-5, 1e-1}), 0}}, true};
  EXPECT_THAT(figure_of(chart).picture, Not(HasSubstr("usual")));
  chart.usual_low = 1e-4, chart.usual_high = 1e-2;
  const std::string svg = figure_of(chart).picture;
  EXPECT_EQ(count_of(svg, "class=\"usual\""), 1u);
  // 1e-5 to 1e-1 is half of the shown range, which is 4 % wider at either end.
  double top = 0, bottom = 0;
  ASSERT_EQ(
      std::sscanf(svg.c_str() + svg.find("class=\"usual\""), "class=\"usual\" d=\"M60 %lfH422V%lfH", &top, &bottom), 2);
  EXPECT_NEAR(bottom - top, (210 - 24) / 2.0 / (1.04 * 1.04), 0.2);
}

TEST(Charts, AreNotFlatForARunThatDiverges) {
  std::vector<double> ys;
  for (int i = 0; i < 20; ++i) ys.push_back(2.5 - 0.1 * i);
  LineChart chart{"", "", "", {{"good", points_of(ys), 0}, {"bad", points_of({2.5, 1e25}), 1}}};
  const std::string svg = figure_of(chart).picture;
  EXPECT_THAT(svg, HasSubstr(">2</text>"));
  EXPECT_THAT(svg, Not(HasSubstr("e25")));
  EXPECT_THAT(figure_of(chart).about, HasSubstr("between 2.5 and 1e+25"));
  // A rate that falls by a thousand is no such thing.
  chart.lines = {{"", points_of({1, 1, 1, 1e-3, 1e-3, 1e-3, 1e-3}), 0}};
  EXPECT_THAT(figure_of(chart).picture, HasSubstr(">0.5</text>"));
}

TEST(Charts, HaveDotsWhereThereIsRoomForThem) {
  const auto dots = [](size_t points, bool wanted) {
    Line line{"", points_of(std::vector<double>(points, 1.0)), 0};
    line.dots = wanted;
    return count_of(figure_of({"", "", "", {line}}).picture, "<circle");
  };
  EXPECT_EQ(dots(60, true), 60u);
  EXPECT_EQ(dots(61, true), 0u);
  EXPECT_EQ(dots(2, false), 0u);
  EXPECT_EQ(dots(1, false), 1u);  // otherwise it would be invisible
}

TEST(Charts, OfMoreLinesThanColoursDashThem) {
  const std::string html = html_of(figure_of(
      {"", "", "", {{"a", points_of({1, 2}), 3}, {"b", points_of({1, 2}), 11}, {"c", points_of({1, 2}), 19}}}));
  for (const char* line : {"class=\"line s3\"", "class=\"line s3 k1\"", "class=\"line s3 k2\"", "<i class=\"b3\">",
                           "<i class=\"b3 k1\">", "<i class=\"b3 k2\">"})
    EXPECT_THAT(html, HasSubstr(line));
}

TEST(Charts, EscapeNamesOfRuns) {
  const std::string html = html_of(figure_of({"<b>", "", "", {{"\"<script>&", points_of({1}), 0}}}));
  EXPECT_THAT(html, Not(HasSubstr("<script>")));
  EXPECT_THAT(html, HasSubstr("&quot;&lt;script&gt;&amp;"));
  EXPECT_THAT(html, HasSubstr("<figcaption>&lt;b&gt;"));
}

TEST(Bars, ShareOneScaleAndListTheirNumbers) {
  const Figure figure = figure_of({"Times", "ms", {"forward", "backward"}, {}, {{"conv1", {1, 3}}, {"fc1", {2, 0}}}});
  EXPECT_THAT(figure.picture, HasSubstr("width:25.00%"));
  EXPECT_THAT(figure.picture, HasSubstr("width:75.00%"));
  EXPECT_THAT(figure.picture, HasSubstr("width:50.00%"));
  EXPECT_THAT(figure.picture, HasSubstr("aria-label=\"Times. 2 bars; the longest is conv1 with 4 ms.\""));
  EXPECT_THAT(figure.numbers.rows, ElementsAre(ElementsAre("conv1", "1", "3"), ElementsAre("fc1", "2", "0")));
}

TEST(Bars, MarkTheMostOfWhatTheyAreTypicalOf) {
  const Figure figure =
      figure_of({"Times", "ms", {"forward"}, {}, {{"conv1", {2}, 4, "rank 3"}, {"fc1", {1}, 1, "rank 0"}}});
  EXPECT_THAT(figure.picture, HasSubstr("width:50.00%"));
  EXPECT_THAT(figure.picture, HasSubstr("<b style=\"left:100.00%\" title=\"rank 3: 4.000 ms\">"));
  EXPECT_THAT(figure.picture, HasSubstr("2.000 ms<small>rank 3: 4.000</small>"));
  EXPECT_THAT(figure.numbers.rows,
              ElementsAre(ElementsAre("conv1", "2", "4", "rank 3"), ElementsAre("fc1", "1", "1", "rank 0")));
}

TEST(Bars, OfNothingAreNone) {
  EXPECT_EQ(figure_of(Bars{"Times", "ms", {"a"}, {}, {}}).about, "There is nothing to draw.");
  EXPECT_THAT(figure_of(Bars{"Times", "ms", {"a"}, {}, {{"rest", {-0.5}}}}).picture, Not(HasSubstr("width")));
}

}  // namespace
}  // namespace owt::chart_test
