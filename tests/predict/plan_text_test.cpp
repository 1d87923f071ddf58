// The tables and sentences about plans and networks, read back and compared with their figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/plan/plan_table.h"
#include "src/predict/network.h"
#include "tests/support/message_of.h"
#include "tests/support/plans.h"

namespace owt::plan_text_test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

// 30 x 1000 weights (0.12 MB), then 1000 x 10 (0.04 MB: four decimals).
constexpr auto kTwoDense = R"(
name = "two"
input = [1, 5, 6]
classes = 10
[[layer]]
name = "wide"
type = "dense"
out = 1000
bias = false
[[layer]]
name = "narrow"
type = "dense"
out = 10
bias = false
)";

TEST(PlanTable, HasOneRowPerLayerWithSharesMegabytesAndFlops) {
  const Plan one = plan_of(kTwoDense, {.ranks = 1, .step_rows = 1000});
  const std::string table = plan_table(one);
  EXPECT_THAT(table, HasSubstr("two on 1 worker under "));
  EXPECT_THAT(table, HasSubstr("1000 rows per step (1000 per worker)"));
  // Two FLOPs per weight and row in forward, as many for the weight gradient, and for the input gradient if there is a
  // layer before it.
  EXPECT_THAT(table, ContainsRegex("wide +dense .* 0\\.12 +0\\.12 +0\\.120\n"));
  EXPECT_THAT(table, ContainsRegex("narrow +dense .* 0\\.0400 +0\\.0400 +0\\.060\n"));
}

TEST(PlanTable, OfPartsOfTwoSizesNamesBothAndTheWeightsOfTheLargest) {
  const Plan four = plan_of(kTwoDense, {.ranks = 4, .strategy = Strategy::kOwtA, .step_rows = 8});
  const LayerPlan narrow = layer(four, "narrow");
  ASSERT_EQ(narrow.parts.size(), 4U);
  EXPECT_THAT(plan_table(four), HasSubstr("two on 4 workers under "));
  EXPECT_THAT(plan_table(four), ContainsRegex("wide .* 250 of 1000 +0\\.12 +0\\.0300 "));
  ASSERT_FALSE(narrow.by_inputs());
  EXPECT_THAT(plan_table(four), ContainsRegex("narrow .* 2-3 of 10 +0\\.0400 +0\\.0120 "));
  EXPECT_EQ(narrow.kept_elements(), 3) << "of the rank with the most";
  EXPECT_EQ(layer(four, "wide").kept_elements(), 250);
}

TEST(PlanTable, NamesMicroBatchesAndCountsTheirRounds) {
  const PlanRequest request{.ranks = 2, .strategy = Strategy::kOwtC, .step_rows = 16, .slices = 4};
  EXPECT_THAT(plan_table(plan_of(kTwoDense, request)),
              HasSubstr("16 rows per step (8 per worker), 4 micro-batches, 8 rounds, dense update every step\n"));
}

TEST(Plan, RefusesMoreMicroBatchesThanAWorkerHasRows) {
  const auto message = [](const PlanRequest& request) { return message_of([&] { plan_of(kTwoDense, request); }); };
  EXPECT_EQ(message({.ranks = 2, .strategy = Strategy::kOwtA, .step_rows = 9, .slices = 6}),
            "data.accumulate is 6, and a worker has 5 rows per step at most; use 5 or less");
  EXPECT_EQ(message({.ranks = 2, .strategy = Strategy::kModelParallel, .step_rows = 9, .slices = 9}), "");
}

TEST(Plan, RefusesMicroBatchesOfAPipeline) {
  const PlanRequest request{.ranks = 2, .strategy = Strategy::kPipeline, .step_rows = 16, .slices = 2};
  EXPECT_THAT(
      message_of([&] { plan_of(kTwoDense, request); }),
      HasSubstr("data.accumulate is 2, but a pipeline already accumulates the gradients of its micro-batches; use "
                "pipeline.micro_batches, or another strategy"));
}

TEST(Plan, LayersWithoutWeightsMayMixWhatADenseLayerSplits) {
  const std::string relus =
      "[[layer]]\nname = \"r\"\ntype = \"residual\"\nbody = [{ name = \"relu\", type = \"relu\" }]\n";
  const Model model = model_of(kTwoDense + relus);
  EXPECT_NO_THROW(make_plan(model, {.ranks = 2, .strategy = Strategy::kOwtA, .step_rows = 4}));
}

TEST(Network, SaysWhetherCollectivesOverlapAndWhichLinksItHas) {
  Network network;
  network.ranks_per_host = 4;
  network.local = {20e-6, 3e9};
  network.between = {50e-6, 1e9};
  for (const bool overlaps : {false, true}) {
    network.overlaps = overlaps;
    network.hosts = 1;
    const auto sentence = HasSubstr("; collectives do not overlap computation");
    EXPECT_EQ(testing::Value(network.text(), sentence), !overlaps) << network.text();
    EXPECT_THAT(network.text(), HasSubstr("1 host with 4 workers: within a host 20 us, 3000 MB/s"));
    EXPECT_THAT(network.text(), Not(HasSubstr("between hosts")));
    network.hosts = 2;
    EXPECT_THAT(
        network.text(),
        HasSubstr("2 hosts with 4 workers each: within a host 20 us, 3000 MB/s; between hosts 50 us, 1000 MB/s"));
  }
}

}  // namespace
}  // namespace owt::plan_text_test
