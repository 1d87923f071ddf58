#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <string>

#include "src/plan/beside_trial.h"

namespace owt::beside_trial_test {
namespace {

constexpr size_t kInFlight = 3;

// The trial of steps that take these milliseconds, whose times are known when two more have begun.
BesideTrial tried(double beside_ms, double behind_ms, int64_t* steps = nullptr) {
  BesideTrial trial(kInFlight);
  std::deque<bool> under_way;
  for (int64_t i = 0; !trial.over(); ++i) {
    under_way.push_back(trial.next());
    if (steps) *steps = i;
    if (under_way.size() < kInFlight) continue;
    const bool beside = under_way.front();
    under_way.pop_front();
    // A disturbed step is no reason.
    const double disturbance = i % 5 == 0 ? 10 : 0;
    trial.add(beside, (beside ? beside_ms : behind_ms) + disturbance);
  }
  return trial;
}

TEST(BesideTrial, KeepsTheFasterOrder) {
  EXPECT_TRUE(tried(1, 1.1).beside());
  EXPECT_FALSE(tried(1.1, 1).beside());
  EXPECT_EQ(tried(1, 1.125).text(),
            "dense layers are updated during the backward pass: 1.000 ms a step, after it 1.125 ms");
  EXPECT_EQ(tried(1.125, 1).text(),
            "dense layers are updated after the backward pass: 1.000 ms a step, during it 1.125 ms");
  BesideTrial behind = tried(1.1, 1);
  EXPECT_FALSE(behind.next());
}

TEST(BesideTrial, TriesBothOrdersInEverySlot) {
  BesideTrial trial(kInFlight);
  std::string orders;
  for (size_t i = 0; i < 4 * kInFlight; ++i) orders += trial.next() ? 'b' : '-';
  EXPECT_EQ(orders, "bbb---bbb---");
  EXPECT_FALSE(trial.over());
  int64_t steps = 0;
  tried(1, 2, &steps);
  EXPECT_LT(steps, static_cast<int64_t>(3 * BesideTrial::kTimesOfEach));
}

// Steps whose batches are never at the same address are never replayed.
TEST(BesideTrial, EndsWithoutTimes) {
  BesideTrial trial(kInFlight);
  for (size_t i = 0; i < BesideTrial::kMostSteps; ++i) {
    EXPECT_FALSE(trial.over());
    trial.next();
  }
  EXPECT_TRUE(trial.next());
  EXPECT_TRUE(trial.over());
  EXPECT_FALSE(trial.add(true, 1));
}

}  // namespace
}  // namespace owt::beside_trial_test
