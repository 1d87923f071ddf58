#include "src/train/auto_strategy.h"

#include <gtest/gtest.h>

#include "tests/support/runs.h"

namespace owt {
namespace {

TEST(AutoStrategy, ChoosesAmongAllStrategiesByWhatItMeasures) {
  const Settings settings = small_settings(kSmallRecipe, {{"parallel.workers", "2"}});
  const Choice choice = choose_here(settings, 2);
  EXPECT_EQ(choice.all.size(), strategy_names().size());
  for (const Prediction& p : choice.all) {
    EXPECT_GE(p.step_s(), choice.chosen().step_s());
    EXPECT_EQ(p.request.step_rows, settings.step_rows());
    EXPECT_GT(p.compute_s, 0);
    EXPECT_GT(p.exposed_s, 0);
    EXPECT_GT(p.update_s, 0);
  }
  EXPECT_EQ(make_plan(settings.model, choice.chosen().request).ranks(), 2);
}

TEST(AutoStrategy, OneWorkerNeedsNoLinks) {
  const Choice choice = choose_here(small_settings(kSmallRecipe), 1);
  EXPECT_EQ(choice.chosen().name(), "dp");
  EXPECT_EQ(choice.chosen().exposed_s, 0);
}

}  // namespace
}  // namespace owt
