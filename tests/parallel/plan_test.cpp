#include "src/parallel/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "src/core/check.h"
#include "tests/support/alexnet.h"

namespace owt {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using ::testing::ThrowsMessage;

constexpr int64_t kRows = 128;  // per rank
constexpr int64_t kOthers = 7;  // of 8 ranks

const char* const kTenClasses = R"(
name = "ten"
input = [1, 4, 4]
classes = 10
layer = [
  { name = "conv1", type = "conv", out = 2, kernel = 3 },
  { name = "fc1", type = "dense", out = 7 },
  { name = "relu1", type = "relu" },
  { name = "fc2", type = "dense", out = 10 },
]
)";

Model model_of(const std::string& toml) {
  Config config = Config::text(toml, "model.toml");
  return read_model(config);
}

Plan plan_of(const std::string& toml, const PlanRequest& request) { return make_plan(model_of(toml), request); }

Plan alexnet(Strategy strategy, int ranks = 8) {
  return plan_of(kAlexNet, {.ranks = ranks, .strategy = strategy, .step_rows = kRows * ranks});
}

// Weights behind the first dense layer that cannot be split.
const char* const kResidualBehindDense = R"(
name = "late"
input = [1, 4, 4]
classes = 10
layer = [
  { name = "fc1", type = "dense", out = 10 },
  { name = "r", type = "residual", body = [{ name = "fc", type = "dense", out = 10 }] },
]
)";

const LayerPlan& layer(const Plan& plan, const std::string& name) {
  for (const LayerPlan& at : plan.layers)
    if (at.name == name) return at;
  fail("no layer ", name);
}

// Bytes by the transfer's name.
std::map<std::string, int64_t> bytes_of(const Plan& plan) {
  std::map<std::string, int64_t> bytes;
  for (const Transfer& transfer : plan.transfers) bytes[transfer.name] = transfer.bytes;
  return bytes;
}

const Transfer& transfer(const Plan& plan, const std::string& name) {
  for (const Transfer& t : plan.transfers)
    if (t.name == name) return t;
  fail("no transfer ", name);
}

