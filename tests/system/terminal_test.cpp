#include "src/system/terminal.h"

#include <gtest/gtest.h>

namespace owt::terminal_test {
namespace {

TEST(Folded, BreaksAtTheLastBlankThatFits) {
  EXPECT_EQ(folded("one two three", 13), "one two three");
  EXPECT_EQ(folded("one two three", 12), "one two\n  three");
  EXPECT_EQ(folded("one two three", 7), "one two\n  three");
  EXPECT_EQ(folded("one two three", 6), "one\n  two\n  three");
}

TEST(Folded, KeepsWordsWhole) {
  EXPECT_EQ(folded("a-long-word and another-long-word", 6), "a-long-word\n  and\n  another-long-word");
}

TEST(Folded, CountsCharactersAndNotTheirBytes) {
  EXPECT_EQ(folded("ää öö üü", 8), "ää öö üü");
  EXPECT_EQ(folded("abcd äää ö", 7), "abcd\n  äää ö");
}

TEST(Folded, ContinuesALine) { EXPECT_EQ(folded("one two three", 10, 3, 3), "one two\n   three"); }

}  // namespace
}  // namespace owt::terminal_test
