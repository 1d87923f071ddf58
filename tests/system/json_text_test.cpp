#include "src/system/json_text.h"

#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"

namespace owt::json_text_test {
namespace {

TEST(JsonDepth, IsThatOfTheDeepestListOrObject) {
  EXPECT_EQ(json_depth("7"), 0);
  EXPECT_EQ(json_depth("{}"), 1);
  EXPECT_EQ(json_depth(R"([[1, 2], [], {"a": [3]}])"), 3);
  EXPECT_EQ(json_depth(nested(1000)), 1000);
}

TEST(JsonDepth, CountsNothingThatStandsInStrings) { EXPECT_EQ(json_depth(R"(["[[[", "\"[[[", "\\", ["[\\\""]])"), 2); }

}  // namespace
}  // namespace owt::json_text_test
