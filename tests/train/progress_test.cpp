#include "src/train/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

namespace owt {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class ProgressTest : public testing::Test {
 protected:
  Progress make(ProgressStyle style, int columns = 200) {
    return Progress(
        out_, style, [this] { return now_; }, columns);
  }
  void step(Progress& progress, double seconds, int64_t images = 100) {
    now_ += seconds;
    state_.step += 1;
    progress.update(state_, images);
  }
  int64_t printed(char c) const {
    const std::string text = out_.str();
    return std::count(text.begin(), text.end(), c);
  }

  std::ostringstream out_;
  double now_ = 1000;
  ProgressState state_{.step = 0, .total_steps = 1000, .epoch = 0, .epochs = 10, .loss = 1.5, .top1 = 0.25, .lr = 0.01};
};

TEST_F(ProgressTest, SaysAllThatMatters) {
  Progress progress = make(ProgressStyle::kPlain);
  for (int i = 0; i < 250; ++i) step(progress, 0.25);

  EXPECT_EQ(progress.line(),
            "epoch 1/10  step 250/1000  25.0 %  400 images/s  loss 1.5000  top-1 25.0 %  left 3:08  lr 0.01");
}

TEST_F(ProgressTest, PlainLinesComeEveryFiveSecondsAndAtTheEndOfAnEpoch) {
  Progress progress = make(ProgressStyle::kPlain);
  for (int i = 0; i < 12; ++i) step(progress, 1);
  EXPECT_EQ(printed('\n'), 2);  // after 5 and 10 seconds

  progress.end_epoch();
  EXPECT_EQ(printed('\n'), 3);
  progress.end_epoch();  // nothing new
  EXPECT_EQ(printed('\n'), 3);
  EXPECT_EQ(printed('\r'), 0);
  EXPECT_EQ(printed('\x1b'), 0);
}

TEST_F(ProgressTest, ShowsTheLastStepOnceWhateverTheTime) {
  Progress progress = make(ProgressStyle::kPlain);
  state_.step = 999;
  step(progress, 0.01);
  progress.end_epoch();
  EXPECT_EQ(printed('\n'), 1);
  EXPECT_THAT(out_.str(), HasSubstr("step 1000/1000  100.0 %"));
}

TEST_F(ProgressTest, ATerminalIsRedrawnAtMostFiveTimesASecond) {
  Progress progress = make(ProgressStyle::kTerminal);
  for (int i = 0; i < 160; ++i) step(progress, 0.0625);  // ten seconds
  EXPECT_EQ(printed('\n'), 0);
  EXPECT_EQ(printed('\r'), 40);  // the first step, then every fourth
}

TEST_F(ProgressTest, ClearMakesRoomForALogLineAndTheNextStepDrawsAgain) {
  Progress progress = make(ProgressStyle::kTerminal);
  step(progress, 1);
  out_.str("");

  progress.clear();
  EXPECT_EQ(out_.str(), "\r\x1b[K");
  progress.clear();  // already clear
  EXPECT_EQ(out_.str(), "\r\x1b[K");
  step(progress, 0.01);
  EXPECT_THAT(out_.str(), StartsWith("\r\x1b[K\r\x1b[Kepoch 1/10  step 2/1000"));
}

TEST_F(ProgressTest, ClearPrintsNothingWhereLinesArePlain) {
  Progress progress = make(ProgressStyle::kPlain);
  step(progress, 10);
  out_.str("");
  progress.clear();
  EXPECT_EQ(out_.str(), "");
}

TEST_F(ProgressTest, TheLineLeavesTheTerminalWithIt) {
  {
    Progress progress = make(ProgressStyle::kTerminal);
    step(progress, 1);
    out_.str("");
  }
  EXPECT_EQ(out_.str(), "\r\x1b[K");
}

TEST_F(ProgressTest, ALineNeverFillsTheWidthOfTheTerminal) {
  Progress progress = make(ProgressStyle::kTerminal, 20);
  step(progress, 1);
  EXPECT_EQ(out_.str(), "\r\x1b[Kepoch 1/10  step 1/");
}

TEST_F(ProgressTest, TheRateForgetsThePast) {
  Progress progress = make(ProgressStyle::kPlain);
  EXPECT_EQ(progress.images_per_second(), 0);
  for (int i = 0; i < 100; ++i) step(progress, 1);
  EXPECT_NEAR(progress.images_per_second(), 100, 1e-9);
  for (int i = 0; i < 100; ++i) step(progress, 2);
  EXPECT_NEAR(progress.images_per_second(), 50, 0.01);
}

TEST_F(ProgressTest, TimeOfAnEvaluationDoesNotCount) {
  Progress progress = make(ProgressStyle::kPlain);
  for (int i = 0; i < 20; ++i) step(progress, 1);
  now_ += 500;
  progress.skip_time();
  step(progress, 1);
  EXPECT_NEAR(progress.images_per_second(), 100, 1e-9);
}

TEST(DurationText, IsShort) {
  EXPECT_EQ(duration_text(0.4), "0 s");
  EXPECT_EQ(duration_text(59.4), "59 s");
  EXPECT_EQ(duration_text(59.6), "1:00");
  EXPECT_EQ(duration_text(3599.4), "59:59");
  EXPECT_EQ(duration_text(3599.6), "1:00:00");
  EXPECT_EQ(duration_text(0), "0 s");
  EXPECT_EQ(duration_text(-1), "?");
  EXPECT_EQ(duration_text(1e9), "?");
  EXPECT_EQ(duration_text(7387), "2:03:07");
  EXPECT_EQ(duration_text(NAN), "?");
  EXPECT_EQ(duration_text(INFINITY), "?");
}

}  // namespace
}  // namespace owt
