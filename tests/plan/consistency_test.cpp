// When workers of a parameter server may continue, and which pushes an update contains.
#include "src/plan/consistency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/system/check.h"
#include "tests/support/message_of.h"

namespace owt::consistency_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Starts a worker's next task; its gradient arrives at once. Updates the weights if that completes an update.
std::vector<Push> do_task(Consistency& rules, int worker) {
  EXPECT_TRUE(rules.may_start(worker));
  const Push push{worker, rules.start(worker), rules.updates()};
  std::vector<Push> with = rules.take(push);
  if (!with.empty()) rules.updated(with);
  return with;
}

TEST(ConsistencyTest, SequentialUpdatesWithTheGradientsOfAllInTheirOrder) {
  Consistency rules(3, {});
  EXPECT_THAT(do_task(rules, 2), IsEmpty());
  EXPECT_THAT(do_task(rules, 0), IsEmpty());
  EXPECT_FALSE(rules.may_start(2));
  EXPECT_FALSE(rules.may_start(0));
  EXPECT_THAT(do_task(rules, 1), ElementsAre(Push{0, 0, 0}, Push{1, 0, 0}, Push{2, 0, 0}));
  for (int w = 0; w < 3; ++w) EXPECT_TRUE(rules.may_start(w));
  EXPECT_EQ(rules.updates(), 1);
  EXPECT_THAT(do_task(rules, 0), IsEmpty());
  EXPECT_EQ(do_task(rules, 1), std::vector<Push>());
  EXPECT_EQ(do_task(rules, 2).front(), (Push{0, 1, 1}));
}

// Task t waits for all tasks before t - delay: the fast worker leads by `delay` tasks at most.
TEST(ConsistencyTest, ABoundOnTheDelayIsALead) {
  for (const int64_t delay : {0, 1, 2, 5}) {
    Consistency rules(2, {.delay = delay, .pushes = 1});
    for (int64_t t = 0; t <= delay; ++t) do_task(rules, 0);
    EXPECT_FALSE(rules.may_start(0)) << delay;
    do_task(rules, 1);
    EXPECT_TRUE(rules.may_start(0)) << delay;
    do_task(rules, 0);
    EXPECT_FALSE(rules.may_start(0)) << delay;
  }
}

TEST(ConsistencyTest, WithoutABoundNobodyWaits) {
  Consistency rules(2, {.delay = kNoBound, .pushes = 1});
  for (int64_t t = 0; t < 100; ++t) EXPECT_EQ(do_task(rules, 0).size(), 1u);
  const Push late{1, rules.start(1), 0};
  EXPECT_EQ(rules.staleness(late), 100);
}

TEST(ConsistencyTest, UpdatesByTaskKeepTheirOrderUnderADelay) {
  Consistency rules(2, {.delay = 2});
  EXPECT_THAT(do_task(rules, 0), IsEmpty());
  EXPECT_THAT(do_task(rules, 0), IsEmpty());
  EXPECT_THAT(do_task(rules, 0), IsEmpty());
  EXPECT_FALSE(rules.may_start(0));
  EXPECT_THAT(do_task(rules, 1), ElementsAre(Push{0, 0, 0}, Push{1, 0, 0}));
  EXPECT_THAT(do_task(rules, 1), ElementsAre(Push{0, 1, 0}, Push{1, 1, 1}));
}

TEST(ConsistencyTest, SoftsyncTakesGradientsAsTheyCome) {
  Consistency rules(3, {.delay = kNoBound, .pushes = 2});
  EXPECT_THAT(do_task(rules, 2), IsEmpty());
  EXPECT_THAT(do_task(rules, 2), ElementsAre(Push{2, 0, 0}, Push{2, 1, 0}));
  EXPECT_THAT(do_task(rules, 1), IsEmpty());
  EXPECT_THAT(do_task(rules, 0), ElementsAre(Push{1, 0, 1}, Push{0, 0, 1}));
}

// If pushes of an update are left over, their tasks count as done, so no worker waits forever.
TEST(ConsistencyTest, SomeWorkerMayAlwaysContinue) {
  for (const int64_t delay : {0, 1, 3})
    for (const int64_t pushes : {0, 1, 2, 3, 4, 5, 7, 16})
      for (const int backup : {0, 1, 2}) {
        Consistency rules(4, {.delay = delay, .pushes = pushes, .backup = backup});
        for (int t = 0; t < 100; ++t) {
          bool any = false;
          for (int w = 0; w < 4; ++w)
            if (rules.may_start(w)) do_task(rules, w), any = true;
          ASSERT_TRUE(any) << delay << ' ' << pushes << ' ' << backup;
        }
        EXPECT_GT(rules.updates(), 5);
      }
}

