#include "src/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "layers/base/linear_params.h"
#include "src/plan/back_part.h"
#include "src/plan/plan_bytes.h"
#include "src/plan/plan_rows.h"
#include "src/plan/plan_table.h"
#include "src/plan/plan_updates.h"
#include "src/system/check.h"
#include "tests/support/alexnet.h"
#include "tests/support/message_of.h"
#include "tests/support/plans.h"

namespace owt::plan_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;

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

// Weights after the first dense layer that cannot be split.
const char* const kResidualBehindDense = R"(
name = "late"
input = [1, 4, 4]
classes = 10
layer = [
  { name = "fc1", type = "dense", out = 10 },
  { name = "r", type = "residual", body = [{ name = "fc", type = "dense", out = 10 }] },
]
)";

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
  EXPECT_THAT(plan_table(three), HasSubstr("3-4 of 10"));
  // The rank with the most: conv1 2 x 9 + 2, of fc1 3 x 8 + 3, of fc2 4 x 7 + 4.
  EXPECT_EQ(weight_bytes_per_rank(three), 4 * (20 + 27 + 32));
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
  EXPECT_EQ(transfer(plan, "fc1 output gradient").bytes, 3 * (10 * 2 * 4));
  EXPECT_EQ(transfer(plan, "fc2 output").bytes, 3 * (10 * 2 * 4));
  EXPECT_EQ(transfer(plan, "logits").bytes, 3 * (10 * 2 * 4));  // less than ten statistics
  EXPECT_EQ(layer(plan, "fc2").transfers.output_gradient, kNoTransfer) << "all ranks have the whole of it";
  EXPECT_FALSE(plan.sharded_loss);
  EXPECT_EQ(plan.loss_layout(), Layout::kReplicated);
  EXPECT_EQ(layer(plan, "fc1").most_elements({7, 5, 4, 1}), 7 * 5);
  EXPECT_EQ(layer(plan, "fc1").most_elements({7}), 7);
  EXPECT_EQ(layer(plan, "fc2").most_elements({5, 7}), 5 * 2);
  EXPECT_THAT(plan_table(plan), HasSubstr("in 1-2 of 7"));
}

std::string split_of(Strategy strategy, DenseSplit split) {
  const Plan plan = plan_of(R"(
name = "narrow"
input = [1, 6, 4]
classes = 16
layer = [
  { name = "bn", type = "batch_norm" },
  { name = "fc1", type = "dense", out = 8 },
  { name = "relu1", type = "relu" },
  { name = "fc2", type = "dense", out = 4 },
  { name = "fc3", type = "dense", out = 16 },
]
)",
                            {.ranks = 2, .strategy = strategy, .step_rows = 8, .split = split});
  std::string text;
  for (const char* name : {"fc1", "fc2", "fc3"}) text += layer(plan, name).by_inputs() ? 'r' : 'c';
  return text;
}

// Two ranks of owt-b and owt-c get whole rows in two rounds. Under mp-dense the rows are there already, and 2 x 8 is
// less than 24.
TEST(Plan, DenseLayersAreSplitAsTheRequestSays) {
  for (const Strategy strategy :
       {Strategy::kOwtA, Strategy::kOwtB, Strategy::kOwtC, Strategy::kOwtD, Strategy::kModelParallelDense}) {
    SCOPED_TRACE(name_of(strategy));
    const bool in_rounds = strategy == Strategy::kOwtB || strategy == Strategy::kOwtC;
    EXPECT_EQ(split_of(strategy, DenseSplit::kColumns), "ccc");
    EXPECT_EQ(split_of(strategy, DenseSplit::kRows), in_rounds ? "crr" : "rrr");
    EXPECT_EQ(split_of(strategy, DenseSplit::kLess), in_rounds ? "crc" : "rrc");
    EXPECT_EQ(split_of(strategy, DenseSplit::kOfStrategy), strategy == Strategy::kOwtD ? "rrc" : "ccc");
  }
}

