#include "src/files/verification_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "src/system/check.h"
#include "src/system/files.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_folder.h"

namespace owt::verification_record_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

Json result() {
  return {{"format", "owt verification 1"},
          {"weights", "run/w.safetensors"},
          {"layer", "fc"},
          {"features", 8},
          {"mirrored", true},
          {"images", 5},
          {"same_pairs", 3},
          {"different_pairs", 7},
          {"accuracy", 0.75},
          {"accuracy_deviation", 0.125},
          {"at_far", {{{"far", 0.5}, {"tar", 0.25}, {"threshold", 0.1}}}},
          {"roc", {{{"far", 0.25}, {"tar", 0}}, {{"far", 1}, {"tar", 1}}}},
          {"equal_error_rate", 0.5},
          {"area_under_roc", 0.625}};
}

std::string error_of(const Json& json) {
  return message_of([&] { VerificationRecord::from_json(json.dump(), "a/b.json"); });
}

TEST(VerificationRecords, AreReadFromTheJsonOfVerify) {
  const VerificationRecord record = VerificationRecord::from_json(result().dump(), "a/b.c.json");
  EXPECT_EQ(record.name, "b.c");
  EXPECT_EQ(record.weights, "run/w.safetensors");
  EXPECT_EQ(record.layer, "fc");
  EXPECT_EQ(record.features, 8);
  EXPECT_TRUE(record.mirrored);
  EXPECT_EQ(record.images, 5);
  EXPECT_EQ(record.same_pairs, 3);
  EXPECT_EQ(record.different_pairs, 7);
  EXPECT_EQ(record.accuracy, 0.75);
  EXPECT_EQ(record.deviation, 0.125);
  EXPECT_EQ(record.equal_error_rate, 0.5);
  EXPECT_EQ(record.area_under_roc, 0.625);
  ASSERT_EQ(record.at_far.size(), 1u);
  EXPECT_EQ(record.at_far[0].far, 0.5);
  EXPECT_EQ(record.at_far[0].tar, 0.25);
  ASSERT_EQ(record.roc.size(), 2u);
  EXPECT_EQ(record.roc[0].far, 0.25);
  EXPECT_EQ(record.roc[1].tar, 1);
}

TEST(VerificationRecords, AMissingOrWrongValueIsNamed) {
  const Json whole = result();
  for (const auto& [key, value] : whole.items()) {
    Json without = whole;
    without.erase(key);
    EXPECT_THAT(error_of(without), AllOf(HasSubstr("a/b.json is no result of owt verify: "), HasSubstr(key))) << key;
    Json wrong = whole;
    wrong[key] = Json::array({1});
    EXPECT_THAT(error_of(wrong), HasSubstr(key)) << key;
  }
  for (const char* key : {"accuracy", "accuracy_deviation", "equal_error_rate", "area_under_roc"})
    for (const double value : {-0.01, 1.01}) {
      Json wrong = result();
      wrong[key] = value;
      EXPECT_THAT(error_of(wrong), HasSubstr("wanted a number from 0 to 1")) << key;
    }
  for (const char* key : {"features", "images", "same_pairs", "different_pairs"}) {
    Json wrong = result();
    wrong[key] = 0;
    EXPECT_THAT(error_of(wrong), HasSubstr("wanted a whole number from 1")) << key;
  }
}

// A chart's logarithmic axis has no place for 0.
TEST(VerificationRecords, FalseAcceptRatesOfTheCurveIncreaseFromAboveZero) {
  for (const double first : {0.0, 1.0}) {
    Json wrong = result();
    wrong["roc"][0]["far"] = first;
    EXPECT_THAT(error_of(wrong), HasSubstr("do not increase from above 0")) << first;
  }
}

TEST(VerificationRecords, OtherFilesAreLeftOutWithALine) {
  const TempFolder run;
  std::vector<std::string> wrong;
  EXPECT_THAT(verifications_of(run.path(), wrong), IsEmpty());
  EXPECT_THAT(wrong, IsEmpty()) << "there is no folder";
  fs::create_directories(run.file("verification/folder.json"));
  const auto put = [&](const std::string& name, const std::string& text) {
    write_bytes(run.file("verification/" + name), text);
  };
  put("b.json", result().dump());
  put("a.json", result().dump());
  put("cut.json", result().dump().substr(0, 99));
  put("huge.json", result().dump() + std::string(1 << 20, ' '));
  put("notes.txt", "");
  const std::vector<VerificationRecord> records = verifications_of(run.path(), wrong);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].name, "a");
  EXPECT_EQ(records[1].name, "b");
  EXPECT_THAT(wrong,
              ElementsAre(HasSubstr("cut.json is no result of owt verify: it is no JSON object"),
                          HasSubstr("folder.json is no regular file"), HasSubstr("huge.json has more than 1 MiB")));
}

TEST(VerificationRecords, AreFew) {
  const TempFolder run;
  fs::create_directories(run.file("verification"));
  for (size_t i = 0; i < kMostVerifications + 2; ++i)
    write_bytes(run.file(concat("verification/", 100 + i, ".json")), result().dump());
  std::vector<std::string> wrong;
  const std::vector<VerificationRecord> records = verifications_of(run.path(), wrong);
  ASSERT_EQ(records.size(), kMostVerifications);
  EXPECT_EQ(records.back().name, "123");
  EXPECT_THAT(wrong, ElementsAre(HasSubstr("verification has 26 results; only the first 24 are shown")));
}

}  // namespace
}  // namespace owt::verification_record_test
