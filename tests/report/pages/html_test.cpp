#include "src/report/pages/html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace owt::html_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Html, TextsOfStrangersAreTexts) {
  EXPECT_THAT(html_of(HtmlTable{{"<h>"}, {{"<c>"}}}), testing::AllOf(HasSubstr("&lt;h&gt;"), HasSubstr("&lt;c&gt;")));
}

TEST(Html, NumbersAreShort) {
  EXPECT_EQ(short_number(0.0123456), "0.01235");
  EXPECT_EQ(short_number(12345.6), "12346");
  EXPECT_EQ(short_number(1.5e-7), "1.5e-07");
  EXPECT_EQ(short_number(-2), "-2");
  EXPECT_EQ(short_number(NAN), "–");
}

TEST(Html, ColumnsOfNumbersStandToTheRight) {
  const std::string html = html_of(HtmlTable{{"a", "b"}, {{"1.5e-07", "2"}, {"99.5 %", "conv1"}, {"–", "3"}}});
  EXPECT_THAT(html, HasSubstr("<th scope=\"col\" class=\"n\">a</th><th scope=\"col\">b</th>"));
  EXPECT_THAT(html, HasSubstr("<td class=\"n\">1.5e-07</td><td>2</td>"));
  EXPECT_THAT(html, HasSubstr("<td class=\"n\">99.5 %</td><td>conv1</td>"));
  EXPECT_THAT(html, HasSubstr("<td class=\"n\">–</td>"));
}

TEST(Html, NumbersAmongWordsStandAsThese) {
  EXPECT_THAT(html_of(HtmlTable{{"a"}, {{"1"}}, false, true}), HasSubstr("<td>1</td>"));
}

TEST(Html, CellsOfTablesThatStackHaveTheirHeads) {
  const HtmlTable table{{"run", "<state>"}, {{"a", "finished"}}, true};
  EXPECT_THAT(html_of(table), HasSubstr("<th scope=\"col\">run</th>"));
  EXPECT_THAT(html_of(table), HasSubstr("<td data-head=\"&lt;state&gt;\">finished</td>"));
}

TEST(Html, NumbersBelowEachOtherHaveTheSameDigits) {
  EXPECT_EQ(aligned_number(22.594, 22.594), "22.59");
  EXPECT_EQ(aligned_number(0.333, 22.594), "0.33");
  EXPECT_EQ(aligned_number(0.004, 22.594), "<0.01");
  EXPECT_EQ(aligned_number(0, 22.594), "0.00");
  EXPECT_EQ(aligned_number(0.52429, 0.52429), "0.524");
  EXPECT_EQ(aligned_number(12345.6, 12345.6), "12346");
  EXPECT_EQ(aligned_number(NAN, 1), "–");
}

TEST(Html, WhatIsOfOneOfSeveralRunsUnfolds) {
  EXPECT_EQ(of_run("a", 1, "x"), "x");
  EXPECT_EQ(of_run("<a>", 3, "x"), "<details open><summary>&lt;a&gt;</summary>\nx</details>\n");
  EXPECT_THAT(of_run("a", 4, "x"), HasSubstr("<details><summary>"));
}

// RFC 4648, section 10.
TEST(Html, BytesAreWrittenInBase64) {
  const std::pair<const char*, const char*> cases[] = {{"", ""},
                                                       {"f", "Zg=="},
                                                       {"fo", "Zm8="},
                                                       {"foo", "Zm9v"},
                                                       {"foob", "Zm9vYg=="},
                                                       {"fooba", "Zm9vYmE="},
                                                       {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : cases) EXPECT_EQ(data_uri("a/b", bytes), std::string("data:a/b;base64,") + text);
  EXPECT_EQ(data_uri("a/b", std::string("\xff\xfe\xfd")), "data:a/b;base64,//79");
}

}  // namespace
}  // namespace owt::html_test
