#include "src/train/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/system/check.h"
#include "tests/support/alike_steps.h"
#include "tests/support/models.h"

namespace owt::advice_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Most of its weights are dense: data parallelism sends 4.2 MB of gradients, the trick some activations.
Model large_dense() {
  return model_of("[3, 8, 8]", 10, R"(
  { name = "conv1", type = "conv", out = 4, kernel = 3 },
  { name = "fc1", type = "dense", out = 2048 },
  { name = "fc2", type = "dense", out = 512 },
  { name = "fc3", type = "dense", out = 10 })");
}

Plan plan_of(Strategy strategy, int ranks = 4) {
  return make_plan(large_dense(), {.ranks = ranks, .strategy = strategy, .step_rows = 8 * ranks});
}

// Ranks whose layers take a millisecond for each pass and almost nothing for updates, with transfers as fast as such a
// link allows.
StepTimes on_link(const Plan& plan, double bytes_per_ms, int hosts, double latency_ms = 0.01) {
  RankTimes rank;
  for (const LayerPlan& layer : plan.layers)
    for (const Phase phase : {Phase::kForward, Phase::kBackward, Phase::kUpdate})
      rank.rows.push_back({layer.name, phase, phase == Phase::kUpdate ? 0.01 : 1});
  for (const Transfer& transfer : plan.transfers) {
    const int messages = (transfer.collective == Collective::kAllReduce ? 2 : 1) * (plan.ranks() - 1) * transfer.calls;
    const double ms = static_cast<double>(transfer.bytes) / bytes_per_ms + latency_ms * messages;
    rank.rows.push_back({transfer.name, Phase::kTransfer, ms, ms, transfer.bytes});
  }
  for (const RowTimes& row : rank.rows) rank.step_ms += row.ms;
  std::vector<RankTimes> ranks(static_cast<size_t>(plan.ranks()), rank);
  for (size_t r = 0; r < ranks.size(); ++r) ranks[r].host = concat("h", r % static_cast<size_t>(hosts));
  return alike_steps(ranks);
}

TEST(NetworkSeen, HasTheLatencyOfTheResultAndTheRateOfTheMostBytes) {
  const Plan plan = plan_of(Strategy::kDataParallel);
  for (const int hosts : {1, 4}) {
    const std::optional<Network> network = network_seen(plan, on_link(plan, 1e4, hosts));
    ASSERT_TRUE(network);
    EXPECT_EQ(network->hosts, hosts);
    EXPECT_EQ(network->ranks(), 4);
    EXPECT_NEAR(network->local.bytes_per_s, 1e7, 0.02e7);
    EXPECT_NEAR(network->between.latency_s, 1e-5, 0.2e-5);
  }
}

TEST(NetworkSeen, IsUnknownOfOneRankAndOfLinksOfTwoKinds) {
  EXPECT_FALSE(network_seen(plan_of(Strategy::kDataParallel, 1), on_link(plan_of(Strategy::kDataParallel, 1), 1e4, 1)));
  const Plan plan = plan_of(Strategy::kDataParallel);
  EXPECT_FALSE(network_seen(plan, on_link(plan, 1e4, 2)));
}

TEST(Advice, NamesAStrategyThatIsPredictedToBeFaster) {
  const Plan plan = plan_of(Strategy::kDataParallel);
  const StepTimes slow = on_link(plan, 1e4, 4);
  const Bottleneck found = explain_step(large_dense(), plan, slow);
  EXPECT_THAT(found.text(), HasSubstr("waiting for `gradients`"));
  EXPECT_THAT(found.advice, StartsWith("Try --parallel "));
  EXPECT_THAT(found.text(), HasSubstr(found.advice));
  // The advice does not reject a strategy that it recommends.
  std::vector<std::string> others;
  for (const Strategy strategy : all_strategies())
    if (found.advice.starts_with(concat("Try --parallel ", name_of(strategy), " ")))
      others.push_back(name_of(strategy));
  ASSERT_EQ(others.size(), 1u) << found.advice;
  EXPECT_NE(others.front(), "dp");
}

TEST(Advice, IsNotGivenWhereNothingIsPredictedToBeMuchFaster) {
  const Plan plan = plan_of(Strategy::kDataParallel);
  EXPECT_EQ(explain_step(large_dense(), plan, on_link(plan, 1e9, 1, 1e-6)).advice, "");
}

TEST(Advice, IsNotGivenWhereTheLinksAreNotKnown) {
  const Plan plan = plan_of(Strategy::kDataParallel);
  EXPECT_EQ(explain_step(large_dense(), plan, on_link(plan, 1e4, 2)).advice, "");
  const Plan one = plan_of(Strategy::kDataParallel, 1);
  EXPECT_EQ(explain_step(large_dense(), one, on_link(one, 1e4, 1)).advice, "");
}

// The planner's ranks are alike, and the mean of these is no rank.
TEST(Advice, IsNotGivenWhereARankIsSlow) {
  const Plan plan = plan_of(Strategy::kDataParallel);
  std::vector<RankTimes> ranks = on_link(plan, 1e4, 4).middle;
  for (RowTimes& row : ranks[1].rows)
    if (row.phase == Phase::kForward) ranks[1].step_ms += 200, row.ms += 200;
  const Bottleneck found = explain_step(large_dense(), plan, alike_steps(ranks));
  EXPECT_THAT(found.text(), HasSubstr("waiting for rank 1"));
  EXPECT_EQ(found.advice, "");
}

TEST(Advice, LinksThatWereMeasuredAreShownBesideWhatWasReached) {
  const Plan plan = plan_of(Strategy::kDataParallel);
  Network links;
  links.hosts = 4;
  links.local = links.between = {1e-5, 2e7};
  EXPECT_THAT(explain_step(large_dense(), plan, on_link(plan, 1e4, 4), links).text(),
              testing::ContainsRegex("MB at 7[0-9.]+ of 1[56][0-9.]+ Mbit/s|MB at 79.* Mbit/s of 0.1[56] Gbit/s"));
}

}  // namespace
}  // namespace owt::advice_test