TEST(Plan, UnderMpDenseColumnsReturnWithFewerBytesThanSummands) {
  const char* const model = R"(
name = "wide"
input = [1, 6, 4]
classes = 8
layer = [{ name = "bn", type = "batch_norm" }, { name = "fc", type = "dense", out = 8 }]
)";
  PlanRequest request{.ranks = 2, .strategy = Strategy::kModelParallelDense, .step_rows = 8};
  EXPECT_EQ(transfer(plan_of(model, request), "fc input gradient").collective, Collective::kAllReduce);
  request.split = DenseSplit::kRows;
  const Plan rows = plan_of(model, request);
  EXPECT_EQ(transfer(rows, "fc input gradient").collective, Collective::kAllGather);
  EXPECT_EQ(transfer(rows, "fc input gradient").bytes, 8 * 24 * 4 / 2);
  EXPECT_EQ(layer(rows, "fc").transfers.input, kNoTransfer);
}

TEST(Plan, UnderOwtDIsOwtAWhereNoLayerSendsLessByInputs) {
  // 8 features to 7 outputs on 2 ranks: 4 + 7 are no less than 8; and 7 to 10.
  const Plan d = plan_of(kTenClasses, {.ranks = 2, .strategy = Strategy::kOwtD, .step_rows = 8});
  const Plan a = plan_of(kTenClasses, {.ranks = 2, .strategy = Strategy::kOwtA, .step_rows = 8});
  for (const LayerPlan& at : d.layers) EXPECT_FALSE(at.by_inputs()) << at.name;
  EXPECT_EQ(bytes_of(d), bytes_of(a));
}

TEST(Plan, UnderOwtDALayerThatSendsAsMuchWithEitherSplitIsSplitByOutputs) {
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

TEST(Plan, OfTwoBillionClassesCountsEveryByte) {
  constexpr int64_t kClasses = kMostOutputs, kRows = 64, kRanks = 64;
  const std::string model = concat("name = \"m\"\ninput = [8, 1, 1]\nclasses = ", kClasses,
                                   "\nlayer = [ { name = \"head\", type = \"dense\", out = ", kClasses, " } ]\n");
  const Plan plan = plan_of(model, {.ranks = kRanks, .strategy = Strategy::kOwtA, .step_rows = kRows});
  EXPECT_TRUE(plan.sharded_loss);
  EXPECT_EQ(plan.layers.back().parameters, kClasses * 9);
  const int64_t of_rank = plan.layers.back().parts.front().size();
  EXPECT_EQ(of_rank, kClasses / kRanks);
  EXPECT_EQ(weight_bytes_per_rank(plan), of_rank * 9 * 4);
}

// The boundary of a net under mp on two ranks.
std::string boundary_of(const std::string& layers) {
  const std::string model = model_text("[4, 8, 8]", 10, layers + R"(, { name = "fc", type = "dense", out = 10 })");
  return boundary_name(plan_of(model, {.ranks = 2, .strategy = Strategy::kModelParallel, .step_rows = 8}));
}

TEST(Plan, UnderMpIsSplitFromTheFirstConvolutionWhoseFollowersCanBeSplitOrHaveNoWeights) {
  const std::string conv1 = R"({ name = "conv1", type = "conv", out = 4, kernel = 3, pad = 1 })";
  const std::string conv2 = R"({ name = "conv2", type = "conv", out = 4, kernel = 3, pad = 1 })";
  const std::string grouped = R"({ name = "grouped", type = "conv", out = 4, kernel = 3, pad = 1, groups = 2 })";
  const std::string block = R"({ name = "block", type = "residual", body = [)" + conv2 + "] }";
  const std::string norm = R"({ name = "norm", type = "batch_norm" })", lrn = R"({ name = "lrn", type = "lrn" })";
  EXPECT_EQ(boundary_of(conv1), "conv1");
  EXPECT_EQ(boundary_of(conv1 + "," + norm + "," + lrn + "," + conv2), "conv1");
  EXPECT_EQ(boundary_of(norm + "," + conv1), "conv1") << "the first layer has whole images";
  EXPECT_EQ(boundary_of(conv1 + "," + lrn + "," + norm + "," + conv2), "conv2") << "norm would get whole images";
  EXPECT_EQ(boundary_of(conv1 + "," + block), "fc");
  EXPECT_EQ(boundary_of(conv1 + "," + grouped + "," + conv2), "conv2");
}

TEST(Plan, UnderMpChannelsAreMovedAtEveryPixel) {
  // 3 ranks: conv1's 4 channels in 2 1 1, fc1's 7 features in 3 2 2.
  const char* const model = R"(
name = "images"
input = [1, 4, 4]
classes = 10
layer = [
  { name = "conv1", type = "conv", out = 4, kernel = 3 },
  { name = "fc1", type = "dense", out = 7 },
  { name = "fc2", type = "dense", out = 10 },
]
)";
  const Plan plan = plan_of(model, {.ranks = 3, .strategy = Strategy::kModelParallel, .step_rows = 5});
  EXPECT_THAT(layer(plan, "conv1").parts, ElementsAre(Slice{0, 2}, Slice{2, 3}, Slice{3, 4}));
  EXPECT_EQ(transfer(plan, "fc1 input").collective, Collective::kAllGather);
  EXPECT_EQ(transfer(plan, "fc1 input").bytes, 2 * (5 * 2 * 2 * 2 * 4));
  EXPECT_EQ(transfer(plan, "fc1 input gradient").collective, Collective::kReduceScatter);
  EXPECT_EQ(transfer(plan, "fc1 input gradient").bytes, 2 * (5 * 2 * 2 * 2 * 4));
  EXPECT_EQ(transfer(plan, "fc2 input").bytes, 2 * (5 * 3 * 4));
  EXPECT_EQ(layer(plan, "conv1").transfers.input_gradient, kNoTransfer) << "nobody wants that of images";
  EXPECT_EQ(layer(plan, "conv1").most_elements({4, 3, 3, 1}), 2 * 9);
  EXPECT_EQ(layer(plan, "conv1").kept_elements(), 2 * 2 * 2);
  EXPECT_DOUBLE_EQ(layer(plan, "conv1").share(), 0.5);
  EXPECT_THAT(plan_table(plan), HasSubstr("1-2 of 4"));
}

