// The plans of AlexNet, against formulas for the layers of the paper.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "src/plan/plan_bytes.h"
#include "src/plan/plan_rows.h"
#include "src/plan/plan_table.h"
#include "tests/support/alexnet.h"
#include "tests/support/plans.h"

namespace owt::plan_of_alexnet_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::Not;

constexpr int64_t kRows = 128;  // per rank
constexpr int64_t kOthers = 7;  // the other ranks of 8

Plan alexnet(Strategy strategy, int ranks = 8) {
  return plan_of(kAlexNet, {.ranks = ranks, .strategy = strategy, .step_rows = kRows * ranks});
}

TEST(PlanOfAlexNet, PutsTheBoundaryBeforeTheFirstDenseLayer) {
  const Plan plan = alexnet(Strategy::kOwtA);
  EXPECT_EQ(boundary_name(plan), "fc6");
  EXPECT_EQ(layer(plan, "fc6").in, (Shape{6, 6, 256}));
  EXPECT_EQ(layer(plan, "drop6").layout, Layout::kBatch);
  EXPECT_EQ(layer(plan, "conv1").layout, Layout::kBatch);
  EXPECT_TRUE(plan.front_learns());
  EXPECT_EQ(plan.front_layout(), Layout::kBatch);
  EXPECT_EQ(plan.loss_layout(), Layout::kFeature);  // ten numbers a row are less than 125 logits
}

TEST(PlanOfAlexNet, SplitsTheDenseLayersByOutputFeatures) {
  const Plan plan = alexnet(Strategy::kOwtA);
  for (int r = 0; r < 8; ++r) {
    const size_t rank = static_cast<size_t>(r);
    EXPECT_EQ(layer(plan, "fc6").parts.at(rank), (Slice{512 * r, 512 * (r + 1)}));
    EXPECT_EQ(layer(plan, "fc8").parts.at(rank), (Slice{125 * r, 125 * (r + 1)}));
  }
  // Layers that work on any subset of columns follow the split of the layer before them.
  EXPECT_EQ(layer(plan, "drop7").parts, layer(plan, "fc6").parts);
  EXPECT_EQ(layer(plan, "relu7").layout, Layout::kFeature);
  EXPECT_FALSE(layer(plan, "drop7").gather_before);
  EXPECT_FALSE(layer(plan, "fc6").gather_before);
  EXPECT_TRUE(layer(plan, "fc7").gather_before);
  EXPECT_TRUE(layer(plan, "fc8").gather_before);
}

TEST(PlanOfAlexNet, CountsItsParametersAndOperations) {
  const Plan plan = alexnet(Strategy::kOwtA);
  int64_t elements = 0;
  for (const LayerPlan& at : plan.layers) elements += at.weight_bytes / 4;
  EXPECT_EQ(elements, kAllParams);
  EXPECT_EQ(weight_bytes_per_rank(plan), 4 * (kConvParams + (kFc6Params + kFc7Params + kFc8Params) / 8));
  EXPECT_EQ(layer(plan, "conv1").flops_per_row, 2.0 * 55 * 55 * 64 * 11 * 11 * 3);
  EXPECT_EQ(layer(plan, "fc6").flops_per_row, 2.0 * 9216 * 4096);
}

// The formulas for a ring: all_gather and reduce_scatter send (K-1)/K of the whole, all_reduce twice that.
TEST(PlanOfAlexNet, SendsTheBytesOfTheFormulas) {
  const auto bytes = bytes_of(alexnet(Strategy::kOwtA));
  EXPECT_THAT(bytes, ElementsAre(std::pair("fc6 input", kOthers * kRows * 9216 * 4),
                                 std::pair("fc6 input gradient", kOthers * kRows * 9216 * 4),
                                 std::pair("fc7 input", kOthers * kRows * 4096 * 4),
                                 std::pair("fc7 input gradient", kOthers * kRows * 4096 * 4),
                                 std::pair("fc8 input", kOthers * kRows * 4096 * 4),
                                 std::pair("fc8 input gradient", kOthers * kRows * 4096 * 4),
                                 std::pair("gradients", 2 * kOthers * kConvParams * 4 / 8),
                                 std::pair("labels", kOthers * kRows * 4),
                                 std::pair("loss statistics", kOthers * 1024 * 10 * 4),
                                 std::pair("step result", 2 * kOthers * 40 / 8)));
  EXPECT_EQ(bytes_per_step(alexnet(Strategy::kOwtA)), 142'358'790);
}

