#include "src/commands/auto_strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/runs.h"

namespace owt::auto_strategy_test {
namespace {

using ::testing::HasSubstr;

TEST(AutoStrategy, IsSettledOnOneThatRunsAndCanBeRepeated) {
  Settings settings = small_settings(kSmallRecipe, {{"parallel.workers", "2"}, {"parallel.strategy", "auto"}});
  EXPECT_TRUE(settings.parallel.automatic);
  settle_strategy(settings, Session(settings, 2));
  EXPECT_FALSE(settings.parallel.automatic);
  const std::string name = name_of(settings.parallel.strategy);
  EXPECT_THAT(settings.recipe.to_toml(), HasSubstr(concat("strategy = '", name, "'")));
  EXPECT_EQ(settings_from(settings.recipe, "again").parallel.strategy, settings.parallel.strategy);
  EXPECT_EQ(settings.plan_to_run().ranks(), 2);
}

TEST(AutoStrategy, ANamedOneStays) {
  Settings settings = small_settings(kSmallRecipe, {{"parallel.workers", "2"}, {"parallel.strategy", "owt-b"}});
  settle_strategy(settings, Session(settings, 2));
  EXPECT_EQ(settings.parallel.strategy, Strategy::kOwtB);
}

}  // namespace
}  // namespace owt::auto_strategy_test