TEST(PlanOfAlexNet, PutsTheBoundaryBeforeTheFirstDenseLayer) {
  const Plan plan = alexnet(Strategy::kOwtA);
  EXPECT_EQ(plan.boundary_name(), "fc6");
  EXPECT_EQ(layer(plan, "fc6").in, (Shape{6, 6, 256}));
  EXPECT_EQ(layer(plan, "drop6").layout, Layout::kBatch);
  EXPECT_EQ(layer(plan, "conv1").layout, Layout::kBatch);
  EXPECT_TRUE(plan.front_learns);
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
  // What works on any slice of columns follows the split of the layer before it.
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
  EXPECT_EQ(plan.weight_bytes_per_rank(), 4 * (kConvParams + (kFc6Params + kFc7Params + kFc8Params) / 8));
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
  EXPECT_EQ(alexnet(Strategy::kOwtA).bytes_per_step(), 142'358'790);
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

TEST(PlanOfAlexNet, DataParallelSendsEveryGradientTwoWays) {
  const Plan plan = alexnet(Strategy::kDataParallel);
  EXPECT_FALSE(plan.split());
  EXPECT_EQ(plan.loss_layout(), Layout::kBatch);
  int64_t buckets = 0;
  for (const Bucket& bucket : plan.buckets) buckets += bucket.elements * 4 * 2 * kOthers / 8;
  EXPECT_EQ(transfer(plan, "gradients").bytes, buckets);
  EXPECT_EQ(buckets, 427'705'880);  // 2 * 7 / 8 * 4 * 61,100,840; no bucket has a remainder
  EXPECT_THAT(bytes_of(plan), ElementsAre(Key("gradients"), Key("step result")));
  EXPECT_EQ(plan.weight_bytes_per_rank(), kAllParams * 4);
}

TEST(PlanOfAlexNet, ModelParallelSeesTheWholeBatchEverywhere) {
  const Plan plan = alexnet(Strategy::kModelParallel);
  EXPECT_EQ(plan.front_layout(), Layout::kReplicated);
  EXPECT_EQ(layer(plan, "conv1").layout, Layout::kReplicated);
  EXPECT_EQ(transfer(plan, "fc6 input gradient").collective, Collective::kAllReduce);
  // Rank 0's gradients are everybody's, so that hosts that round otherwise keep the same copies of the convolutions.
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

TEST(PlanOfAlexNet, OneRankSendsNothing) {
  for (const std::string& name : strategy_names()) {
    const Plan plan = alexnet(strategy_from(name), 1);
    EXPECT_EQ(plan.bytes_per_step(), 0) << name;
    EXPECT_FALSE(plan.split()) << name;
    EXPECT_EQ(plan.weight_bytes_per_rank(), kAllParams * 4) << name;
  }
}

TEST(PlanOfAlexNet, TheTableNamesEveryLayerAndTransfer) {
  const Plan plan = alexnet(Strategy::kOwtB);
  const std::string table = plan.table();
  for (const LayerPlan& at : plan.layers) EXPECT_THAT(table, HasSubstr("\n" + at.name + " "));
  for (const Transfer& t : plan.transfers) {
    EXPECT_THAT(table, HasSubstr("\n" + t.name + " "));
    EXPECT_THAT(table, HasSubstr(" " + std::to_string(t.bytes) + " "));
  }
  EXPECT_THAT(table, HasSubstr("alexnet on 8 ranks under owt-b, 1024 rows per step (128 per rank), 8 rounds"));
  EXPECT_THAT(table, HasSubstr("-- boundary --\nfc6 "));
  EXPECT_THAT(table, HasSubstr("512 of 4096"));
  EXPECT_THAT(table, HasSubstr(" 142358790 "));
}

// The inputs of fc6 (9216 values to 4096) and fc8 (4096 to 1000) are not brought together: their outputs are summed.
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
  // What travels of activations, in MiB: 70.7, where bringing rows together takes 119 and gradients under dp 391.
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
  EXPECT_EQ(alexnet(Strategy::kOwtD).weight_bytes_per_rank(),
            4 * (kConvParams + (9216 * 4096 + 4096 * 1000) / 8 + 4096 + 1000 + kFc7Params / 8));
  EXPECT_THAT(alexnet(Strategy::kOwtD).table(), HasSubstr("in 1152 of 9216"));
}

// Two hosts of four: groups of four share the dense layers, pairs of ranks hold the same parts.
TEST(PlanOfAlexNet, InAGridTheDenseGradientsAreSummedOverTheReplicas) {
  for (const Strategy strategy : {Strategy::kOwtA, Strategy::kOwtD}) {
    const Plan plan = plan_of(kAlexNet, {.ranks = 8, .strategy = strategy, .step_rows = kRows * 8, .model_ranks = 4});
    EXPECT_EQ(plan.replicas(), 2);
    EXPECT_EQ(layer(plan, "fc7").parts.size(), 4u);
    const Transfer& dense = transfer(plan, "dense gradients");
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
    EXPECT_TRUE(plan.counts_rows(0) && plan.counts_rows(4));
    EXPECT_FALSE(plan.counts_rows(1) || plan.counts_rows(7));
  }
}

TEST(Plan, PadsUnevenPartsToTheWidest) {
  // 4 ranks: 7 features in 2 2 2 1, 10 classes in 3 3 2 2; 12 rows, so every rank has 3.
  const Plan four = plan_of(kTenClasses, {.ranks = 4, .strategy = Strategy::kOwtA, .step_rows = 12});
  EXPECT_THAT(layer(four, "fc2").parts, ElementsAre(Slice{0, 3}, Slice{3, 6}, Slice{6, 8}, Slice{8, 10}));
  EXPECT_EQ(transfer(four, "logits").bytes, 3 * (12 * 3 * 4));
  EXPECT_EQ(transfer(four, "fc2 input").bytes, 3 * (12 * 2 * 4));
  // 3 ranks: 7 in 3 2 2, 10 in 4 3 3.
  const Plan three = plan_of(kTenClasses, {.ranks = 3, .strategy = Strategy::kOwtA, .step_rows = 12});
  EXPECT_THAT(layer(three, "fc2").parts, ElementsAre(Slice{0, 4}, Slice{4, 7}, Slice{7, 10}));
  EXPECT_EQ(transfer(three, "logits").bytes, 2 * (12 * 4 * 4));
  EXPECT_THAT(three.table(), HasSubstr("3-4 of 10"));
  // The rank with the most: conv1 2 x 9 + 2, of fc1 3 x 8 + 3, of fc2 4 x 7 + 4.
  EXPECT_EQ(three.weight_bytes_per_rank(), 4 * (20 + 27 + 32));
}

// 4 ranks, 10 rows in 3 3 2 2: 20 features in parts of 5, 7 outputs in 2 2 2 1; then 7 inputs, 5 outputs in 2 1 1 1.
TEST(Plan, UnderOwtDPadsUnevenRowsAndColumns) {
  const char* const model = R"(
name = "odd"
input = [1, 5, 4]
classes = 5
layer = [
  { name = "conv1", type = "conv", out = 1, kernel = 1 },
  { name = "fc1", type = "dense", out = 7 },
  { name = "relu1", type = "relu" },
  { name = "fc2", type = "dense", out = 5 },
]
)";
  const Plan plan = plan_of(model, {.ranks = 4, .strategy = Strategy::kOwtD, .step_rows = 10});
  EXPECT_EQ(transfer(plan, "fc1 input").bytes, 3 * (3 * 5 * 4));
  EXPECT_EQ(transfer(plan, "fc1 output").bytes, 3 * (10 * 2 * 4));
  EXPECT_EQ(transfer(plan, "fc2 output gradient").bytes, 3 * (10 * 2 * 4));
  EXPECT_EQ(transfer(plan, "logits").bytes, 3 * (10 * 2 * 4));  // less than ten statistics
  EXPECT_FALSE(plan.sharded_loss);
  EXPECT_EQ(plan.loss_layout(), Layout::kReplicated);
  EXPECT_EQ(layer(plan, "fc1").most_elements({7, 5, 4, 1}), 7 * 5);
  EXPECT_EQ(layer(plan, "fc1").most_elements({7}), 7);
  EXPECT_EQ(layer(plan, "fc2").most_elements({5, 7}), 5 * 2);
  EXPECT_THAT(plan.table(), HasSubstr("in 1-2 of 7"));
}

