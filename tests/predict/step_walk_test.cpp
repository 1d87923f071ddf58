#include "src/predict/step_walk.h"

#include <gtest/gtest.h>

#include "tests/support/models.h"

namespace owt::step_walk_test {
namespace {

// Every layer's action takes a second times the rank's slowness, every transfer two; a rank does something before.
class Seconds : public ActionTimes {
 public:
  explicit Seconds(std::vector<double> slowness) : slowness_(std::move(slowness)) {}
  double transfer(int, const Action&) const override { return 2; }
  double compute(int rank, const Action& action) const override {
    if (action.kind == Action::Kind::kStart || action.kind == Action::Kind::kLoss) return 0;
    return slowness_[static_cast<size_t>(rank)];
  }
  double before(int rank) const override { return rank == 0 ? first : 0; }

  double first = 0;  // before rank 0 begins

 private:
  std::vector<double> slowness_;
};

// dp: forward of conv, relu and fc; backward of fc, which is two actions, of relu and of conv, another two; an update.
Plan two_ranks() {
  return make_plan(tiny_model(),
                   {.ranks = 2, .strategy = Strategy::kDataParallel, .step_rows = 8, .bucket_bytes = 1 << 20});
}

int actions_that_compute(const Plan& plan) {
  int count = 0;
  for (const Action& action : training(plan, 8))
    count +=
        action.kind != Action::Kind::kStart && action.kind != Action::Kind::kWait && action.kind != Action::Kind::kLoss;
  return count;
}

StepWalk walk_two(const Plan& plan, const ActionTimes& times, bool overlaps) {
  return walk(plan, {.ranks = {0, 1}, .overlaps = overlaps}, times);
}

// Gradients are sent in one bucket before the update, the result after it.
TEST(StepWalk, ACollectiveBeginsWhenTheLastRankHasCome) {
  const Plan plan = two_ranks();
  const int count = actions_that_compute(plan);
  for (const bool overlaps : {false, true}) {
    const StepWalk step = walk_two(plan, Seconds({1, 3}), overlaps);
    EXPECT_DOUBLE_EQ(step.end_s(), 3 * count + 4);
    for (const StepWalk::Rank& rank : step.ranks) EXPECT_DOUBLE_EQ(rank.end_s, step.end_s());
    EXPECT_DOUBLE_EQ(step.ranks[0].busy_s(), count);
    EXPECT_DOUBLE_EQ(step.ranks[0].exposed_s, 2 * count + 4);
    EXPECT_DOUBLE_EQ(step.ranks[1].exposed_s, 4);
    EXPECT_DOUBLE_EQ(step.ranks[1].sent_s, 4);
  }
}

TEST(StepWalk, WhatComesBeforeTheFirstActionDelaysTheOthersToo) {
  const Plan plan = two_ranks();
  Seconds seconds({1, 1});
  seconds.first = 5;
  const StepWalk step = walk_two(plan, seconds, true);
  EXPECT_DOUBLE_EQ(step.end_s(), 5 + actions_that_compute(plan) + 4);
  ASSERT_FALSE(step.path.empty());
  EXPECT_FALSE(step.path.front().action.has_value());
  EXPECT_EQ(step.path.front().rank, 0);
  EXPECT_EQ(step.path.front().end_s, 5);
}

// The critical path runs through the slower rank; a transfer on the path is that rank's.
TEST(StepWalk, ThePathIsThatOfTheRankThatOthersWaitFor) {
  const Plan plan = two_ranks();
  const StepWalk step = walk_two(plan, Seconds({1, 3}), true);
  double at = 0, transfers = 0;
  for (const OnPath& part : step.path) {
    EXPECT_DOUBLE_EQ(part.begin_s, at);
    EXPECT_EQ(part.rank, 1);
    at = part.end_s;
    if (part.action->kind == Action::Kind::kStart) transfers += part.end_s - part.begin_s;
  }
  EXPECT_DOUBLE_EQ(at, step.end_s());
  EXPECT_DOUBLE_EQ(transfers, 4);
}

// On a GPU updates, and the transfers that they wait for, run beside later work.
TEST(StepWalk, ThePathComesToAnEndWhereSomethingRunsBeside) {
  PlanRequest request{.ranks = 2, .step_rows = 8, .bucket_bytes = 1};
  request.on = {Device::kCuda, Precision::kBf16};
  request.beside_from = 1;
  for (const Strategy strategy : all_strategies()) {
    request.strategy = strategy;
    if (facts_of(strategy).rounds == Rounds::kEqualParts) continue;
    const StepWalk step = walk(make_plan(tiny_model(), request), {.ranks = {0, 1}, .in_turn = false}, Seconds({1, 2}));
    ASSERT_FALSE(step.path.empty()) << name_of(strategy);
    EXPECT_EQ(step.path.front().begin_s, 0) << name_of(strategy);
    for (size_t i = 1; i < step.path.size(); ++i)
      EXPECT_LE(step.path[i - 1].end_s, step.path[i].begin_s + 1e-12) << name_of(strategy);
    EXPECT_DOUBLE_EQ(step.path.back().end_s, step.end_s()) << name_of(strategy);
  }
}

// A rank that represents others is simulated alone.
TEST(StepWalk, OneRankWaitsForNobody) {
  const Plan plan = two_ranks();
  const StepWalk step = walk(plan, {.ranks = {0}}, Seconds({1}));
  ASSERT_EQ(step.ranks.size(), 1u);
  EXPECT_DOUBLE_EQ(step.end_s(), actions_that_compute(plan) + 4);
}

}  // namespace
}  // namespace owt::step_walk_test
