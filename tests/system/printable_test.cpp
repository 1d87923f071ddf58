#include "src/system/printable.h"

#include <gtest/gtest.h>

namespace owt::printable_test {
namespace {

TEST(Printable, LeavesTextOfAllLanguagesAsItIs) {
  for (const char* text :
       {"", "conv1.weight of 'fc'", "H\xC3\xBChner", "\xE2\x82\xAC 5", "\xE7\x8A\xAC", "\xF0\x9F\x90\x95"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, ShowsControlCharactersInPlaceOfSendingThem) {
  EXPECT_EQ(printable("a\x1b[2Jb"), "a\\x1b[2Jb");
  EXPECT_EQ(printable("two\r\nlines\tand\x7f"), "two\\x0d\\x0alines\\x09and\\x7f");
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(printable("\xC2\x9B"
                      "31m"),
            "\\xc2\\x9b31m");  // ESC [ as one character
  EXPECT_EQ(printable("\xC2\xA0"), "\xC2\xA0");
}

TEST(Printable, ShowsBytesThatAreNoUtf8) {
  EXPECT_EQ(printable("run \xff\xfe"), "run \\xff\\xfe");
  EXPECT_EQ(printable("\xE2\x82"), "\\xe2\\x82");
  EXPECT_EQ(printable("\xC3("), "\\xc3(");
  EXPECT_EQ(printable("\x9b"), "\\x9b");
  EXPECT_EQ(printable("\xC0\x9b"), "\\xc0\\x9b");
  EXPECT_EQ(printable("\xE0\x82\x9b"), "\\xe0\\x82\\x9b");  // U+009B in an overlong encoding
  EXPECT_EQ(printable("\xF0\x80\x82\x9b"), "\\xf0\\x80\\x82\\x9b");
  EXPECT_EQ(printable("\xED\xA0\x80"), "\\xed\\xa0\\x80");  // half of a pair of UTF-16
  EXPECT_EQ(printable("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  for (const char* at_the_limits :
       {"\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"})
    EXPECT_EQ(printable(at_the_limits), at_the_limits);
}

}  // namespace
}  // namespace owt::printable_test
