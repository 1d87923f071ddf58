#include "src/train/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/core/check.h"
#include "tests/support/runs.h"

namespace owt {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(LossSettings, AreReadFromTheRecipe) {
  EXPECT_EQ(small_settings(kSmallRecipe).loss.label_smoothing, 0);
  EXPECT_EQ(small_settings(kSmallRecipe, {{"loss.label_smoothing", "0.1"}}).loss.label_smoothing, 0.1);
}

TEST(LossSettings, RejectBadTables) {
  const auto read = [](const std::string& key, const std::string& value) {
    return [=] { small_settings(kSmallRecipe, {{key, value}}); };
  };
  EXPECT_THAT(read("loss.label_smoothing", "1.0"), ThrowsMessage<Error>(HasSubstr("'label_smoothing' is 1")));
  EXPECT_THAT(read("loss.label_smoothing", "-0.1"), ThrowsMessage<Error>(HasSubstr("'label_smoothing' is -0.1")));
  EXPECT_THAT(read("loss.label_smothing", "0.1"),
              ThrowsMessage<Error>(AllOf(HasSubstr("keys of [loss]"), HasSubstr("did you mean 'label_smoothing'?"))));
}

}  // namespace
}  // namespace owt
