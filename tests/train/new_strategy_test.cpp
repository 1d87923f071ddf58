// A custom strategy is a function in terms of step_order.h and an entry of facts; no other code knows it. The entry may
// have functions of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/plan/plan_table.h"
#include "src/plan/step_order.h"
#include "src/predict/step_price.h"
#include "src/system/check.h"
#include "tests/support/fixed_compute.h"
#include "tests/support/message_of.h"
#include "tests/support/models.h"
#include "tests/support/runs.h"

namespace owt::new_strategy_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Like owt-c, but the rows of a round are gathered when the round runs, not one round ahead.
void one_round_at_a_time(StepOrder& step) {
  step.start_labels();
  step.forward_front();
  for (int round = 0; round < step.rounds(); ++round) {
    step.bring_rows(round);
    step.wait_for_rows(round);
    step.forward_dense(round);
    step.loss(round);
    step.backward_dense(round);
    step.update_after(round);
  }
  step.wait_for_home();
  step.backward_front();
  step.update_dense();
  step.update_front();
}

void refuse_many_micro_batches(const Plan& plan) {
  if (plan.request.slices > 1000) fail("in-turn takes at most 1000 micro-batches; use owt-c");
}

Strategy in_turn() {
  static const Strategy added =
      add_strategy({.name = "in-turn",
                    .help = "as owt-c, one round at a time",
                    .rounds = Rounds::kAPartOfEach,
                    .splits_dense = true,
                    .order = one_round_at_a_time,
                    .check = refuse_many_micro_batches,
                    .note = [](const Plan&) -> std::string { return "one after the other"; }});
  return added;
}

TEST(NewStrategy, IsFoundByItsNameAndListed) {
  const Strategy added = in_turn();
  EXPECT_EQ(strategy_from("in-turn"), added);
  EXPECT_THAT(strategy_list(), HasSubstr("pipeline | in-turn"));
}

TEST(NewStrategy, LearnsWhatOneRankLearnsAndSendsTheBytesOfThePlan) {
  in_turn();
  const SmallRun one = run_small(kSmallRecipe, 8);
  for (const char* workers : {"2", "3"}) {
    const SmallRun many = run_small(kSmallRecipe, 8, {{"parallel.workers", workers}, {"parallel.strategy", "in-turn"}});
    const SmallRun ahead = run_small(kSmallRecipe, 8, {{"parallel.workers", workers}, {"parallel.strategy", "owt-c"}});
    ASSERT_EQ(many.losses.size(), one.losses.size());
    for (size_t i = 0; i < one.losses.size(); ++i) EXPECT_NEAR(many.losses[i], one.losses[i], 1e-4 * one.losses[i]);
    EXPECT_EQ(many.losses, ahead.losses);  // to the last bit: only the order is another
    EXPECT_EQ(many.bytes, many.planned_of_ranks);
  }
}

TEST(NewStrategy, IsAskedForItsChecksAndItsNote) {
  PlanRequest request{.ranks = 2, .strategy = in_turn(), .step_rows = 4000};
  EXPECT_THAT(plan_notes(make_plan(tiny_model(), request)), ElementsAre("one after the other"));
  request.slices = 1001;
  EXPECT_THAT(message_of([&] { make_plan(tiny_model(), request); }), HasSubstr("at most 1000"));
  request.ranks = 1;  // dp answers, since one worker has nothing to split
  EXPECT_THAT(plan_notes(make_plan(tiny_model(), request)), IsEmpty());
}

TEST(NewStrategy, IsPricedByItsOrder) {
  Network network;
  network.ranks_per_host = 2;
  network.local = {0, 96};
  const FixedCompute compute({{1, 2, 0.5}, {0, 0, 0}, {3, 4, 1}}, 0.25);
  const auto seconds = [&](Strategy strategy) {
    return price_step(make_plan(tiny_model(), {.ranks = 2, .strategy = strategy, .step_rows = 8}), network, compute)
        .step_s();
  };
  EXPECT_GT(seconds(in_turn()), seconds(Strategy::kOwtC));
}

}  // namespace
}  // namespace owt::new_strategy_test
