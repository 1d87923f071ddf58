#include "src/system/activity.h"

#include <gtest/gtest.h>

#include <thread>

namespace owt::activity_test {
namespace {

// A thread does the work of the rank for this long.
template <class Body>
void as_the_rank(const Body& body) {
  std::thread([&] {
    this_thread_is_the_rank();
    body();
  }).join();
}

TEST(Activity, TheRankSaysWhatItWaitsForAndThenWhatItWaitedForBefore) {
  as_the_rank([] {
    EXPECT_EQ(activity().waits_for, WaitsFor::kNothing);
    const Waits device(WaitsFor::kDevice);
    {
      const Waits others(WaitsFor::kOthers);
      EXPECT_EQ(activity().waits_for, WaitsFor::kOthers);
    }
    EXPECT_EQ(activity().waits_for, WaitsFor::kDevice);
  });
  EXPECT_EQ(activity().waits_for, WaitsFor::kNothing);
}

TEST(Activity, WhatOtherThreadsWaitForIsNoNews) {
  as_the_rank([] {
    const Waits others(WaitsFor::kOthers);
    std::thread([] {
      const Waits data(WaitsFor::kData);
      EXPECT_EQ(activity().waits_for, WaitsFor::kOthers);
    }).join();
    EXPECT_EQ(activity().waits_for, WaitsFor::kOthers);
  });
}

TEST(Activity, EverySignOfWorkCountsWhicheverThreadGivesIt) {
  const Activity before = activity();
  note_work();
  std::thread(note_work).join();
  EXPECT_EQ(activity().works, before.works + 2);
  EXPECT_NE(activity(), before);
}

}  // namespace
}  // namespace owt::activity_test
