// Every key of a recipe: its default, what it sets, and which values it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tests/support/recipe_keys.h"

namespace owt::recipe_keys_test {
namespace {

using ::testing::HasSubstr;

TEST(RecipeKeys, HaveTheirDefaults) {
  for (const RecipeKey& key : recipe_keys()) EXPECT_EQ(shown(key, key.with), key.otherwise) << key.key;
}

// The keys must not change anything else.
TEST(RecipeKeys, SetWhatTheySay) {
  for (const RecipeKey& key : recipe_keys())
    for (const auto& [toml, expected] : key.values)
      for (const RecipeKey& other : recipe_keys())
        EXPECT_EQ(shown(other, setting(key, toml)), &other == &key ? expected : shown(other, key.with))
            << other.key << " after " << key.key << " = " << toml;
}

TEST(RecipeKeys, RefuseWhatIsOutOfTheirRange) {
  for (const RecipeKey& key : recipe_keys())
    for (const char* toml : key.refused) {
      const std::string last = std::string(key.key).substr(std::string(key.key).rfind('.') + 1);
      EXPECT_THAT(message_of([&] { shown(key, setting(key, toml)); }), HasSubstr("'" + last + "'"))
          << key.key << " = " << toml;
    }
}

TEST(RecipeKeys, TheBatchIsThatOfTheStepOrOfARank) {
  const Settings settings = small_settings(kLeastRecipe, {{"parallel.workers", "2"}});
  EXPECT_EQ(settings.step_rows(), 4);
  for (const char* wrong : {"0", "16777217"}) {
    EXPECT_THROW(small_settings(kLeastRecipe, {{"data.batch", wrong}}), Error) << wrong;
    EXPECT_THROW(small_settings(kLeastRecipe, {{"data.batch", ""}, {"data.batch_per_rank", wrong}}), Error) << wrong;
  }
  EXPECT_THAT(message_of([] { small_settings(kLeastRecipe, {{"data.batch", ""}}); }), HasSubstr("'batch' is missing"));
  EXPECT_EQ(small_settings(kLeastRecipe, {{"data.batch", "10"}, {"parallel.workers", "4"}}).step_rows(), 10);
  EXPECT_EQ(small_settings(kLeastRecipe, {{"parallel.workers", "8"}}).step_rows(), 4);
  EXPECT_EQ(small_settings(kLeastRecipe, {{"parallel.workers", "3"}, {"parallel.strategy", "mp"}}).step_rows(), 4);
  EXPECT_THAT(message_of([] {
                small_settings(kLeastRecipe, {{"parallel.strategy", "auto"}, {"parallel.dense_update", "round"}});
              }),
              HasSubstr("do not go together"));
}

TEST(RecipeKeys, ThePlanIsAskedForWhatTheRecipeSays) {
  const Settings settings = small_settings(kLeastRecipe, {{"parallel.workers", "2"},
                                                          {"parallel.strategy", "owt-c"},
                                                          {"parallel.dense_update", "round"},
                                                          {"parallel.model_ranks", "1"},
                                                          {"parallel.split", "rows"},
                                                          {"parallel.wire", "bf16"},
                                                          {"parallel.bucket_mb", "0.5"},
                                                          {"loss.label_smoothing", "0.25"},
                                                          {"loss.type", "logistic"},
                                                          {"run.precision", "tf32"}});
  const PlanRequest request = settings.plan_request();
  EXPECT_EQ(request.ranks, 2);
  EXPECT_EQ(request.strategy, Strategy::kOwtC);
  EXPECT_EQ(request.dense_update, DenseUpdate::kRound);
  EXPECT_EQ(request.step_rows, 4);
  EXPECT_EQ(request.model_ranks, 1);
  EXPECT_EQ(request.split, DenseSplit::kRows);
  EXPECT_TRUE(request.bf16_transport);
  EXPECT_EQ(request.bucket_bytes, 1 << 19);
  EXPECT_EQ(request.loss.label_smoothing, 0.25);
  EXPECT_EQ(request.loss.type, LossType::kLogistic);
  EXPECT_EQ(request.on.precision, Precision::kTf32);
}

}  // namespace
}  // namespace owt::recipe_keys_test