TEST(Plan, RefusesGroupsThatDoNotDivideTheRanks) {
  EXPECT_THAT(message_of([] { plan_of(kTenClasses, {.ranks = 6, .step_rows = 6, .model_ranks = 4}); }),
              HasSubstr("use a divisor of 6"));
}

TEST(Plan, PadsUnevenRowsToTheMost) {
  // 10 rows on 4 ranks: 3 3 2 2. A row at the boundary has 2 x 2 x 2 values.
  const Plan a = plan_of(kTenClasses, {.ranks = 4, .strategy = Strategy::kOwtA, .step_rows = 10});
  EXPECT_EQ(transfer(a, "fc1 input").bytes, 3 * (3 * 8 * 4));
  EXPECT_EQ(transfer(a, "labels").bytes, 3 * (3 * 4));
  // Under owt-c the rounds have 1 1 1 1, 1 1 1 1, 1 1 0 0 and no rows.
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
    EXPECT_EQ(rounds_strategy(plan), Strategy::kDataParallel);
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
       {Strategy::kOwtA, Strategy::kOwtB, Strategy::kOwtC, Strategy::kOwtD, Strategy::kModelParallelDense}) {
    const Plan plan = plan_of(model, {.ranks = 2, .strategy = strategy, .step_rows = 8});
    EXPECT_EQ(boundary_name(plan), "fc1");
    EXPECT_FALSE(plan.front_learns());
    EXPECT_THAT(bytes_of(plan), Not(Contains(Key("fc1 input gradient"))));
    EXPECT_THAT(plan.buckets, IsEmpty());
  }
}

