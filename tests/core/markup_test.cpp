#include "src/core/markup.h"

#include <gtest/gtest.h>

namespace owt {
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

}  // namespace
}  // namespace owt
