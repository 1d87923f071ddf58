#include "tools/prepare_progress.h"

#include <gtest/gtest.h>

namespace owt::prepare_progress_test {
namespace {

TEST(PrepareProgress, TellsTheRateOfThisProcessAndWhatIsLeftAtIt) {
  const auto shown = [](const auto&... what) { return fitted(progress_fields(what...)); };
  EXPECT_EQ(shown("train", PrepareState{.done = 300, .photos = 1200}, 0, 60),
            "train  300/1200  25.0 %  5 images/s  left 3:00");
  // An earlier process did 200.
  EXPECT_EQ(shown("val", PrepareState{.done = 300, .photos = 1200, .skipped = 4}, 200, 10),
            "val  300/1200  25.0 %  10 images/s  left 1:30  skipped 4");
  EXPECT_EQ(shown("stats", PrepareState{.done = 7, .photos = 7}, 0, 0.5), "stats  7/7  100.0 %  14 images/s  left 0 s");
  EXPECT_EQ(shown("train", PrepareState{.done = 7, .photos = 9}, 7, 1), "train  7/9  77.8 %  0 images/s  left ?");
}

}  // namespace
}  // namespace owt::prepare_progress_test