TEST(Plan, OneRankUnderDpZeroSharesNothing) {
  const Plan plan = plan_of(kTenClasses, {.ranks = 1, .strategy = Strategy::kDataParallelZero, .step_rows = 8});
  EXPECT_FALSE(plan.shares_update());
  EXPECT_EQ(transfer(plan, "gradients").collective, Collective::kAllReduce);
}

// The types of the gradients of conv1's weights and bias, and of fc1's.
std::vector<DType> gradient_types(PlanRequest request, Precision precision = Precision::kBf16) {
  request.step_rows = 8;
  request.on = {Device::kCuda, precision};
  const Plan plan = plan_of(kTenClasses, request);
  return {gradient_type(plan, 0, 0), gradient_type(plan, 0, 1), gradient_type(plan, 1, 0), gradient_type(plan, 1, 1)};
}

TEST(Plan, GradientsOfWeightsAreBf16WhereNothingIsAddedToThem) {
  constexpr DType kF32 = DType::kF32, kBf16 = DType::kBF16;
  EXPECT_THAT(gradient_types({}), ElementsAre(kBf16, kF32, kBf16, kF32));
  for (const Precision precision : {Precision::kFp32, Precision::kTf32})
    EXPECT_THAT(gradient_types({}, precision), ElementsAre(kF32, kF32, kF32, kF32));
  for (const Strategy strategy : {Strategy::kOwtA, Strategy::kOwtD, Strategy::kModelParallelDense})
    EXPECT_THAT(gradient_types({.ranks = 2, .strategy = strategy}), ElementsAre(kF32, kF32, kBf16, kF32))
        << name_of(strategy) << ": the dense layers are no other rank's";
  EXPECT_THAT(gradient_types({.ranks = 2, .strategy = Strategy::kModelParallel}), ElementsAre(kBf16, kF32, kBf16, kF32))
      << "nor are the convolutions";
  for (const Strategy strategy : {Strategy::kDataParallel, Strategy::kDataParallelZero, Strategy::kDataParallelStar,
                                  Strategy::kOwtB, Strategy::kOwtC})
    EXPECT_THAT(gradient_types({.ranks = 2, .strategy = strategy}), ElementsAre(kF32, kF32, kF32, kF32))
        << name_of(strategy) << ": sums over ranks or rounds";
  EXPECT_THAT(gradient_types({.ranks = 2, .strategy = Strategy::kOwtC, .dense_update = DenseUpdate::kRound}),
              ElementsAre(kF32, kF32, kBf16, kF32));
  EXPECT_THAT(gradient_types({.ranks = 4, .strategy = Strategy::kOwtA, .model_ranks = 2}),
              ElementsAre(kF32, kF32, kF32, kF32));
}

// Whether fc1 is updated at once.
bool updates_at_once(PlanRequest request) {
  if (request.step_rows == 1) request.step_rows = 8;
  const Plan plan = plan_of(kTenClasses, request);
  EXPECT_FALSE(updates_at_once(plan, 0)) << "conv1";
  return updates_at_once(plan, 1);
}

TEST(Plan, DenseWeightsAreUpdatedAtOnceWhereNothingIsAddedToTheirGradients) {
  for (const Compute& on : {Compute{Device::kCpu}, Compute{Device::kCuda, Precision::kBf16}}) {
    SCOPED_TRACE(name_of(on.device));
    EXPECT_TRUE(updates_at_once({.on = on}));
    EXPECT_FALSE(updates_at_once({.on = on, .keeps_gradients = true}));
    EXPECT_FALSE(updates_at_once({.on = on, .norm_sums = 1}));
    for (const Strategy strategy : {Strategy::kOwtA, Strategy::kOwtD, Strategy::kModelParallelDense})
      EXPECT_TRUE(updates_at_once({.ranks = 2, .strategy = strategy, .on = on})) << name_of(strategy);
    for (const Strategy strategy : {Strategy::kDataParallel, Strategy::kDataParallelZero, Strategy::kDataParallelStar,
                                    Strategy::kOwtB, Strategy::kOwtC})
      EXPECT_FALSE(updates_at_once({.ranks = 2, .strategy = strategy, .on = on})) << name_of(strategy);
    EXPECT_TRUE(
        updates_at_once({.ranks = 2, .strategy = Strategy::kOwtC, .dense_update = DenseUpdate::kRound, .on = on}));
    EXPECT_FALSE(updates_at_once({.ranks = 4, .strategy = Strategy::kOwtA, .on = on, .model_ranks = 2}));
  }
}

