#include "src/comm/signals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>

namespace owt::signals_test {
namespace {

using Press = Presses::Press;

constexpr int64_t kSecond = 1'000'000'000;

TEST(Presses, WithinTwoSecondsAreOneWishAndALaterOneIsAnother) {
  Presses presses;
  EXPECT_EQ(presses.press(5 * kSecond), Press::kFirst);
  EXPECT_EQ(presses.press(5 * kSecond + 300'000'000), Press::kSame);
  EXPECT_EQ(presses.press(7 * kSecond - 1), Press::kSame);
  EXPECT_EQ(presses.press(7 * kSecond), Press::kAgain);
  presses.forget();
  EXPECT_EQ(presses.press(9 * kSecond), Press::kFirst);
}

// What each signal did before.
class StopSignals : public ::testing::Test {
 protected:
  StopSignals() {
    for (int i = 0; i < kSignals; ++i) sigaction(kAll[i], nullptr, &before_[i]);
  }
  ~StopSignals() override {
    for (int i = 0; i < kSignals; ++i) sigaction(kAll[i], &before_[i], nullptr);
    request_stop(false);
  }

 private:
  static constexpr int kSignals = 5;
  static constexpr int kAll[kSignals] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE};
  struct sigaction before_[kSignals];
};

TEST_F(StopSignals, AskTheRunToStop) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    std::signal(SIGHUP, SIG_DFL);
    catch_stop_signals();
    request_stop(false);
    std::raise(signal);
    EXPECT_TRUE(stop_requested()) << signal;
  }
}

TEST_F(StopSignals, AHangupThatWasIgnoredAtTheStartStaysIgnored) {
  std::signal(SIGHUP, SIG_IGN);
  catch_stop_signals();
  request_stop(false);
  std::raise(SIGHUP);
  EXPECT_FALSE(stop_requested());
}

TEST_F(StopSignals, TheFirstPressSaysWhatFollowsAndWhatASecondOneCosts) {
  catch_stop_signals(kCheckpointFollows);
  note_kept_step(1200);
  testing::internal::CaptureStderr();
  interrupt_at(kSecond);
  interrupt_at(kSecond + 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "stopping after this step; a checkpoint follows; press again to end at once and lose the steps since step "
            "1200\n");
}

TEST_F(StopSignals, ALaterPressEndsTheProcess) {
  EXPECT_EXIT(
      {
        catch_stop_signals();
        interrupt_at(kSecond);
        interrupt_at(2 * kSecond);
        std::fputs("still here\n", stderr);
        interrupt_at(3 * kSecond);
        std::fputs("never\n", stderr);
      },
      ::testing::KilledBySignal(SIGINT), "^still here\n$");
}

}  // namespace
}  // namespace owt::signals_test
