#include "src/train/alike.h"

#include <gtest/gtest.h>

#include "src/comm/watch.h"
#include "tests/support/runs.h"

namespace owt::alike_test {
namespace {

TEST(StartTogether, TakesTheTimeoutsOfTheRecipe) {
  const double timeout = watch_timeout(), stall = stall_timeout();
  start_together("train", small_settings(kSmallRecipe, {{"parallel.timeout_s", "7"}, {"parallel.stall_s", "45"}}));
  EXPECT_EQ(watch_timeout(), 7);
  EXPECT_EQ(stall_timeout(), 45);
  set_watch_timeout(timeout);
  set_stall_timeout(stall);
}

TEST(OptionFact, NamesTheOptionAndSaysWhereThereIsNone) {
  EXPECT_EQ(option_fact("resume", "auto").what, "--resume");
  EXPECT_EQ(option_fact("resume", "auto").value, "auto");
  EXPECT_EQ(option_fact("resume", "").value, "nothing");
  EXPECT_EQ(option_is_given("weights", true).value, "a value");
  EXPECT_EQ(option_is_given("weights", false).value, "nothing");
}

}  // namespace
}  // namespace owt::alike_test