TEST(Plan, UnderOwtDIsOwtAWhereNoLayerSendsLessByInputs) {
  // 8 features to 7 outputs on 2 ranks: 4 + 7 are no less than 8; and 7 to 10.
  const Plan d = plan_of(kTenClasses, {.ranks = 2, .strategy = Strategy::kOwtD, .step_rows = 8});
  const Plan a = plan_of(kTenClasses, {.ranks = 2, .strategy = Strategy::kOwtA, .step_rows = 8});
  for (const LayerPlan& at : d.layers) EXPECT_FALSE(at.by_inputs()) << at.name;
  EXPECT_EQ(bytes_of(d), bytes_of(a));
}

TEST(Plan, UnderOwtDALayerThatSendsAsMuchEitherWayIsSplitByOutputs) {
  const char* const as_much = R"(
name = "as_much"
input = [1, 8, 8]
classes = 32
layer = [{ name = "fc1", type = "dense", out = 32 }]
)";
  // 64 / 2 features and 32 summands, or 64 features.
  const Plan plan = plan_of(as_much, {.ranks = 2, .strategy = Strategy::kOwtD, .step_rows = 8});
  EXPECT_FALSE(layer(plan, "fc1").by_inputs());
}

TEST(Plan, TheLossIsShardedWhereItsStatisticsAreLessThanTheLogits) {
  const auto sharded = [](int64_t classes, int ranks, Precision precision) {
    const std::string model = concat("name = \"m\"\ninput = [1, 2, 2]\nclasses = ", classes,
                                     "\nlayer = [ { name = \"fc1\", type = \"dense\", out = ", classes, " } ]\n");
    PlanRequest request{.ranks = ranks, .strategy = Strategy::kOwtA, .step_rows = 8};
    request.on.precision = precision;
    return plan_of(model, request).sharded_loss;
  };
  // Ten f32 a row and rank.
  EXPECT_FALSE(sharded(20, 2, Precision::kFp32));
  EXPECT_TRUE(sharded(21, 2, Precision::kFp32));
  EXPECT_FALSE(sharded(40, 2, Precision::kBf16));
  EXPECT_TRUE(sharded(41, 2, Precision::kBf16));
  EXPECT_FALSE(sharded(1000, 1, Precision::kFp32));
}