TEST(PlanOfAlexNet, InBf16ActivationsTakeHalfTheBytesAndGradientsOfWeightsTheSame) {
  PlanRequest request = alexnet(Strategy::kOwtA).request;
  request.on.precision = Precision::kBf16;
  const auto half = bytes_of(plan_of(kAlexNet, request)), full = bytes_of(alexnet(Strategy::kOwtA));
  ASSERT_EQ(half.size(), full.size());
  for (const auto& [name, bytes] : full) {
    const bool same = name == "gradients" || name == "labels" || name == "loss statistics" || name == "step result";
    EXPECT_EQ(half.at(name), same ? bytes : bytes / 2) << name;
  }
}

TEST(PlanOfAlexNet, MovesBetweenTheLayoutsOfTheDesign) {
  const Plan plan = alexnet(Strategy::kOwtC);
  const auto moves = [&](const std::string& name) {
    const Transfer& t = transfer(plan, name);
    return concat(name_of(t.collective), " ", name_of(t.from), " ", name_of(t.to));
  };
  EXPECT_EQ(moves("fc6 input"), "all_gather batch replicated");
  EXPECT_EQ(moves("fc6 input gradient"), "reduce_scatter partial batch");
  EXPECT_EQ(moves("fc7 input"), "all_gather feature replicated");
  EXPECT_EQ(moves("fc7 input gradient"), "reduce_scatter partial feature");
  EXPECT_EQ(moves("loss statistics"), "all_gather feature replicated");
  EXPECT_EQ(moves("gradients"), "all_reduce partial replicated");
  EXPECT_THAT(bytes_of(plan), Not(Contains(Key("logits"))));
}

TEST(PlanOfAlexNet, SchemesSendTheSameBytesInMoreCalls) {
  const Plan a = alexnet(Strategy::kOwtA), b = alexnet(Strategy::kOwtB), c = alexnet(Strategy::kOwtC);
  EXPECT_EQ(bytes_of(b), bytes_of(a));
  EXPECT_EQ(bytes_of(c), bytes_of(a));
  for (const char* name : {"fc6 input", "fc6 input gradient", "fc7 input", "loss statistics"}) {
    EXPECT_EQ(transfer(a, name).calls, 1) << name;
    EXPECT_EQ(transfer(b, name).calls, 8) << name;
    EXPECT_EQ(transfer(c, name).calls, 8) << name;
  }
  EXPECT_EQ(transfer(c, "labels").calls, 1);
  EXPECT_EQ(transfer(b, "fc6 input").collective, Collective::kBroadcast);
  EXPECT_EQ(transfer(b, "fc6 input gradient").collective, Collective::kReduce);
}

TEST(PlanOfAlexNet, DataParallelSendsEveryGradientTwice) {
  const Plan plan = alexnet(Strategy::kDataParallel);
  EXPECT_FALSE(plan.split());
  EXPECT_EQ(plan.loss_layout(), Layout::kBatch);
  int64_t buckets = 0;
  for (const Bucket& bucket : plan.buckets) buckets += bucket.elements * 4 * 2 * kOthers / 8;
  EXPECT_EQ(transfer(plan, "gradients").bytes, buckets);
  EXPECT_EQ(buckets, 427'705'880);  // 2 * 7 / 8 * 4 * 61,100,840; no bucket has a remainder
  EXPECT_THAT(bytes_of(plan), ElementsAre(Key("gradients"), Key("step result")));
  EXPECT_EQ(weight_bytes_per_rank(plan), kAllParams * 4);
}

TEST(PlanOfAlexNet, ModelParallelSeesTheWholeBatchEverywhere) {
  const Plan plan = alexnet(Strategy::kModelParallelDense);
  EXPECT_EQ(plan.front_layout(), Layout::kReplicated);
  EXPECT_EQ(layer(plan, "conv1").layout, Layout::kReplicated);
  EXPECT_EQ(transfer(plan, "fc6 input gradient").collective, Collective::kAllReduce);
  // All ranks use rank 0's gradients, so that hosts that round differently keep equal copies of the convolutions.
  EXPECT_EQ(transfer(plan, "gradient copies").collective, Collective::kBroadcast);
  EXPECT_THAT(bytes_of(plan), ElementsAre(std::pair("fc6 input gradient", 2 * kOthers * kRows * 9216 * 4),
                                          std::pair("fc7 input", kOthers * kRows * 4096 * 4),
                                          std::pair("fc7 input gradient", kOthers * kRows * 4096 * 4),
                                          std::pair("fc8 input", kOthers * kRows * 4096 * 4),
                                          std::pair("fc8 input gradient", kOthers * kRows * 4096 * 4),
                                          std::pair("gradient copies", kOthers * kConvParams * 4 / 8),
                                          std::pair("loss statistics", kOthers * 1024 * 10 * 4),
                                          std::pair("step result", 2 * kOthers * 40 / 8)));
}

