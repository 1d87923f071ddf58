#include "src/files/run_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "src/system/check.h"
#include "src/system/files.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_folder.h"

namespace owt::run_state_test {
namespace {

using testing::HasSubstr;

RunState full_state() {
  return {.step = 5000,
          .epoch = 10,
          .images_in_epoch = 700,
          .step_rows = 100,
          .images = 50000,
          .ema_step = 4992,
          .seed = 0xffffffffffffffff,
          .best_top1 = 0.1,
          .best_step = 4500,
          .workers = 4,
          .strategy = "owt-b",
          .measured_shares = {1, 0.524, 0.1, 0.25},
          .decoder = "gpu",
          .conv_choices = {{"conv1", "winograd"}},
          .checksums = {{"weights.safetensors", 0xfedcba9876543210}}};
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  OWT_CHECK(at != std::string::npos, "no ", from);
  return text.replace(at, from.size(), to);
}

TEST(RunState, ComesBackFromJsonAsItWas) {
  EXPECT_EQ(RunState::from_json(full_state().to_json(), "x"), full_state());
  EXPECT_EQ(RunState::from_json(RunState{}.to_json(), "x"), RunState{});
}

TEST(RunState, OfOlderCheckpointsCountsWholeSteps) {
  auto json = nlohmann::ordered_json::parse(full_state().to_json());
  json.erase("checksum");
  json.erase("images_in_epoch");
  json["step_in_epoch"] = 7;
  json["checksum"] = hex(checksum_of(json.dump()));
  EXPECT_EQ(RunState::from_json(json.dump(2) + "\n", "x"), full_state());
}

// A forged state: the output of to_json() with another value and a matching checksum.
std::string forged(const std::string& from, const std::string& to) {
  auto json = nlohmann::ordered_json::parse(replaced(full_state().to_json(), from, to));
  json.erase("checksum");
  json["checksum"] = hex(checksum_of(json.dump()));
  return json.dump();
}

TEST(RunState, NamesNoFilesOutsideItsFolderAndNoStepsBeyondAllCounting) {
  const auto complaint = [](const std::string& text) { return [text] { RunState::from_json(text, "a/state.json"); }; };
  EXPECT_NO_THROW(complaint(forged("weights.safetensors", "other"))());
  for (const char* name : {"/dev/zero", "../other/weights.safetensors", "..", ""})
    EXPECT_THAT(message_of(complaint(forged("weights.safetensors", name))), HasSubstr("is no file of its folder"))
        << name;
  const std::string done = "\"images_in_epoch\": 700";
  EXPECT_THAT(message_of(complaint(forged(done, "\"step_in_epoch\": 900000000000000000"))),
              HasSubstr("more than any run has"));
  EXPECT_THAT(message_of(complaint(forged(done, "\"images_in_epoch\": 50001"))),
              HasSubstr("50001 of 50000 images are done"));
  EXPECT_THAT(message_of(complaint(forged(concat("\"seed\": ", full_state().seed), "\"seed\": 18446744073789551615"))),
              HasSubstr("wanted a whole number of 64 bits"));
  EXPECT_THAT(message_of(complaint(forged("\"workers\": 4", "\"workers\": 4294967296"))),
              HasSubstr("'workers' is 4294967296, wanted a whole number from 1 to 2147483647"));
  EXPECT_THAT(message_of(complaint(forged("\"best_step\": 4500", "\"best_step\": 18446744073709551615"))),
              HasSubstr("'best_step' is 18446744073709551615"));
  EXPECT_THAT(message_of(complaint(forged("\"ema_step\": 4992", "\"ema_step\": 5001"))),
              HasSubstr("'ema_step' is 5001, wanted a whole number from 0 to 5000"));
}

TEST(RunState, RejectsAnythingElseAndNamesTheFile) {
  const auto complaint = [](const std::string& text) -> std::string {
    return message_of([&] { RunState::from_json(text, "a/state.json"); });
  };
  const std::string good = full_state().to_json();
  EXPECT_EQ(complaint(good), "");
  EXPECT_THAT(complaint(good.substr(0, good.size() / 2)), HasSubstr("a/state.json is damaged: it is no JSON"));
  EXPECT_THAT(complaint(""), HasSubstr("a/state.json is damaged"));
  EXPECT_THAT(complaint("[]"), HasSubstr("a/state.json is damaged"));
  EXPECT_THAT(complaint(replaced(good, "5000", "5001")), HasSubstr("checksum does not match"));
  EXPECT_THAT(complaint(R"({"checksum": [7]})"), HasSubstr("is damaged: 'checksum' is array, wanted a text"));
  EXPECT_THAT(complaint("{}"), HasSubstr("checksum"));
  for (const std::string& rest :
       {std::string(5, '\0'), std::string("\0{}", 3), std::string("\n"), std::string("  "), std::string("{}")})
    EXPECT_THAT(complaint(good + rest), HasSubstr("a/state.json is damaged")) << rest.size();
  EXPECT_THAT(complaint(R"({"checksum": "0", "step": )" + nested(1'000'000) + "}"),
              HasSubstr("a/state.json is damaged: its JSON is nested deeper than 64 levels"));
}

}  // namespace
}  // namespace owt::run_state_test