TEST(Plan, WholeLogitsAreGatheredWhateverTheyWeigh) {
  PlanRequest request{.ranks = 4, .strategy = Strategy::kOwtC, .step_rows = 8};
  const Plan sharded = plan_of(kAlexNet, request);
  request.whole_logits = true;
  const Plan whole = plan_of(kAlexNet, request);
  EXPECT_EQ(sharded.loss_layout(), Layout::kFeature);
  EXPECT_EQ(whole.loss_layout(), Layout::kReplicated);
  EXPECT_GT(whole.bytes_per_step(), sharded.bytes_per_step());
}

TEST(Plan, RefusesGroupsThatDoNotDivideTheRanks) {
  EXPECT_THAT([] { plan_of(kTenClasses, {.ranks = 6, .step_rows = 6, .model_ranks = 4}); },
              ThrowsMessage<Error>(HasSubstr("use a divisor of 6")));
}

TEST(Plan, PadsUnevenRowsToTheMost) {
  // 10 rows on 4 ranks: 3 3 2 2. A row at the boundary has 2 x 2 x 2 values.
  const Plan a = plan_of(kTenClasses, {.ranks = 4, .strategy = Strategy::kOwtA, .step_rows = 10});
  EXPECT_EQ(transfer(a, "fc1 input").bytes, 3 * (3 * 8 * 4));
  EXPECT_EQ(transfer(a, "labels").bytes, 3 * (3 * 4));
  // Under owt-c the rounds take 1 1 1 1, 1 1 1 1, 1 1 0 0 and nothing.
  const Plan c = plan_of(kTenClasses, {.ranks = 4, .strategy = Strategy::kOwtC, .step_rows = 10});
  EXPECT_EQ(transfer(c, "fc1 input").bytes, 3 * 3 * (1 * 8 * 4));
  // Under owt-b only the rows there are.
  const Plan b = plan_of(kTenClasses, {.ranks = 4, .strategy = Strategy::kOwtB, .step_rows = 10});
  EXPECT_EQ(transfer(b, "fc1 input").bytes, 10 * 8 * 4 * 3 / 4);
}

TEST(Plan, WithoutADenseLayerIsDataParallel) {
  const char* const model = R"(
name = "plain"
input = [3, 4, 4]
classes = 5
layer = [
  { name = "conv1", type = "conv", out = 5, kernel = 3 },
  { name = "pool1", type = "global_avg_pool" },
]
)";
  for (const Strategy scheme : {Strategy::kOwtA, Strategy::kOwtB, Strategy::kOwtC, Strategy::kOwtD}) {
    const Plan plan = plan_of(model, {.ranks = 4, .strategy = scheme, .step_rows = 8});
    EXPECT_FALSE(plan.split());
    EXPECT_EQ(plan.rounds_strategy(), Strategy::kDataParallel);
    EXPECT_EQ(plan.loss_layout(), Layout::kBatch);
    EXPECT_EQ(transfer(plan, "gradients").bytes, 2 * 3 * (5 * 27 + 1 + 5 + 3) * 4 / 4);
  }
}

