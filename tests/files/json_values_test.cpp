// JSON values from untrusted sources; the functions of src/system/json_text.h with nlohmann's library.
#include "src/system/json_text.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/message_of.h"
#include "tests/support/temp_folder.h"

namespace owt::json_values_test {
namespace {

using Json = nlohmann::ordered_json;

TEST(JsonText, IsNoValueWhereItIsNoJsonOrNestedWithoutEnd) {
  EXPECT_EQ(json_or_discarded<Json>("[1]").size(), 1u);
  EXPECT_TRUE(json_or_discarded<Json>("[1").is_discarded());
  EXPECT_FALSE(json_or_discarded<Json>(nested(kDeepestJson)).is_discarded());
  EXPECT_TRUE(json_or_discarded<Json>(nested(kDeepestJson + 1)).is_discarded());
  EXPECT_NO_THROW(check_json_numbers_fit<Json>(nested(1'000'000)));
}

// The message must not contain the library's text.
TEST(JsonText, SaysWhatIsUnderAKeyAndWhatWasWanted) {
  const Json object = json_object<Json>(R"({"text": "a", "list": [1], "texts": {"a": 1}})");
  EXPECT_EQ(json_get<std::string>(object, "text", "a text"), "a");
  EXPECT_EQ(json_get_or<double>(object, "none", 0.5, "a number"), 0.5);
  EXPECT_EQ(message_of([&] { json_get<bool>(object, "text", "true or false"); }),
            "'text' is string, wanted true or false");
  EXPECT_EQ(message_of([&] { json_get<std::string>(object, "none", "a text"); }), "there is no 'none', wanted a text");
  EXPECT_EQ(message_of([&] { json_get_or<double>(object, "list", 0, "a number"); }),
            "'list' is array, wanted a number");
  EXPECT_EQ(message_of([&] { json_get<std::map<std::string, std::string>>(object, "texts", "texts"); }),
            "'texts' is object, wanted texts");
  EXPECT_EQ(message_of([&] { json_objects(object, "list"); }), "'list' is array, wanted a list of objects");
  EXPECT_EQ(message_of([&] { json_get<bool>(Json(7), "a", "a text"); }), "there is no 'a', wanted a text");
}

}  // namespace
}  // namespace owt::json_values_test