TEST(Plan, AGpuComputesGradientsOfFewRowsInTheUpdateInBf16) {
  const Compute bf16{Device::kCuda, Precision::kBf16};
  for (const Precision precision : {Precision::kFp32, Precision::kTf32})
    EXPECT_FALSE(updates_at_once({.on = {Device::kCuda, precision}}));
  EXPECT_TRUE(updates_at_once({.step_rows = kMostRowsAtOnce, .on = bf16}));
  EXPECT_FALSE(updates_at_once({.step_rows = kMostRowsAtOnce + 1, .on = bf16}));
  // A round has half of the rows.
  PlanRequest rounds{.ranks = 2,
                     .strategy = Strategy::kOwtC,
                     .dense_update = DenseUpdate::kRound,
                     .step_rows = 2 * kMostRowsAtOnce,
                     .on = bf16};
  EXPECT_TRUE(updates_at_once(rounds));
  rounds.step_rows += 2;
  EXPECT_FALSE(updates_at_once(rounds));
}

TEST(Plan, AGradientThatIsNotKeptTakesNoMemory) {
  for (const Compute& on : {Compute{Device::kCpu}, Compute{Device::kCuda, Precision::kBf16}}) {
    const Plan at_once = plan_of(kTenClasses, {.step_rows = 8, .on = on});
    const Plan kept = plan_of(kTenClasses, {.step_rows = 8, .on = on, .keeps_gradients = true});
    int64_t dense_weights = 0;
    for (const LayerPlan& layer : kept.layers)
      if (layer.type == "dense") dense_weights += layer.params[0].elements() * (on.device == Device::kCpu ? 4 : 2);
    EXPECT_EQ(gradient_bytes_per_rank(kept) - gradient_bytes_per_rank(at_once), dense_weights);
  }
}

TEST(Plan, TheGradientAtTheInputOfASplitLayerIsASummand) {
  const Plan plan = plan_of(kTenClasses, {.ranks = 2, .strategy = Strategy::kOwtA, .step_rows = 8});
  EXPECT_EQ(gradient_layout(plan, 1), Layout::kPartial);  // fc1
  EXPECT_EQ(gradient_layout(plan, 3), Layout::kPartial);  // fc2
  // The logits' gradient is complete on every rank if the loss takes whole rows.
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
  request.bf16_transport = true;
  EXPECT_EQ(bytes(), (kConv + kNorm + kDense) * 2 + kAverages * 4);
  request.strategy = Strategy::kOwtA;
  EXPECT_EQ(bytes(), (kConv + kNorm) * 2 + kAverages * 4);
  request.strategy = Strategy::kDataParallelZero;
  EXPECT_EQ(bytes(), ((kConv + kNorm + kDense) * 2 + kAverages * 4) / 2);
  request.strategy = Strategy::kDataParallelStar;
  EXPECT_EQ(bytes(), ((kConv + kNorm + kDense) * 2 + kAverages * 4) / 2);
}