TEST(ConsistencyTest, BackupWorkersAreNotWaitedForAndContinueWithTheNewestTask) {
  Consistency rules(3, {.backup = 1});
  const Push slow{2, rules.start(2), 0};
  do_task(rules, 1);
  EXPECT_THAT(do_task(rules, 0), ElementsAre(Push{0, 0, 0}, Push{1, 0, 0}));
  do_task(rules, 0);
  EXPECT_EQ(do_task(rules, 1).size(), 2u);
  EXPECT_TRUE(rules.is_late(slow));
  EXPECT_THAT(rules.take(slow), IsEmpty());
  EXPECT_EQ(rules.dropped(), 1);
  EXPECT_EQ(rules.start(2), 2);
}

TEST(ConsistencyTest, RulesChangeWhenAllIsFinished) {
  Consistency rules(2, {});
  do_task(rules, 0);
  do_task(rules, 1);
  rules.change({.delay = 1, .pushes = 1});
  EXPECT_THAT(do_task(rules, 0), ElementsAre(Push{0, 1, 1}));
  EXPECT_EQ(do_task(rules, 0).size(), 1u);
  EXPECT_FALSE(rules.may_start(0));
}

TEST(ConsistencyTest, WhatWaitsForFurtherGradientsMakesAnUpdateWhereNoneCome) {
  Consistency rules(2, {.delay = kNoBound, .pushes = 3});
  do_task(rules, 1);
  do_task(rules, 0);
  const std::vector<Push> rest = rules.take_rest();
  EXPECT_THAT(rest, ElementsAre(Push{1, 0, 0}, Push{0, 0, 0}));
  rules.updated(rest);
  EXPECT_EQ(rules.updates(), 1);
  EXPECT_THAT(rules.take_rest(), IsEmpty());
}

std::vector<Push> take_complete(Consistency& rules) {
  std::vector<Push> with = rules.take_complete();
  if (!with.empty()) rules.updated(with);
  return with;
}

TEST(ConsistencyTest, NobodyWaitsForAWorkerThatIsForgotten) {
  Consistency rules(3, {});
  do_task(rules, 0);
  do_task(rules, 1);
  EXPECT_THAT(rules.take_complete(), IsEmpty());
  EXPECT_FALSE(rules.may_start(0));
  rules.forget(2);
  EXPECT_THAT(take_complete(rules), ElementsAre(Push{0, 0, 0}, Push{1, 0, 0}));
  EXPECT_THAT(take_complete(rules), IsEmpty());
  do_task(rules, 1);
  EXPECT_THAT(do_task(rules, 0), ElementsAre(Push{0, 1, 1}, Push{1, 1, 1}));
}

TEST(ConsistencyTest, AGradientOfAForgottenWorkerCountsAndStandsForNobodyElses) {
  Consistency rules(3, {});
  do_task(rules, 2);
  do_task(rules, 0);
  rules.forget(2);
  EXPECT_THAT(rules.take_complete(), IsEmpty());
  EXPECT_THAT(do_task(rules, 1), ElementsAre(Push{0, 0, 0}, Push{1, 0, 0}, Push{2, 0, 0}));
}

TEST(ConsistencyTest, TasksThatWaitedForAForgottenWorkerAreCompleteInTheirOrder) {
  Consistency rules(3, {.delay = 2, .pushes = 0});
  for (const int worker : {1, 0})
    for (int t = 0; t < 3; ++t) do_task(rules, worker);
  EXPECT_FALSE(rules.may_start(0));
  rules.forget(2);
  for (int64_t t = 0; t < 3; ++t) EXPECT_THAT(take_complete(rules), ElementsAre(Push{0, t, 0}, Push{1, t, 0}));
  EXPECT_TRUE(rules.may_start(0));
}

TEST(ConsistencyTest, ALeadIsOverTheSlowestOfThoseThatAreLeft) {
  Consistency rules(3, {.delay = 1, .pushes = 1});
  do_task(rules, 0);
  do_task(rules, 0);
  EXPECT_FALSE(rules.may_start(0));
  rules.forget(1);
  EXPECT_FALSE(rules.may_start(0));
  do_task(rules, 2);
  EXPECT_TRUE(rules.may_start(0));
}

TEST(ConsistencyTest, SomebodyMustBeWaitedFor) {
  EXPECT_THAT(message_of([] { Consistency(2, {.backup = 2}); }), HasSubstr("wanted fewer than the 2 workers"));
}

TEST(ConsistencyTest, SaysWhatItIs) {
  EXPECT_EQ(ConsistencyRules().text(), "synchronous");
  EXPECT_EQ((ConsistencyRules{.delay = 4, .pushes = 1}.text()), "delay of at most 4, an update for every push");
  EXPECT_EQ((ConsistencyRules{.delay = kNoBound, .pushes = 3}.text()), "unbounded delay, an update for every 3 pushes");
  EXPECT_EQ((ConsistencyRules{.backup = 2}.text()), "synchronous, 2 backup workers");
}

}  // namespace
}  // namespace owt::consistency_test
