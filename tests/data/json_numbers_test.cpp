#include "data/json_numbers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/system/check.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_folder.h"

namespace owt::json_numbers_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class JsonNumbersTest : public testing::Test {
 protected:
  JsonNumbers read(const std::string& text) const {
    write_bytes(folder_.file("set.json"), text);
    return JsonNumbers(folder_.file("set.json"));
  }
  TempFolder folder_;
};

TEST_F(JsonNumbersTest, CountsAreWholeNumbersThatAreNotNegative) {
  const JsonNumbers found = read(R"({"images": 12, "none": 0, "most": 1000000000000000})");
  EXPECT_EQ(found.count("images"), 12);
  EXPECT_EQ(found.count("none"), 0);
  EXPECT_EQ(found.count("most"), 1'000'000'000'000'000);
  for (const char* wrong : {"-1", "1.5", "2e15", "[1, 2]", "[]", "\"12\"", "null", "true"})
    EXPECT_THAT(message_of([&] { read(std::string("{\"images\": ") + wrong + "}").count("images"); }),
                AllOf(HasSubstr("set.json"), HasSubstr("no count under 'images'")))
        << wrong;
  EXPECT_THROW(found.count("shards"), Error);
}

TEST_F(JsonNumbersTest, NumbersAreThoseOfAListOrOfItsLists) {
  const JsonNumbers found = read(R"({"mean": [1, 2.5, -3], "covariance": [[1, 2], [3, 4]]})");
  EXPECT_THAT(found.numbers("mean", 3), ElementsAre(1, 2.5, -3));
  EXPECT_THAT(found.numbers("covariance", 4), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(message_of([&] { found.numbers("mean", 2); }), HasSubstr("3 numbers under 'mean', wanted 2"));
  EXPECT_THROW(found.numbers("mean", 4), Error);
  EXPECT_THROW(found.numbers("std", 3), Error);
}

TEST_F(JsonNumbersTest, AnotherFileIsNamed) {
  for (const char* text : {"", "[1]", "12", "{\"images\": 1", "\xff"})
    EXPECT_THAT(message_of([&] { read(text); }), HasSubstr("set.json")) << text;
  EXPECT_THROW(JsonNumbers(folder_.file("missing.json")), Error);
}

}  // namespace
}  // namespace owt::json_numbers_test