TEST(PlanOfAlexNet, ModelParallelMovesTheChannelsOfEveryPixel) {
  const Plan plan = alexnet(Strategy::kModelParallel);
  EXPECT_EQ(plan.front_layout(), Layout::kReplicated);
  EXPECT_EQ(plan.boundary, 0);
  EXPECT_EQ(layer(plan, "conv1").layout, Layout::kFeature);
  EXPECT_EQ(layer(plan, "conv1").parts.at(7), (Slice{56, 64}));
  EXPECT_EQ(layer(plan, "pool5").parts.at(7), (Slice{224, 256}));
  EXPECT_EQ(layer(plan, "drop6").layout, Layout::kReplicated);
  EXPECT_EQ(weight_bytes_per_rank(plan), kAllParams * 4 / 8);
  EXPECT_DOUBLE_EQ(layer(plan, "conv1").share(), 1.0 / 8);
  // A row's channels at each pixel, there and the gradients' back; the images are there and have none.
  const auto both_ways = [](const std::string& name, int64_t elements) {
    const int64_t bytes = kOthers * kRows * elements * 4;
    return std::map<std::string, int64_t>{{name + " input", bytes}, {name + " input gradient", bytes}};
  };
  std::map<std::string, int64_t> wanted{{"loss statistics", kOthers * 1024 * 10 * 4},
                                        {"step result", 2 * kOthers * 40 / 8}};
  wanted.merge(both_ways("conv2", 27 * 27 * 64));
  wanted.merge(both_ways("conv3", 13 * 13 * 192));
  wanted.merge(both_ways("conv4", 13 * 13 * 384));
  wanted.merge(both_ways("conv5", 13 * 13 * 256));
  wanted.merge(both_ways("drop6", 6 * 6 * 256));
  wanted.merge(both_ways("fc7", 4096));
  wanted.merge(both_ways("fc8", 4096));
  EXPECT_EQ(bytes_of(plan), wanted);
}

TEST(PlanOfAlexNet, OneRankSendsNothing) {
  for (const std::string& name : strategy_names()) {
    const Plan plan = alexnet(strategy_from(name), 1);
    EXPECT_EQ(bytes_per_step(plan), 0) << name;
    EXPECT_FALSE(plan.split()) << name;
    EXPECT_EQ(weight_bytes_per_rank(plan), kAllParams * 4) << name;
  }
}

TEST(PlanOfAlexNet, TheTableNamesEveryLayerAndTransfer) {
  const Plan plan = alexnet(Strategy::kOwtB);
  const std::string table = plan_table(plan);
  for (const LayerPlan& at : plan.layers) EXPECT_THAT(table, HasSubstr("\n" + at.name + " "));
  for (const Transfer& t : plan.transfers) {
    EXPECT_THAT(table, HasSubstr("\n" + t.name + " "));
    EXPECT_THAT(table, HasSubstr(" " + std::to_string(t.bytes) + " "));
  }
  EXPECT_THAT(table, HasSubstr("alexnet on 8 workers under owt-b, 1024 rows per step (128 per worker), 8 rounds"));
  EXPECT_THAT(table, HasSubstr("-- boundary --\nfc6 "));
  EXPECT_THAT(table, HasSubstr("512 of 4096"));
  EXPECT_THAT(table, HasSubstr(" 142358790 "));
}

// The inputs of fc6 (9216 values to 4096) and fc8 (4096 to 1000) are not gathered; their outputs are summed.
TEST(PlanOfAlexNet, UnderOwtDLayersAreSplitByTheSideThatSendsLess) {
  const Plan plan = alexnet(Strategy::kOwtD);
  EXPECT_TRUE(layer(plan, "fc6").by_inputs());
  EXPECT_FALSE(layer(plan, "fc7").by_inputs());
  EXPECT_TRUE(layer(plan, "fc8").by_inputs());
  for (int r = 0; r < 8; ++r) {
    const auto rank = static_cast<size_t>(r);
    EXPECT_EQ(layer(plan, "fc6").inputs.at(rank), (Slice{1152 * r, 1152 * (r + 1)}));
    EXPECT_EQ(layer(plan, "fc8").inputs.at(rank), (Slice{512 * r, 512 * (r + 1)}));
  }
  EXPECT_EQ(layer(plan, "relu6").layout, Layout::kFeature);
  EXPECT_EQ(layer(plan, "relu6").parts, layer(alexnet(Strategy::kOwtA), "relu6").parts);
  EXPECT_TRUE(layer(plan, "fc7").gather_before);
  EXPECT_FALSE(layer(plan, "fc8").gather_before);
  EXPECT_EQ(plan.loss_layout(), Layout::kFeature);
  EXPECT_EQ(plan.front_layout(), Layout::kBatch);
  EXPECT_EQ(layer(alexnet(Strategy::kOwtA), "fc6").inputs.size(), 0u);
}