// Two numbers in f64 for each of 2 channels, summed in forward and in backward. In the back part they are summed for
// each of a rank's 4 of 8 features, over the ranks that have these features of other rows.
TEST(Plan, StatisticsOfTheStepTravelTwice) {
  const auto normalised = [](const PlanRequest& request) {
    return plan_of(R"(
name = "statistics"
input = [1, 4, 4]
classes = 10
layer = [
  { name = "conv1", type = "conv", out = 2, kernel = 3 },
  { name = "bn1", type = "batch_norm", rows = "step" },
  { name = "fc1", type = "dense", out = 8 },
  { name = "bn2", type = "batch_norm", rows = "step" },
  { name = "fc2", type = "dense", out = 10 },
]
)",
                   request);
  };
  const PlanRequest one{.ranks = 1, .step_rows = 8};
  for (const Transfer& transfer : normalised(one).transfers) EXPECT_NE(transfer.name, "bn1 statistics");
  const PlanRequest dp{.ranks = 4, .strategy = Strategy::kDataParallel, .step_rows = 8};
  for (const auto& [name, channels] : {std::pair("bn1 statistics", 2), std::pair("bn2 statistics", 8)}) {
    const Transfer found = transfer(normalised(dp), name);
    EXPECT_EQ(found.group, Group::kWorld);
    EXPECT_EQ(found.calls, 2);
    EXPECT_EQ(found.bytes, 2 * (2 * channels * 8) * 2 * 3 / 4);
  }
  const PlanRequest grid{
      .ranks = 4, .strategy = Strategy::kOwtA, .step_rows = 8, .bf16_transport = true, .model_ranks = 2};
  EXPECT_EQ(transfer(normalised(grid), "bn1 statistics").bytes, 2 * (2 * 2 * 8) * 2 * 3 / 4);
  const Transfer behind = transfer(normalised(grid), "bn2 statistics");
  EXPECT_EQ(behind.group, Group::kReplicas);
  EXPECT_EQ(behind.calls, 2);
  EXPECT_EQ(behind.bytes, 2 * (2 * 4 * 8));
  EXPECT_THAT(message_of([&] { normalised({.ranks = 2, .strategy = Strategy::kOwtC, .step_rows = 8}); }),
              HasSubstr("layer 'bn2' normalises over all rows of the step (rows = \"step\"), but "
                        "in the back part it sees one round at a time under owt-c"));
}

TEST(Plan, BucketsComeInTheOrderInWhichTheyAreComplete) {
  const PlanRequest request{
      .ranks = 2, .strategy = Strategy::kDataParallel, .step_rows = 8, .bucket_bytes = 1, .bf16_transport = true};
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

TEST(Plan, MicroBatchesOfASmallerStepAreNoLarger) {
  const Plan plan = plan_of(kTenClasses, {.ranks = 2, .strategy = Strategy::kOwtA, .step_rows = 24, .slices = 3});
  for (int64_t step_rows = 1; step_rows <= 24; ++step_rows)
    EXPECT_LE(rows_of(plan, step_rows).slice(0).most(), 4) << step_rows;
  EXPECT_EQ(rows_of(plan, 8).slices(), 1);
  EXPECT_EQ(rows_of(plan, 9).slices(), 2);
}

TEST(Plan, RefusesNoRanksAndNoRows) {
  EXPECT_THROW(plan_of(kTenClasses, {.ranks = 0}), Error);
  EXPECT_THROW(plan_of(kTenClasses, {.ranks = 1, .step_rows = 0}), Error);
}

TEST(Plan, WeightsThatCannotBeSplitAfterADenseLayerAreAnErrorWithTheCure) {
  for (const Strategy strategy : all_strategies()) {
    const PlanRequest request{.ranks = 2, .strategy = strategy, .step_rows = 4};
    if (!splits_dense(strategy)) {
      EXPECT_NO_THROW(plan_of(kResidualBehindDense, request));
      continue;
    }
    EXPECT_THAT(message_of([&] { plan_of(kResidualBehindDense, request); }),
                AllOf(HasSubstr("layer 'r' has weights"), HasSubstr("dense layer 'fc1'"), HasSubstr(name_of(strategy)),
                      HasSubstr("--parallel dp")));
  }
  EXPECT_NO_THROW(plan_of(kResidualBehindDense, {.ranks = 1, .strategy = Strategy::kOwtA, .step_rows = 4}));
}

}  // namespace
}  // namespace owt::plan_test