TEST(Plan, SendsNoGradientHomeWhereNothingBeforeTheBoundaryLearns) {
  const char* const model = R"(
name = "dense"
input = [3, 4, 4]
classes = 4
layer = [
  { name = "drop1", type = "dropout", rate = 0.1 },
  { name = "fc1", type = "dense", out = 4 },
]
)";
  for (const Strategy strategy :
       {Strategy::kOwtA, Strategy::kOwtB, Strategy::kOwtC, Strategy::kOwtD, Strategy::kModelParallel}) {
    const Plan plan = plan_of(model, {.ranks = 2, .strategy = strategy, .step_rows = 8});
    EXPECT_EQ(plan.boundary_name(), "fc1");
    EXPECT_FALSE(plan.front_learns);
    EXPECT_THAT(bytes_of(plan), Not(Contains(Key("fc1 input gradient"))));
    EXPECT_THAT(plan.buckets, IsEmpty());
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

TEST(Plan, OneRankUnderDpZeroSharesNothing) {
  const Plan plan = plan_of(kTenClasses, {.ranks = 1, .strategy = Strategy::kDataParallelZero, .step_rows = 8});
  EXPECT_FALSE(plan.shares_update());
  EXPECT_EQ(transfer(plan, "gradients").collective, Collective::kAllReduce);
}

TEST(Plan, TheGradientAtTheInputOfASplitLayerIsASummand) {
  const Plan plan = plan_of(kTenClasses, {.ranks = 2, .strategy = Strategy::kOwtA, .step_rows = 8});
  EXPECT_EQ(plan.gradient_layout(1), Layout::kPartial);  // fc1
  EXPECT_EQ(plan.gradient_layout(3), Layout::kPartial);  // fc2
  // The gradient of the logits' columns is these ranks' own where the loss takes whole rows.
  EXPECT_EQ(plan.loss_layout(), Layout::kReplicated);
}

TEST(Plan, BucketsHoldEveryReplicatedParameterOnceLastLayerFirst) {
  for (const Strategy strategy : {Strategy::kDataParallel, Strategy::kOwtA})
    for (const int64_t bucket_bytes : {int64_t{1}, int64_t{1} << 20, int64_t{8} << 20, int64_t{1} << 40}) {
      PlanRequest request{.ranks = 8, .strategy = strategy, .step_rows = 8, .bucket_bytes = bucket_bytes};
      const Plan plan = plan_of(kAlexNet, request);
      std::vector<int64_t> held, replicated;
      for (const Bucket& bucket : plan.buckets) {
        int64_t elements = 0;
        for (const int64_t i : bucket.layers) {
          // It leaves as soon as it holds enough: without its last layer it did not.
          EXPECT_LT(elements * 4, bucket_bytes);
          held.push_back(i);
          for (const Shape& shape : plan.layers.at(static_cast<size_t>(i)).params)
            elements += (shape.elements() + 7) / 8 * 8;  // each from a multiple of 8 elements on
        }
        EXPECT_EQ(bucket.elements, elements);
        if (&bucket != &plan.buckets.back()) {
          EXPECT_GE(elements * 4, bucket_bytes);
        }
      }
      for (int64_t i = plan.boundary - 1; i >= 0; --i)
        if (plan.layers.at(static_cast<size_t>(i)).weight_bytes > 0) replicated.push_back(i);
      EXPECT_EQ(held, replicated);
    }
}

const char* const kBatchNorm = R"(
name = "averages"
input = [1, 4, 4]
classes = 10
layer = [
  { name = "conv1", type = "conv", out = 2, kernel = 3 },
  { name = "bn1", type = "batch_norm" },
  { name = "fc1", type = "dense", out = 10 },
]
)";

