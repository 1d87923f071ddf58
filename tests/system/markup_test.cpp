#include "src/system/markup.h"

#include <gtest/gtest.h>

namespace owt::markup_test {
namespace {

TEST(Markup, TextsOfStrangersAreTexts) {
  EXPECT_EQ(escaped("<a href=\"x\">&</a>"), "&lt;a href=&quot;x&quot;&gt;&amp;&lt;/a&gt;");
  EXPECT_EQ(escaped("a\x1b[2J"), "a\\x1b[2J");
}

TEST(Markup, TextsAreShortenedBetweenCharacters) {
  EXPECT_EQ(shortened("conv_layer", 6), "conv_…");
  EXPECT_EQ(shortened("conv_layer", 10), "conv_layer");
  EXPECT_EQ(shortened("schräg", 6), "schräg");
  EXPECT_EQ(shortened("schräg", 5), "schr…");
  EXPECT_EQ(shortened("äöü", 2), "ä…");
  EXPECT_EQ(shortened("ab", 1), "…");
  EXPECT_EQ(shortened("", 3), "");
}

TEST(Markup, NamesKeepTheirEnds) {
  EXPECT_EQ(shortened_in_front("branch2.0.conv", 7), "…0.conv");
  EXPECT_EQ(shortened_in_front("conv", 4), "conv");
  EXPECT_EQ(shortened_in_front("äöü", 2), "…ü");
  EXPECT_EQ(shortened_in_front("ab", 1), "…");
}

}  // namespace
}  // namespace owt::markup_test
