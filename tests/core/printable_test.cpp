#include "src/core/printable.h"

#include <gtest/gtest.h>

namespace owt {
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
            "\\xc2\\x9b31m");  // what ESC [ is in one character
  EXPECT_EQ(printable("\xC2\xA0"), "\xC2\xA0");
}

TEST(Printable, ShowsBytesThatAreNoUtf8) {
  EXPECT_EQ(printable("run \xff\xfe"), "run \\xff\\xfe");
  EXPECT_EQ(printable("\xE2\x82"), "\\xe2\\x82");
  EXPECT_EQ(printable("\xC3("), "\\xc3(");
  EXPECT_EQ(printable("\x9b"), "\\x9b");
}

}  // namespace
}  // namespace owt