TEST(PlanOfAlexNet, UnderOwtDSendsTheBytesOfTheFormulas) {
  const Plan plan = alexnet(Strategy::kOwtD);
  EXPECT_THAT(bytes_of(plan), ElementsAre(std::pair("fc6 input", kOthers * kRows * 9216 * 4 / 8),
                                          std::pair("fc6 input gradient", kOthers * kRows * 9216 * 4 / 8),
                                          std::pair("fc6 output", kOthers * kRows * 4096 * 4),
                                          std::pair("fc6 output gradient", kOthers * kRows * 4096 * 4),
                                          std::pair("fc7 input", kOthers * kRows * 4096 * 4),
                                          std::pair("fc7 input gradient", kOthers * kRows * 4096 * 4),
                                          std::pair("fc8 output", kOthers * kRows * 1000 * 4),
                                          std::pair("fc8 output gradient", kOthers * kRows * 1000 * 4),
                                          std::pair("gradients", 2 * kOthers * kConvParams * 4 / 8),
                                          std::pair("labels", kOthers * kRows * 4),
                                          std::pair("loss statistics", kOthers * 1024 * 10 * 4),
                                          std::pair("step result", 2 * kOthers * 40 / 8)));
  // Sent activations in MiB: 70.7; gathering rows sends 119, and gradients under dp 391.
  const auto dense_mib = [](const Plan& of) {
    int64_t bytes = 0;
    for (const Transfer& t : of.transfers)
      if (t.name.starts_with("fc")) bytes += t.bytes;
    return static_cast<double>(bytes) / (1 << 20);
  };
  EXPECT_NEAR(dense_mib(plan), 70.71, 0.01);
  EXPECT_NEAR(dense_mib(alexnet(Strategy::kOwtA)), 119.0, 0.01);
  EXPECT_NEAR(2.0 * kOthers / 8 * 4 * (kFc6Params + kFc7Params + kFc8Params) / (1 << 20), 391.4, 0.1);
}

TEST(PlanOfAlexNet, UnderOwtDMovesAreMirrorImages) {
  const Plan plan = alexnet(Strategy::kOwtD);
  const auto moves = [&](const std::string& name) {
    const Transfer& t = transfer(plan, name);
    return concat(name_of(t.collective), " ", name_of(t.from), " ", name_of(t.to));
  };
  EXPECT_EQ(moves("fc6 input"), "all_to_all batch feature");
  EXPECT_EQ(moves("fc6 input gradient"), "all_to_all feature batch");
  EXPECT_EQ(moves("fc6 output"), "reduce_scatter partial feature");
  EXPECT_EQ(moves("fc6 output gradient"), "all_gather feature replicated");
  EXPECT_EQ(moves("fc7 input"), "all_gather feature replicated");
  EXPECT_EQ(moves("fc7 input gradient"), "reduce_scatter partial feature");
}

TEST(PlanOfAlexNet, UnderOwtDRankZeroHasTheBiasesOfLayersSplitByInputs) {
  EXPECT_EQ(weight_bytes_per_rank(alexnet(Strategy::kOwtD)),
            4 * (kConvParams + (9216 * 4096 + 4096 * 1000) / 8 + 4096 + 1000 + kFc7Params / 8));
  EXPECT_THAT(plan_table(alexnet(Strategy::kOwtD)), HasSubstr("in 1152 of 9216"));
}

