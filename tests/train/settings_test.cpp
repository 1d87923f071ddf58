#include "src/train/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/core/check.h"
#include "tests/support/runs.h"
#include "tests/support/temp_folder.h"

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

const std::string kTwoClasses = R"(
name = "two"
input = [3, 8, 8]
classes = 2
layer = [{ name = "fc", type = "dense", out = 2 }]
)";
const std::string kNamesAModel = R"(
model = "two.toml"
data = { format = "synthetic", batch = 4 }
optimizer = { learning_rate = 0.1 }
schedule = { epochs = 1 }
)";

TEST(Settings, AnotherModelFileCanBeNamed) {
  const TempFolder folder;
  const std::string recipe = folder.file("recipe.toml");
  write_bytes(recipe, kNamesAModel);
  write_bytes(folder.file("two.toml"), kTwoClasses);
  std::string other = kTwoClasses;
  other.replace(other.find("two"), 3, "other");
  write_bytes(folder.file("other.toml"), other);
  EXPECT_EQ(read_settings(recipe).model.name, "two");
  // Other overrides of the model act on the file that is named, whatever their order.
  const Settings changed = read_settings(recipe, {{"model.input", "[3, 9, 9]"}, {"model", "other.toml"}});
  EXPECT_EQ(changed.model.name, "other");
  EXPECT_EQ(changed.model.input, (Shape{9, 9, 3}));
  EXPECT_THAT(
      [&] {
        read_settings(recipe, {{"model", "third.toml"}});
      },
      ThrowsMessage<Error>(AllOf(HasSubstr("--set model=third.toml"), HasSubstr("no model file"))));
}

}  // namespace
}  // namespace owt
