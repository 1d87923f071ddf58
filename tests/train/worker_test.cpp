#include "src/train/worker.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "src/plan/beside_trial.h"
#include "src/plan/plan.h"
#include "src/predict/step_launches.h"
#include "tests/support/runs.h"

namespace owt::worker_test {
namespace {

// `owt plan --launches` shows and prices what the setting says.
TEST(Worker, UpdatesDenseLayersBesideTheBackwardPassAsSet) {
  const auto launches_beside = [](const char* update_beside) {
    const Settings settings = small_settings(kSmallRecipe, {{"run.update_beside", update_beside}});
    return std::ranges::count_if(launches_of_step(settings.model, make_plan(settings.model, settings.plan_request())),
                                 &StepLaunch::beside);
  };
  EXPECT_EQ(launches_beside("on"), 1);
  EXPECT_EQ(launches_beside("off"), 0);
  EXPECT_EQ(launches_beside("auto"), 0) << "these layers are small";
  const auto from = [](const char* update_beside) {
    return small_settings(kSmallRecipe, {{"run.update_beside", update_beside}}).plan_request().beside_from;
  };
  EXPECT_EQ(from("auto"), kUpdateBesideFrom);
  EXPECT_EQ(from("off"), kNeverBeside);
  EXPECT_TRUE(step_options(small_settings(kSmallRecipe)).choose_beside);
  EXPECT_FALSE(step_options(small_settings(kSmallRecipe, {{"run.update_beside", "on"}})).choose_beside);
}

}  // namespace
}  // namespace owt::worker_test