// Two hosts of four ranks: groups of four share the dense layers, and pairs of ranks hold the same parts.
TEST(PlanOfAlexNet, InAGridTheDenseGradientsAreSummedOverTheReplicas) {
  for (const Strategy strategy : {Strategy::kOwtA, Strategy::kOwtD}) {
    const Plan plan = plan_of(kAlexNet, {.ranks = 8, .strategy = strategy, .step_rows = kRows * 8, .model_ranks = 4});
    EXPECT_EQ(plan.replicas(), 2);
    EXPECT_EQ(layer(plan, "fc7").parts.size(), 4u);
    const Transfer dense = transfer(plan, "dense gradients");
    EXPECT_EQ(dense.group, Group::kReplicas);
    // Under owt-a the 250 biases of fc8 take 256 places.
    const int64_t split = strategy == Strategy::kOwtA ? (kFc6Params + kFc7Params + kFc8Params) / 4 + 6
                                                      : (9216 * 4096 + 4096 * 1000) / 4 + 4096 + 1000 + kFc7Params / 4;
    EXPECT_EQ(dense.bytes, split * 4);  // 2 * 1 / 2
    EXPECT_EQ(transfer(plan, "gradients").group, Group::kWorld);
    EXPECT_EQ(transfer(plan, "gradients").bytes, 2 * kOthers * kConvParams * 4 / 8);
    // A group's dense batch is half the step.
    EXPECT_EQ(transfer(plan, "fc7 input").bytes, 3 * kRows * 4096 * 4);
    EXPECT_EQ(transfer(plan, "fc7 input").group, Group::kModel);
    EXPECT_TRUE(counts_rows(plan, 0) && counts_rows(plan, 4));
    EXPECT_FALSE(counts_rows(plan, 1) || counts_rows(plan, 7));
  }
}

TEST(PlanOfAlexNet, DataParallelInSharesSendsAsMuchAndKeepsNothingSplit) {
  const Plan plan = alexnet(Strategy::kDataParallelZero);
  EXPECT_TRUE(plan.shares_update());
  EXPECT_FALSE(plan.split());
  EXPECT_EQ(transfer(plan, "gradients").collective, Collective::kReduceScatter);
  EXPECT_EQ(transfer(plan, "weights").collective, Collective::kAllGather);
  int64_t padded = 0;
  for (const Bucket& bucket : plan.buckets) {
    EXPECT_EQ(bucket.elements % 64, 0);
    padded += bucket.elements;
  }
  EXPECT_GE(padded, kAllParams);
  EXPECT_LT(padded, kAllParams + 64 * static_cast<int64_t>(plan.buckets.size()));
  EXPECT_EQ(transfer(plan, "gradients").bytes, padded * 4 / 8 * 7);
  EXPECT_EQ(transfer(plan, "weights").bytes, padded * 4 / 8 * 7);
  EXPECT_EQ(transfer(plan, "weights").calls, static_cast<int>(plan.buckets.size()));
  EXPECT_THAT(bytes_of(plan), ElementsAre(Key("gradients"), Key("step result"), Key("weights")));
}

TEST(PlanOfAlexNet, AStarSendsAsMuchAndMostOfItThroughTheLinkOfItsFirstRank) {
  const Plan plan = alexnet(Strategy::kDataParallelStar), dp = alexnet(Strategy::kDataParallel);
  EXPECT_EQ(transfer(plan, "gradients").collective, Collective::kReceive);
  EXPECT_EQ(transfer(plan, "weights").collective, Collective::kSend);
  int64_t bytes = 0;
  for (const Bucket& bucket : plan.buckets) bytes += bucket.elements * 4;
  const int64_t result = transfer(plan, "step result").bytes;
  EXPECT_EQ(bytes_per_step(plan), 2 * bytes / 8 * 7 + result);
  EXPECT_EQ(bytes_per_step(plan), bytes_per_step(dp));
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(traffic(plan, StepKind::kSynchronous, rank).in, (rank == 0 ? 7 : 1) * bytes + result);
    EXPECT_EQ(traffic(plan, StepKind::kSynchronous, rank).out, (rank == 0 ? 7 : 1) * bytes + result);
    EXPECT_EQ(traffic(dp, StepKind::kSynchronous, rank).out, bytes_per_step(dp));
  }
  EXPECT_EQ(busiest_link(plan), 7 * bytes + result);
  EXPECT_EQ(busiest_link(dp), 2 * bytes / 8 * 7 + result);
}

TEST(PlanOfAlexNet, BucketsAreThoseOfEightMebibytes) {
  const Plan plan = alexnet(Strategy::kOwtA);
  ASSERT_EQ(plan.buckets.size(), 2u);
  EXPECT_EQ(plan.buckets[0].elements, 590'080 + 884'992 + 663'936);  // conv5, conv4, conv3
  EXPECT_EQ(plan.buckets[1].elements, 307'392 + 23'296);
}

}  // namespace
}  // namespace owt::plan_of_alexnet_test
