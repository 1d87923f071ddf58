#include "src/train/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

namespace owt::progress_test {
namespace {

using testing::HasSubstr;

class ProgressTest : public testing::Test {
 protected:
  ProgressTest() { testing::internal::CaptureStderr(); }
  ~ProgressTest() override { testing::internal::GetCapturedStderr(); }
  // Since it was called last.
  std::string printed() {
    const std::string text = testing::internal::GetCapturedStderr();
    testing::internal::CaptureStderr();
    return text;
  }
  std::unique_ptr<Progress> make(ProgressStyle style, int columns = 200) {
    return std::make_unique<Progress>(
        style, [this] { return now_; }, columns);
  }
  void step(Progress& progress, double seconds, int64_t images = 100) {
    now_ += seconds;
    state_.step += 1;
    state_.data_wait_s += seconds / 4;
    progress.update(state_, images);
  }
  // What is on a terminal of that width.
  std::string shown_in(int columns) {
    const std::unique_ptr<Progress> progress = make(ProgressStyle::kTerminal, columns);
    state_.step = 0, state_.data_wait_s = 0;
    step(*progress, 0.25);
    std::string text = printed();
    return text.substr(std::min(text.rfind('K') + 1, text.size()));
  }
  static int64_t count(const std::string& text, char c) { return std::ranges::count(text, c); }

  double now_ = 1000;
  ProgressState state_{.step = 0, .total_steps = 1000, .epoch = 0, .epochs = 10, .loss = 1.5, .top1 = 0.25, .lr = 0.01};
};

TEST_F(ProgressTest, SaysAllThatMatters) {
  const auto progress = make(ProgressStyle::kPlain);
  for (int i = 0; i < 250; ++i) step(*progress, 0.25);

  EXPECT_EQ(
      fitted(progress->fields()),
      "epoch 1/10  step 250/1000  25.0 %  400 images/s  loss 1.5000  top-1 25.0 %  left 3:08  wait 25 %  lr 0.01");
}

TEST_F(ProgressTest, PlainLinesComeEveryFiveSecondsAndAtTheEndOfAnEpoch) {
  const auto progress = make(ProgressStyle::kPlain);
  for (int i = 0; i < 12; ++i) step(*progress, 1);
  EXPECT_EQ(count(printed(), '\n'), 2);  // after 5 and 10 seconds

  progress->end_epoch();
  const std::string last = printed();
  EXPECT_EQ(last, fitted(progress->fields()) + "\n");  // whole, without control characters
  progress->end_epoch();                               // no output
  EXPECT_EQ(printed(), "");
}

TEST_F(ProgressTest, ShowsTheLastStepOnceWhateverTheTime) {
  const auto progress = make(ProgressStyle::kPlain);
  state_.step = 999;
  step(*progress, 0.01);
  progress->end_epoch();
  const std::string text = printed();
  EXPECT_EQ(count(text, '\n'), 1);
  EXPECT_THAT(text, HasSubstr("step 1000/1000  100.0 %"));
}

TEST_F(ProgressTest, ATerminalIsRedrawnAtMostFiveTimesASecond) {
  const auto progress = make(ProgressStyle::kTerminal);
  for (int i = 0; i < 160; ++i) step(*progress, 0.0625);  // ten seconds
  const std::string text = printed();
  EXPECT_EQ(count(text, '\n'), 0);
  EXPECT_EQ(count(text, '\x1b'), 39);  // after the first step, with every fourth
}

TEST_F(ProgressTest, TheLineLeavesTheTerminalWithIt) {
  auto progress = make(ProgressStyle::kTerminal);
  step(*progress, 1);
  printed();
  progress.reset();
  EXPECT_EQ(printed(), "\r\x1b[K");
}

TEST_F(ProgressTest, ANarrowTerminalShowsWhatMattersMostAndCutsNothing) {
  EXPECT_EQ(shown_in(200),
            "epoch 1/10  step 1/1000  0.1 %  400 images/s  loss 1.5000  top-1 25.0 %  left 4:10  wait 25 %  lr 0.01");
  EXPECT_EQ(shown_in(80), "epoch 1/10  400 images/s  loss 1.5000  top-1 25.0 %  left 4:10  wait 25 %");
  EXPECT_EQ(shown_in(40), "epoch 1/10  loss 1.5000  left 4:10");
  EXPECT_EQ(shown_in(20), "epoch 1/10  0.1 %");
  EXPECT_EQ(shown_in(12), "epoch 1/10");
  EXPECT_EQ(shown_in(11), "left 4:10");
  EXPECT_EQ(shown_in(8), "0.1 %");
  EXPECT_EQ(shown_in(1), "");
}

TEST_F(ProgressTest, TheRateForgetsThePast) {
  const auto progress = make(ProgressStyle::kPlain);
  EXPECT_EQ(progress->images_per_second(), 0);
  for (int i = 0; i < 100; ++i) step(*progress, 1);
  EXPECT_NEAR(progress->images_per_second(), 100, 1e-9);
  for (int i = 0; i < 100; ++i) step(*progress, 2);
  EXPECT_NEAR(progress->images_per_second(), 50, 0.01);
}

TEST_F(ProgressTest, TimeOfAnEvaluationDoesNotCount) {
  const auto progress = make(ProgressStyle::kPlain);
  for (int i = 0; i < 20; ++i) step(*progress, 1);
  now_ += 500;
  progress->skip_time();
  step(*progress, 1);
  EXPECT_NEAR(progress->images_per_second(), 100, 1e-9);
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
}  // namespace owt::progress_test