TEST(Plan, RunningAveragesAreNotRoundedWithTheGradients) {
  constexpr int64_t kConv = 24 + 8, kNorm = 8 + 8, kAverages = 8 + 8, kDense = 80 + 16;  // in multiples of 8
  PlanRequest request{.ranks = 2, .strategy = Strategy::kDataParallel, .step_rows = 8};
  const auto bytes = [&] { return transfer(plan_of(kBatchNorm, request), "gradients").bytes; };
  EXPECT_EQ(bytes(), (kConv + kNorm + kAverages + kDense) * 4);
  request.half_wire = true;
  EXPECT_EQ(bytes(), (kConv + kNorm + kDense) * 2 + kAverages * 4);
  request.strategy = Strategy::kOwtA;
  EXPECT_EQ(bytes(), (kConv + kNorm) * 2 + kAverages * 4);
  request.strategy = Strategy::kDataParallelZero;
  EXPECT_EQ(bytes(), ((kConv + kNorm + kDense) * 2 + kAverages * 4) / 2);
}

TEST(Plan, BucketsComeInTheOrderInWhichTheyAreComplete) {
  const PlanRequest request{
      .ranks = 2, .strategy = Strategy::kDataParallel, .step_rows = 8, .bucket_bytes = 1, .half_wire = true};
  std::vector<std::pair<int64_t, bool>> found;  // layer, whether it is trained
  for (const Bucket& bucket : plan_of(kBatchNorm, request).buckets) {
    ASSERT_EQ(bucket.layers.size(), 1u);
    found.emplace_back(bucket.layers[0], bucket.trained);
  }
  EXPECT_THAT(found, ElementsAre(std::pair(2, true), std::pair(1, true), std::pair(1, false), std::pair(0, true)));
}

TEST(Plan, ABucketThatHoldsJustEnoughIsFull) {
  // fc2: 7 x 10 weights take 72 places, 10 biases 16.
  const int64_t fc2 = 4 * (72 + 16);
  const PlanRequest request{.ranks = 2, .strategy = Strategy::kDataParallel, .step_rows = 8, .bucket_bytes = fc2};
  const Plan plan = plan_of(kTenClasses, request);
  EXPECT_THAT(plan.buckets.at(0).layers, ElementsAre(3));
  EXPECT_EQ(plan.buckets[0].elements * 4, fc2);
}

TEST(Plan, BucketsOfAlexNetAreThoseOfEightMebibytes) {
  const Plan plan = alexnet(Strategy::kOwtA);
  ASSERT_EQ(plan.buckets.size(), 2u);
  EXPECT_EQ(plan.buckets[0].elements, 590'080 + 884'992 + 663'936);  // conv5, conv4, conv3
  EXPECT_EQ(plan.buckets[1].elements, 307'392 + 23'296);
}

TEST(Plan, RefusesNoRanksAndNoRows) {
  EXPECT_THROW(plan_of(kTenClasses, {.ranks = 0}), Error);
  EXPECT_THROW(plan_of(kTenClasses, {.ranks = 1, .step_rows = 0}), Error);
}

TEST(Plan, WeightsThatCannotBeSplitBehindADenseLayerAreAnErrorWithTheCure) {
  EXPECT_FALSE(can_split_dense(model_of(kResidualBehindDense)));
  EXPECT_TRUE(can_split_dense(model_of(kTenClasses)));
  for (const Strategy strategy : all_strategies()) {
    const PlanRequest request{.ranks = 2, .strategy = strategy, .step_rows = 4};
    if (!splits_dense(strategy)) {
      EXPECT_NO_THROW(plan_of(kResidualBehindDense, request));
      continue;
    }
    EXPECT_THAT([&] { plan_of(kResidualBehindDense, request); },
                ThrowsMessage<Error>(AllOf(HasSubstr("layer 'r' has weights"), HasSubstr("dense layer 'fc1'"),
                                           HasSubstr(name_of(strategy)), HasSubstr("--parallel dp"))));
  }
  EXPECT_NO_THROW(plan_of(kResidualBehindDense, {.ranks = 1, .strategy = Strategy::kOwtA, .step_rows = 4}));
}

}  // namespace
}  // namespace owt
