#include "src/predict/memory_need.h"

#include <gtest/gtest.h>

#include "src/core/cpu_bf16.h"
#include "src/plan/plan_bytes.h"
#include "src/predict/mirror_need.h"
#include "tests/support/models.h"

namespace owt::memory_need_test {
namespace {

Plan plan_of(int ranks, Strategy strategy, int64_t step_rows, const Compute& on = {}) {
  PlanRequest request;
  request.ranks = ranks;
  request.strategy = strategy;
  request.step_rows = step_rows;
  request.on = on;
  return make_plan(tiny_model(), request);
}

TEST(MemoryNeed, OfOneRankCountsWeightsActivationsAndTwoGradients) {
  const MemoryNeed need = memory_need(plan_of(1, Strategy::kOwtA, 8));
  EXPECT_EQ(need.weight_bytes, 3 * 12 + 4 * 12 * 8);  // fc's gradient is not kept
  // images 4, conv 12 (relu in place), fc 4 and its gradient at the loss, two gradients of 12
  EXPECT_EQ(need.step_row_bytes, 4.0 * (4 + 12 + 2 * 4 + 2 * 12));
}

// Images, and three rows of all else; fc's gradient adds up and is kept.
TEST(MemoryNeed, OfMicroBatchesCountsTheActivationsOfOne) {
  Plan plan = plan_of(1, Strategy::kOwtA, 9);
  plan.request.slices = 3;
  const MemoryNeed need = memory_need(plan);
  EXPECT_EQ(need.weight_bytes, (3 + 4 * 12) * 12);
  EXPECT_NEAR(need.step_row_bytes, 4.0 * (4 + (12 + 2 * 4 + 2 * 12) / 3.0), 1e-9);
}

TEST(MemoryNeed, OfTheFewestEvenMicroBatchesThatFit) {
  const Plan plan = plan_of(2, Strategy::kOwtA, 24);
  const auto bytes = [&](int slices) {
    Plan sliced = plan;
    sliced.request.slices = slices;
    return memory_need(sliced).bytes(24);
  };
  EXPECT_EQ(slices_that_fit(plan, bytes(2)), 2);
  EXPECT_EQ(slices_that_fit(plan, bytes(4) - 1), 6);
  EXPECT_EQ(slices_that_fit(plan, bytes(6)), 6);
  EXPECT_EQ(slices_that_fit(plan, bytes(12) - 1), 0);
}

// The block keeps conv1's 8 and conv2's 12 (relu in place) and the shortcut's 12; while its backward runs it needs the
// gradient of its output, 12, of its input, 4, and two of its largest, 12. The loss has one of 12.
TEST(MemoryNeed, OfAResidualBlockCountsWhatItKeepsInsideAndNeedsForAWhile) {
  const Model model = model_of("[1, 2, 2]", 12, R"(
  { name = "block", type = "residual", shortcut = [{ name = "conv3", type = "conv", out = 3, kernel = 1, bias = false }], body = [
    { name = "conv1", type = "conv", out = 2, kernel = 1, bias = false },
    { name = "relu", type = "relu" },
    { name = "conv2", type = "conv", out = 3, kernel = 1, bias = false } ] })");
  PlanRequest request;
  request.step_rows = 8;
  const Plan plan = make_plan(model, request);
  const MemoryNeed need = memory_need(plan);
  EXPECT_EQ(need.weight_bytes, (2 + 6 + 3) * 12);
  EXPECT_EQ(need.step_row_bytes, 4.0 * (4 + 12 + (8 + 12 + 12) + (12 + 4 + 2 * 12) + 12));
  // The images need no gradient: conv1 and conv3 run twice in training, conv2 three times.
  const double conv1 = 2 * 8, conv2 = 2 * 24, conv3 = 2 * 12, relu = 0, sum = 12;
  EXPECT_EQ(plan.layers[0].flops_per_row, conv1 + relu + conv2 + conv3 + sum);
  EXPECT_EQ(plan.layers[0].backward_flops_per_row, conv1 + 2 * conv2 + conv3 + sum);
}

// Images and output have 12 elements. The layer keeps the pool's 3 and the 3 factors. While its backward runs it needs
// the gradients of its output and its input, 12 each, and two of its largest, 12. The loss has one of 12.
TEST(MemoryNeed, OfAScaleCountsItsFactorsAndItsBody) {
  const Model model = model_of("[3, 2, 2]", 12, R"(
  { name = "se", type = "scale", body = [
    { name = "pool", type = "global_avg_pool" },
    { name = "fc", type = "dense", out = 3, bias = false } ] })");
  PlanRequest request;
  request.step_rows = 8;
  const Plan plan = make_plan(model, request);
  const MemoryNeed need = memory_need(plan);
  EXPECT_EQ(need.weight_bytes, 9 * 12);
  EXPECT_EQ(need.step_row_bytes, 4.0 * (12 + 12 + (3 + 3) + (12 + 12 + 2 * 12) + 12));
  const double product = 12, pool = 12, fc = 2 * 9;
  EXPECT_EQ(plan.layers[0].flops_per_row, product + pool + fc);
  EXPECT_EQ(plan.layers[0].backward_flops_per_row, product + fc);  // the images need no gradient
}

// Frozen layers before all trained ones keep only their last output. conv1 has 8 elements (relu in place), conv2 12;
// the block keeps the last outputs of its branches.
TEST(MemoryNeed, OfFrozenLayersBeforeAllThatLearnCountsTheLastOutput) {
  const auto elements = [](const std::string& layers, const std::vector<std::string>& frozen) {
    Model model = model_of("[1, 2, 2]", 2, layers + R"(, { name = "fc", type = "dense", out = 2, bias = false })");
    model.frozen = frozen;
    PlanRequest request;
    request.step_rows = 8;
    return memory_need(make_plan(model, request)).step_row_bytes / 4;
  };
  const std::string body = R"(
    { name = "conv1", type = "conv", out = 2, kernel = 1, bias = false },
    { name = "relu", type = "relu" },
    { name = "conv2", type = "conv", out = 3, kernel = 1, bias = false })";
  EXPECT_EQ(elements(body, {}), 4 + 8 + 12 + 2 + 2 * 12 + 2);
  EXPECT_EQ(elements(body, {"conv1"}), elements(body, {}));
  EXPECT_EQ(elements(body, {"conv*"}), elements(body, {}) - 8);
  EXPECT_EQ(elements(body, {"conv2"}), elements(body, {}));
  const std::string block = concat(
      R"({ name = "block", type = "residual", shortcut = [{ name = "conv3", type = "conv", out = 3, kernel = 1 }], body = [)",
      body, "] }");
  EXPECT_EQ(elements(block, {"block.conv1"}), elements(block, {}));
  EXPECT_EQ(elements(block, {"block"}), elements(block, {}) - 8);
}

// One value of f32 for each of the 8, whatever the activations are; kernels for windows of 5 channels need none.
TEST(MemoryNeed, OfAnLrnCountsTheScratchMemoryOfItsKernels) {
  const auto row_bytes = [](const Compute& on, int size) {
    const Model model = model_of("[8, 1, 1]", 8, concat("{ name = \"norm\", type = \"lrn\", size = ", size, " }"));
    PlanRequest request;
    request.on = on;
    request.step_rows = 8;
    return memory_need(make_plan(model, request)).step_row_bytes;
  };
  for (const auto precision : {Precision::kFp32, Precision::kBf16})
    EXPECT_EQ(row_bytes({Device::kCuda, precision}, 7), row_bytes({Device::kCuda, precision}, 5) + 4 * 8);
  EXPECT_EQ(row_bytes(Device::kCpu, 7), row_bytes(Device::kCpu, 5));
}

// On the CPU only weights of dense layers have a copy, if the CPU has the instructions.
TEST(MemoryNeed, Bf16HalvesActivationsAndOnAGpuGradientsAndAddsCopiesOfWeights) {
  const MemoryNeed need = memory_need(plan_of(1, Strategy::kOwtA, 8, {Device::kCpu, Precision::kBf16}));
  const MemoryNeed on_gpu = memory_need(plan_of(1, Strategy::kOwtA, 8, {Device::kCuda, Precision::kBf16}));
  const int copy = cpu_has_bf16() ? 2 : 0;
  EXPECT_EQ(need.weight_bytes, 3 * (4 + 4 + 4) + 4 * 12 * (4 + copy + 4));  // value, conv's gradient, copy, velocity
  EXPECT_EQ(on_gpu.weight_bytes, 3 * (4 + 2 + 2 + 4) + 4 * 12 * (4 + 2 + 4));
  EXPECT_EQ(need.step_row_bytes, 2.0 * (4 + 12 + 2 * 4 + 2 * 12));
}

// Gradients of conv's 3 weights are summed over two ranks; gradients of fc's half of 48 are summed only if there are
// rounds, and otherwise not stored.
TEST(MemoryNeed, InBf16SumsOfGradientsAreF32) {
  const Compute on{Device::kCuda, Precision::kBf16};
  EXPECT_EQ(memory_need(plan_of(2, Strategy::kOwtA, 8, on)).weight_bytes, 3 * 14 + 24 * 10);
  EXPECT_EQ(memory_need(plan_of(2, Strategy::kOwtC, 8, on)).weight_bytes, 3 * 14 + 24 * 14);
}

// fc2's update multiplies its gradient after the backward pass of fc1. fc3 has the gradient of the logits.
TEST(MemoryNeed, OfAGpuIncludesTheGradientsThatTheUpdateMultiplies) {
  const Model model = model_of("[4, 1, 1]", 4, R"(
  { name = "fc1", type = "dense", out = 6 },
  { name = "relu1", type = "relu" },
  { name = "fc2", type = "dense", out = 5 },
  { name = "fc3", type = "dense", out = 4 },
  { name = "relu3", type = "relu" })");
  PlanRequest request{.step_rows = 8, .on = {Device::kCuda, Precision::kBf16}};
  const MemoryNeed need = memory_need(make_plan(model, request));
  request.keeps_gradients = true;
  const MemoryNeed kept = memory_need(make_plan(model, request));
  EXPECT_EQ(need.step_row_bytes - kept.step_row_bytes, 2 * (6 + 5));
  EXPECT_EQ(kept.weight_bytes - need.weight_bytes, 2 * (4 * 6 + 6 * 5 + 5 * 4));
}

TEST(MemoryNeed, OnAGpuTwoBatchesOfImagesAndWhatTheyAreMadeFromAreThere) {
  PlanRequest request;
  request.step_rows = 8;
  request.on = {Device::kCuda, Precision::kBf16};
  request.batch_row_bytes = 15;
  request.batch_bytes = 80;
  EXPECT_EQ(memory_need(make_plan(tiny_model(), request)).step_row_bytes,
            2.0 * (2 * 4 + 12 + 2 * 4 + 2 * 12) + 15 + 80 / 8.0);
}

TEST(MemoryNeed, SplitDenseLayersKeepTheirShareOfTheWeights) {
  const MemoryNeed need = memory_need(plan_of(2, Strategy::kOwtA, 8));
  EXPECT_EQ(need.weight_bytes, 3 * 12 + 2 * 12 * 8);
}

// 2 ranks, 8 rows. fc1 (12 -> 6) and fc2 (6 -> 4) are split by outputs: 3 of 6, 2 of 4.
TEST(MemoryNeed, OfLayersSplitByOutputsTheGatheredInputsAreCounted) {
  const Model model = model_of("[1, 2, 2]", 4, R"(
  { name = "conv", type = "conv", out = 3, kernel = 1 },
  { name = "fc1", type = "dense", out = 6 },
  { name = "fc2", type = "dense", out = 4 })");
  const Plan plan = make_plan(model, {.ranks = 2, .strategy = Strategy::kOwtA, .step_rows = 8});
  // A rank's own rows: images 4, conv 12, the returned gradient 12, and labels, which are stored by rank, all together
  // and for a round.
  const double own = 4 + 12 + 12 + 1;
  // All rows: the dense batch and its gradient. fc1's 3 outputs. fc2's 6 inputs, their gradient, and the transfer, 3 of
  // this rank and 6 of all; its 2 outputs. The logits, their gradient and the transfer. Each layer is alone in its
  // stage, so the stages have no gradients of their own.
  const double all = 2 * 12 + 3 + (2 * 6 + 3 + 6) + 2 + (2 * 4 + 2 + 4) + 2;
  EXPECT_DOUBLE_EQ(memory_need(plan).step_row_bytes, 4 * (own * 4 / 8 + all));
}

// Like above, in two rounds of 4 rows: there is memory for both at the boundary, and one is computed at a time.
TEST(MemoryNeed, OfRoundsTwoDenseBatchesAreCounted) {
  const Model model = model_of("[1, 2, 2]", 4, R"(
  { name = "conv", type = "conv", out = 3, kernel = 1 },
  { name = "fc1", type = "dense", out = 6 },
  { name = "fc2", type = "dense", out = 4 })");
  const double own = 4 + 12 + 12 + 1, dense = 3 + (2 * 6 + 3 + 6) + 2 + (2 * 4 + 2 + 4) + 2;
  const Plan plan = make_plan(model, {.ranks = 2, .strategy = Strategy::kOwtB, .step_rows = 8});
  EXPECT_DOUBLE_EQ(memory_need(plan).step_row_bytes, 4 * (own + 1 + 2 * 2 * 12 + dense) / 2);
}

// The bucket of 3 + 48 elements is padded to 8 + 48 and, for three ranks, to shares of 24.
TEST(MemoryNeed, SharesOfTheUpdateKeepTheirShareOfTheVelocities) {
  const MemoryNeed need = memory_need(plan_of(3, Strategy::kDataParallelZero, 9));
  EXPECT_EQ(need.weight_bytes, (3 + 48) * 8 + 24 * 4);
}

// A bucket of 8 + 48 elements, or two. Rank 0 receives the buckets of three ranks into separate memory.
TEST(MemoryNeed, WhereOneRankUpdatesForAllItHasTheVelocitiesAndTheGradientsOfTheOthers) {
  const Plan one = plan_of(4, Strategy::kDataParallelStar, 9);
  ASSERT_EQ(one.buckets.size(), 1u);
  EXPECT_EQ(memory_need(one).weight_bytes, (3 + 48) * 12 + 3 * (8 + 48) * 4);
}

// Two copies on the host of two ranks' shards of fc, each with its velocity, and of conv.
TEST(MemoryNeed, OfARunWhoseWorkersChangeCountsTheMirrorOnACpu) {
  for (const Device device : {Device::kCpu, Device::kCuda}) {
    Plan plan = plan_of(2, Strategy::kOwtA, 8, {device, Precision::kFp32});
    const int64_t without = memory_need(plan).weight_bytes;
    plan.request.mirror_every = 50;
    EXPECT_EQ(memory_need(plan).weight_bytes - without, device == Device::kCpu ? 2 * 2 * (3 + 24 + 24) * 4 : 0);
  }
  Plan plan = plan_of(2, Strategy::kOwtA, 8);
  plan.request.mirror_every = 50;
  EXPECT_EQ(mirror_text(plan),
            "every 50 steps a worker sends at most 0.0002 MB (0.0000 MB a step), and its copies take 0.0008 MB of host "
            "memory");
}

// Shards of 24. A server receives the gradients of the two other ranks. With a delay it has a gradient of each of the
// three ranks, its own weights, and the weights of its answers to the two.
TEST(MemoryNeed, AServerHasTheVelocitiesOfItsShareAndTheGradientsThatCome) {
  Plan plan = plan_of(3, Strategy::kParameterServer, 9);
  EXPECT_EQ(memory_need(plan).weight_bytes, (3 + 48) * 8 + 24 * 4 * (1 + 2));
  plan.request.options.server.rules = {.delay = 1, .pushes = 1};
  EXPECT_EQ(memory_need(plan).weight_bytes, (3 + 48) * 8 + 24 * 4 * (1 + 3 + 1 + 2));
}

// 4 ranks, 8 rows. fc1 (12 -> 4) and fc2 (4 -> 2) are split by inputs: 3 of 12, 1 of 4.
TEST(MemoryNeed, OfLayersSplitByInputsTheSummandsAreKeptAndTheColumnsMoved) {
  const Model model = model_of("[1, 2, 2]", 2, R"(
  { name = "conv", type = "conv", out = 3, kernel = 1, bias = false },
  { name = "fc1", type = "dense", out = 4 },
  { name = "fc2", type = "dense", out = 2 })");
  const Plan plan = make_plan(model, {.ranks = 4, .strategy = Strategy::kOwtD, .step_rows = 8});
  ASSERT_TRUE(plan.layers[1].by_inputs() && plan.layers[2].by_inputs());
  const MemoryNeed need = memory_need(plan);
  // The biases are whole on rank 0.
  EXPECT_EQ(need.weight_bytes, (3 + 4 + 2) * 12 + (4 * 3 + 2 * 1) * 8);
  // A rank's own rows, 2 of 8: images 4, conv 12, the returned gradient 12, and labels.
  const double own = 4 + 12 + 12 + 1;
  // All rows: the 3 columns sent, received and returned, and their gradient. fc1: its 4 contributions, and the buffer
  // of the all-gather. fc2: its one column's gradient, its 2 contributions, and the buffer (its parts are uneven: one
  // more column). The logits, their gradient and the buffer of the transfer; labels like above.
  const double all = 4 * 3 + (4 + 4 + 1 + 4) + (1 + 2 + 2 + 2 + 4) + (2 + 2 + 2 + 4) + 2;
  EXPECT_DOUBLE_EQ(need.step_row_bytes, 4 * (own * 2 / 8 + all));
}

// A piece holds fc's 48 weights; on the host one is read, received, brought into memory's order and cut.
TEST(MemoryNeed, CountsThePiecesOfCheckpoints) {
  const Plan plan = plan_of(2, Strategy::kOwtA, 8);
  const MemoryNeed need = memory_need(plan);
  EXPECT_EQ(need.piece_bytes, 4 * 48 * 4);
  EXPECT_EQ(need.bytes(8), need.weight_bytes + need.piece_bytes + static_cast<int64_t>(8 * need.step_row_bytes));
  EXPECT_EQ(need.rows_in(need.bytes(8)), 8);
}

TEST(RankBytes, OfARankThatHasTheMostAreItsNeedButForPiecesOfFiles) {
  for (const Strategy strategy : {Strategy::kDataParallel, Strategy::kOwtA, Strategy::kDataParallelZero}) {
    const Plan plan = plan_of(2, strategy, 8);
    const MemoryNeed need = memory_need(plan);
    EXPECT_EQ(rank_bytes(plan, Mode::kTrain, 0), need.bytes(8) - need.piece_bytes) << name_of(strategy);
    EXPECT_LT(rank_bytes(plan, Mode::kEval, 0), rank_bytes(plan, Mode::kTrain, 0)) << name_of(strategy);
  }
}

TEST(RankBytes, EachStageOfAPipelineHasItsOwnWeights) {
  const Plan plan = plan_of(2, Strategy::kPipeline, 8);
  int64_t values = 0;
  for (const int place : {0, 1}) values += weight_bytes_per_rank(plan, place);
  EXPECT_EQ(values, weight_bytes_per_rank(plan_of(1, Strategy::kDataParallel, 8)));
  EXPECT_LT(rank_bytes(plan, Mode::kTrain, 0) + rank_bytes(plan, Mode::kTrain, 1), 2 * memory_need(plan).bytes(8));
}

TEST(MemoryNeed, RowsThatFitAreTheLargestStepWithinTheMemory) {
  const MemoryNeed need{1000, 10.0};
  EXPECT_EQ(need.rows_in(1055), 5);
  EXPECT_LE(need.bytes(need.rows_in(1055)), 1055);
  EXPECT_GT(need.bytes(need.rows_in(1055) + 1), 1055);
  EXPECT_EQ(need.rows_in(900), 0);
}

// tanh reads its output in backward, and a dropout after it would change that.
TEST(MemoryNeed, WhatWouldOverwriteAnOutputThatIsReadHasMemoryOfItsOwn) {
  const Model model = model_of("[1, 2, 2]", 4, R"(
  { name = "conv", type = "conv", out = 3, kernel = 1, bias = false },
  { name = "tanh", type = "activation", kind = "tanh" },
  { name = "drop", type = "dropout", rate = 0.5 },
  { name = "fc", type = "dense", out = 4, bias = false })");
  const Plan plan = make_plan(model, {});
  EXPECT_TRUE(plan.layer(1).in_place);
  EXPECT_FALSE(plan.layer(2).in_place);
  EXPECT_EQ(kept_elements(plan.layers), 12 + 12 + 4);
  EXPECT_NO_THROW(make_plan(model, {.ranks = 3, .strategy = Strategy::kPipeline, .step_rows = 4})) << "conv, drop, fc";
  EXPECT_THROW(make_plan(model, {.ranks = 4, .strategy = Strategy::kPipeline, .step_rows = 4}), Error);
}

// The input of the body is read again when the sum is computed, so it must not be overwritten.
TEST(MemoryNeed, TheFirstLayerOfABranchIsNotInPlace) {
  const Model model = model_of("[1, 2, 2]", 4, R"(
  { name = "block", type = "residual", body = [
  { name = "relu1", type = "relu" }, { name = "conv", type = "conv", out = 1, kernel = 1 }, { name = "relu2", type = "relu" }
] })");
  const LayerPlan block = make_plan(model, {}).layers.front();
  EXPECT_FALSE(block.inner[0].in_place);
  EXPECT_TRUE(block.inner[2].in_place);
  EXPECT_EQ(block.inner_elements(), 4 + 4);
}

}  // namespace
}  // namespace owt::memory_need_test
