#include "src/predict/step_price.h"

#include <gtest/gtest.h>

#include "src/plan/plan_bytes.h"
#include "src/plan/plan_updates.h"
#include "src/plan/step_result.h"
#include "src/predict/memory_need.h"
#include "tests/support/fixed_compute.h"
#include "tests/support/models.h"

namespace owt::step_price_test {
namespace {

Plan tiny(Strategy strategy, DenseUpdate dense_update = DenseUpdate::kStep) {
  PlanRequest request;
  request.ranks = 2;
  request.strategy = strategy;
  request.dense_update = dense_update;
  request.step_rows = 8;
  request.bucket_bytes = 1;  // a bucket for each layer
  return make_plan(tiny_model(), request);
}

// 96 bytes a second, no latency.
Network two_ranks(bool overlaps = true) {
  Network network;
  network.ranks_per_host = 2;
  network.local = {0, 96};
  network.overlaps = overlaps;
  return network;
}

// A rank's 4 rows take: conv 4 forward and 8 backward, fc 12 and 16, loss 1.
FixedCompute compute() { return FixedCompute({{1, 2, 0.5}, {0, 0, 0}, {3, 4, 1}}, 0.25); }

constexpr double kStepResult = kStepResultBytes / 96.0;  // half of it sent in each of two directions

TEST(StepPrice, DataParallelGradientsLeaveDuringBackward) {
  // Gradients of fc, 192 bytes: 2 s, hidden by conv's backward of 8 s. Gradients of conv, 32 bytes (3 weights are
  // padded to 8): 1/3 s, exposed.
  const Prediction p = price_step(tiny(Strategy::kDataParallel), two_ranks(), compute());
  EXPECT_DOUBLE_EQ(p.compute_s, 4 + 12 + 1 + 16 + 8);
  EXPECT_DOUBLE_EQ(p.update_s, 1.5);
  EXPECT_NEAR(p.exposed_s, 1.0 / 3 + kStepResult, 1e-12);
  EXPECT_NEAR(p.transfer_s, 2 + 1.0 / 3 + kStepResult, 1e-12);
  EXPECT_NEAR(p.step_s(), 42.5 + 1.0 / 3 + kStepResult, 1e-12);
  EXPECT_NEAR(p.images_per_second(), 8 / p.step_s(), 1e-12);
  EXPECT_FALSE(p.split);
  EXPECT_EQ(p.bytes, 192 + 32 + kStepResultBytes);
  EXPECT_EQ(p.memory_bytes, memory_need(tiny(Strategy::kDataParallel)).bytes(8));
}

// Three of an update's five arrays: averages are read and written, and weights are read.
TEST(StepPrice, AveragesOverTimeCountForTheStepsThatUpdateThem) {
  Plan plan = tiny(Strategy::kDataParallel);
  for (const int every : {1, 4}) {
    plan.request.ema_every = every;
    EXPECT_NEAR(price_step(plan, two_ranks(), compute()).update_s, 1.5 + 0.6 * 1.5 / every, 1e-12);
  }
  plan.request.ema_every = 0;
  EXPECT_NEAR(price_step(plan, two_ranks(), compute()).update_s, 1.5, 1e-12);
}

// If every third step averages the ranks' weights, the averages over time are updated in every third or sixth step.
TEST(StepPrice, AveragesOverTimeWaitForTheStepThatAveragesTheRanks) {
  for (const auto& [every, of] : {std::pair(1, 3), {3, 3}, {4, 6}}) {
    const Plan plan = make_plan(
        tiny_model(),
        {.ranks = 2, .strategy = Strategy::kDataParallel, .step_rows = 8, .average_every = 3, .ema_every = every});
    EXPECT_EQ(period_of(plan), of);
    EXPECT_NEAR(price_step(plan, two_ranks(), compute()).update_s, 1.5 + 0.6 * 1.5 / of, 1e-12) << every;
  }
}

// fc's gradients arrive while conv runs backward; conv's take 1/3 s. Then squares of gradients are summed, and an
// update follows.
TEST(StepPrice, NormsComeBetweenGradientsAndUpdates) {
  for (const int sums : {1, 2}) {
    const auto price = [&](Strategy strategy) {
      return price_step(
          make_plan(tiny_model(),
                    {.ranks = 2, .strategy = strategy, .step_rows = 8, .bucket_bytes = 1, .norm_sums = sums}),
          two_ranks(), compute());
    };
    const Prediction dp = price(Strategy::kDataParallel);
    EXPECT_NEAR(dp.update_s, 1.5 + 0.2 * sums * 1.5, 1e-12);
    EXPECT_EQ(dp.bytes, 192 + 32 + kStepResultBytes);  // every rank has all gradients
    EXPECT_NEAR(dp.exposed_s, 1.0 / 3 + kStepResult, 1e-12);
    const int64_t told = trained_params(tiny(Strategy::kOwtA)) * sums * 8;
    EXPECT_EQ(price(Strategy::kOwtA).bytes - price_step(tiny(Strategy::kOwtA), two_ranks(), compute()).bytes, told);
    const Prediction zero = price(Strategy::kDataParallelZero);
    EXPECT_NEAR(zero.update_s, 0.75 + 0.2 * sums * 0.75, 1e-12);
    EXPECT_EQ(zero.bytes - price_step(tiny(Strategy::kDataParallelZero), two_ranks(), compute()).bytes, told);
  }
}

TEST(StepPrice, GradientsThatTakeLongerThanBackwardAreExposed) {
  Network slow = two_ranks();
  slow.local.bytes_per_s = 12;
  // fc's gradients: 16 s from the 33rd on, against 8 of backward; then conv's 32/12.
  const Prediction p = price_step(tiny(Strategy::kDataParallel), slow, compute());
  EXPECT_NEAR(p.exposed_s, 8 + 32.0 / 12 + kStepResultBytes / 12.0, 1e-12);
}

TEST(StepPrice, WithoutOverlapEveryTransferIsExposed) {
  for (const Strategy strategy : {Strategy::kDataParallel, Strategy::kOwtA, Strategy::kOwtB, Strategy::kOwtC}) {
    const Prediction p = price_step(tiny(strategy), two_ranks(false), compute());
    EXPECT_NEAR(p.exposed_s, p.transfer_s, 1e-12) << name_of(strategy);
  }
}

TEST(StepPrice, OneRoundOfAllRowsWaitsForItsGatherAndItsLogits) {
  // Labels 1/6 s, hidden by conv's 4 s. All-gather of 192 sent bytes: 2. fc on 8 rows, half of the outputs: 12 and 16;
  // loss of 8 rows: 2. Logits 64 bytes: 2/3. Reduce-scatter 2, hidden by the 8 of fc's weight gradients. Then conv's
  // backward 8 and its gradients 1/3.
  const Prediction p = price_step(tiny(Strategy::kOwtA), two_ranks(), compute());
  EXPECT_DOUBLE_EQ(p.compute_s, 4 + 12 + 2 + 16 + 8);
  EXPECT_DOUBLE_EQ(p.update_s, 0.5 + 0.5);
  EXPECT_TRUE(p.split);
  // The update of fc, 0.5, hides conv's gradients.
  EXPECT_NEAR(p.exposed_s, 2 + 2.0 / 3 + kStepResult, 1e-12);
  EXPECT_NEAR(p.transfer_s, 1.0 / 6 + 2 + 2.0 / 3 + 2 + 1.0 / 3 + kStepResult, 1e-12);
}

// Half of the rows at a time; the hiding computation takes equally long, and the gradients are sent once.
TEST(StepPrice, MicroBatchesTakeAsLongWhereTransfersHaveNoLatencyAndLessMemory) {
  for (const Strategy strategy : {Strategy::kDataParallel, Strategy::kOwtA, Strategy::kOwtC}) {
    Plan sliced = tiny(strategy);
    sliced.request.slices = 2;
    sliced = make_plan(tiny_model(), sliced.request);
    const Prediction whole = price_step(tiny(strategy), two_ranks(), compute()),
                     p = price_step(sliced, two_ranks(), compute());
    EXPECT_DOUBLE_EQ(p.compute_s, whole.compute_s);
    EXPECT_DOUBLE_EQ(p.update_s, whole.update_s);
    EXPECT_NEAR(p.transfer_s, whole.transfer_s, 1e-12);
    EXPECT_NEAR(p.exposed_s, whole.exposed_s, 1e-12) << name_of(strategy);
    EXPECT_EQ(p.bytes, whole.bytes);
    EXPECT_LT(p.memory_bytes, whole.memory_bytes);
  }
}

TEST(StepPrice, WhatTheWeightGradientsDoNotHideOfTheReduceScatterIsExposed) {
  Network slow = two_ranks();
  slow.local.bytes_per_s = 16;
  // Six times as long: gather 12, logits 4, reduce-scatter 12 - 8, conv's gradients 2 - 0.5.
  EXPECT_NEAR(price_step(tiny(Strategy::kOwtA), slow, compute()).exposed_s, 12 + 4 + 4 + 1.5 + 6 * kStepResult, 1e-12);
}

TEST(StepPrice, TheNextRoundTravelsWhileThisOneComputes) {
  // Two rounds of 4 rows, each with an all-gather and a reduce-scatter of 1 s and logits of 1/3 s; fc 6 and 8, loss 1.
  // The first all-gather is exposed. The second runs while round 0 computes. The logits of both rounds are exposed.
  // fc's weight gradients hide the reduce-scatters.
  const Prediction p = price_step(tiny(Strategy::kOwtC), two_ranks(), compute());
  EXPECT_DOUBLE_EQ(p.compute_s, 4 + 2 * (6 + 1 + 8) + 8);
  EXPECT_NEAR(p.exposed_s, 1 + 2.0 / 3 + kStepResult, 1e-12);
}

// Four rounds, 48 bytes a second. Every gather and reduce-scatter takes 3 s, the logits of a round and the labels 1. fc
// takes 4 in forward (a quarter on four rows) and 4 in backward, 2 of them for its weights.
TEST(StepPrice, ARoundIsGatheredIntoASlotWhoseGradientsAreHome) {
  PlanRequest request = tiny(Strategy::kOwtC).request;
  request.ranks = 4;
  request.step_rows = 16;
  Network network = two_ranks();
  network.ranks_per_host = 4;
  network.local = {0, 48};
  const FixedCompute compute({{1, 2, 0.5}, {0, 0, 0}, {4, 4, 1}}, 0.25);
  const Prediction p = price_step(make_plan(tiny_model(), request), network, compute);
  EXPECT_DOUBLE_EQ(p.compute_s, 4 + 4 * (4 + 1 + 4) + 8);
  // The first all-gather is exposed, and so are the logits of every round. The reduce-scatters take 1 longer than the
  // weight gradients. The all-gathers into their slots wait for the first and second; the front's backward waits for
  // the last. Nothing waits for the third. Then conv's gradients, 1 s, after fc's update of 0.25; the result.
  EXPECT_NEAR(p.exposed_s, 3 + 4 * 1 + 3 * 1 + 0.75 + kStepResultBytes * 1.5 / 48, 1e-12);
}

TEST(StepPrice, OneSenderAtATimeTakesTwiceAsLong) {
  // owt-b: a broadcast of 4 rows, 192 bytes, takes 2 s; the reduction of their gradients takes 2 s too.
  const Prediction p = price_step(tiny(Strategy::kOwtB), two_ranks(), compute());
  EXPECT_NEAR(p.transfer_s, 1.0 / 6 + 2 * (2 + 1.0 / 3 + 2) + 1.0 / 3 + kStepResult, 1e-12);
  EXPECT_NEAR(p.exposed_s, 2 + 2.0 / 3 + kStepResult, 1e-12);
}

TEST(StepPrice, ADenseUpdateInEveryRoundIsPaidInEveryRound) {
  const Prediction p = price_step(tiny(Strategy::kOwtC, DenseUpdate::kRound), two_ranks(), compute());
  EXPECT_DOUBLE_EQ(p.update_s, 2 * 0.5 + 0.5);
}

TEST(StepPrice, WhatIsNotSplitIsComputedForAllRowsEverywhere) {
  const Prediction p = price_step(tiny(Strategy::kModelParallelDense), two_ranks(), compute());
  EXPECT_DOUBLE_EQ(p.compute_s, 8 + 12 + 2 + 16 + 16);
  // Logits and the result are exposed. fc's weight gradients hide the sum of 384 bytes of gradients; the update of fc
  // hides the copies of conv's 32 bytes.
  EXPECT_NEAR(p.exposed_s, 2.0 / 3 + kStepResult, 1e-12);
  EXPECT_NEAR(p.transfer_s, 2.0 / 3 + 4 + 1.0 / 3 + kStepResult, 1e-12);
}

TEST(StepPrice, ModelParallelComputesPartsOfAllRows) {
  const Prediction p = price_step(tiny(Strategy::kModelParallel), two_ranks(), compute());
  EXPECT_NEAR(p.compute_s, 2.0 / 3 * 8 + 12 + 2 + 16 + 2.0 / 3 * 16, 1e-12);  // 2 of conv's 3 channels
  EXPECT_DOUBLE_EQ(p.update_s, 2.0 / 3 * 0.5 + 0.5);
  // 2 channels of 4 pixels of 8 rows to the other rank, 256 bytes; fc's weight gradients hide their gradients. Then
  // logits and the result.
  EXPECT_NEAR(p.exposed_s, 256 / 96.0 + 2.0 / 3 + kStepResult, 1e-12);
  EXPECT_NEAR(p.transfer_s, 2 * 256 / 96.0 + 2.0 / 3 + kStepResult, 1e-12);
}

TEST(StepPrice, IsThatOfTheSlowestRank) {
  PlanRequest request = tiny(Strategy::kDataParallel).request;
  request.speeds = {1, 0.5};  // 4 rows of the second take twice as long, and so does its update
  const Prediction equal = price_step(make_plan(tiny_model(), request), two_ranks(), compute());
  EXPECT_DOUBLE_EQ(equal.compute_s, 2 * (4 + 12 + 1 + 16 + 8));
  EXPECT_DOUBLE_EQ(equal.update_s, 2 * 1.5);
  request.step_rows = 12;
  request.shares = {2, 1};  // 8 rows at 1, 4 at 0.5
  const Prediction by_speed = price_step(make_plan(tiny_model(), request), two_ranks(), compute());
  EXPECT_DOUBLE_EQ(by_speed.compute_s, equal.compute_s);
  request.speeds = {};
  request.shares = {1, 3};  // the second rank has 9 rows
  const Prediction by_rows = price_step(make_plan(tiny_model(), request), two_ranks(), compute());
  EXPECT_DOUBLE_EQ(by_rows.compute_s, 9.0 / 4 * (4 + 12 + 1 + 16 + 8));
}

// The front's time is the second rank's, which has 6 rows at the same speed; fc's rows wait for the first, which is
// slower.
TEST(StepPrice, EveryPartIsThatOfTheRankThatHoldsItUp) {
  PlanRequest request = tiny(Strategy::kOwtA).request;
  request.speeds = {0.5, 1};
  request.shares = {1, 3};  // 2 rows at 0.5, 6 at 1
  const Prediction p = price_step(make_plan(tiny_model(), request), two_ranks(), compute());
  EXPECT_DOUBLE_EQ(p.compute_s, 6 * (1 + 2) + 2 * (12 + 2 + 16));
}

// Four ranks on two hosts; one copy of fc on each host.
TEST(StepPrice, AGridSumsDenseGradientsBetweenHosts) {
  Plan plan = tiny(Strategy::kOwtA);
  PlanRequest request = plan.request;
  request.ranks = 4;
  request.model_ranks = 2;
  request.step_rows = 16;
  Network network = two_ranks();
  network.hosts = 2;
  network.between = {0, 12};
  plan = make_plan(tiny_model(), request);
  const Prediction p = price_step(plan, network, compute());
  EXPECT_EQ(p.name(), "owt-a 2x2");
  EXPECT_DOUBLE_EQ(p.compute_s, 4 + 12 + 2 + 16 + 8);  // equal to two ranks with half of the rows
  // Within a host: labels 1/6, gather 2, logits 2/3, reduce-scatter 2. Between hosts two ranks share 12 bytes a second.
  // Half of fc's gradients, 96 bytes: 16 s from the end of fc's backward on. Conv's, 32 bytes: a rank sends 8 to each
  // of two ranks there, twice: 2 * 2 * 16 / 12. The result likewise.
  EXPECT_NEAR(p.transfer_s, 1.0 / 6 + 2 + 2.0 / 3 + 2 + 16 + 64.0 / 12 + 2.0 * kStepResultBytes / 12, 1e-12);
  // conv's backward of 8 hides a part of fc's 16. conv's gradients wait for these, and fc's update of 0.5 hides a part
  // of them.
  EXPECT_NEAR(p.exposed_s, 2 + 2.0 / 3 + 8 + (64.0 / 12 - 0.5) + 2.0 * kStepResultBytes / 12, 1e-12);
  EXPECT_DOUBLE_EQ(p.update_s, 1);
}

// fc has 12 inputs and 4 outputs: under owt-d it is split by its inputs.
TEST(StepPrice, SplitByInputsRowsAreExchangedAndOutputsSummed) {
  const Plan plan = tiny(Strategy::kOwtD);
  ASSERT_TRUE(plan.layers.back().by_inputs());
  const Prediction p = price_step(plan, two_ranks(), compute());
  EXPECT_DOUBLE_EQ(p.compute_s, 4 + 12 + 2 + 16 + 8);  // half of fc's inputs on 8 rows
  EXPECT_DOUBLE_EQ(p.update_s, 1);
  // Half of the rank's 4 rows of 48 bytes to the other and back: 1 s each, the way back hidden. The outputs, 8 rows of
  // 16 bytes: 2/3 for their sums, and again for the logits, whose whole gradient all ranks have.
  EXPECT_NEAR(p.transfer_s, 1.0 / 6 + 1 + 1 + 2 * 2.0 / 3 + 1.0 / 3 + kStepResult, 1e-12);
  EXPECT_NEAR(p.exposed_s, 1 + 2 * 2.0 / 3 + kStepResult, 1e-12);
}

TEST(StepPrice, SharesOfTheUpdateTravelBackWhileTheNextIsMade) {
  const Prediction p = price_step(tiny(Strategy::kDataParallelZero), two_ranks(), compute());
  EXPECT_DOUBLE_EQ(p.compute_s, 4 + 12 + 1 + 16 + 8);
  EXPECT_DOUBLE_EQ(p.update_s, 1.5 / 2);
  // The sums are complete when backward ends, except conv's last 1/3 (padded to 16 weights), which fc's update of 0.5
  // hides. Then fc's weights take 1, of which conv's update hides 0.25, and conv's 1/3.
  EXPECT_NEAR(p.exposed_s, 1 - 0.25 + 1.0 / 3 + kStepResult, 1e-12);
  EXPECT_NEAR(p.transfer_s, 2 * (1 + 1.0 / 3) + kStepResult, 1e-12);
}

TEST(StepPrice, WeightsLeaveAStarsFirstRankWhileGradientsCome) {
  const Prediction p = price_step(tiny(Strategy::kDataParallelStar), two_ranks(), compute());
  EXPECT_DOUBLE_EQ(p.update_s, 1.5);
  // fc's gradients arrive during conv's backward, conv's during fc's update. Then fc's weights take 2, beside conv's
  // update of 0.5, and conv's 1/3.
  EXPECT_NEAR(p.exposed_s, 2 - 0.5 + 1.0 / 3 + kStepResult, 1e-12);
  EXPECT_NEAR(p.transfer_s, 2 * (2 + 1.0 / 3) + kStepResult, 1e-12);
  EXPECT_EQ(p.bytes, 192 + 32 + kStepResultBytes);
  EXPECT_EQ(p.busiest_link, 192 + 32 + kStepResultBytes);
  // The links are so slow that fc's weights are sent before conv's gradients have arrived.
  Network slow = two_ranks();
  slow.local.bytes_per_s = 9.6;
  const Prediction q = price_step(tiny(Strategy::kDataParallelStar), slow, compute());
  // fc's gradients take 20 s, of which conv's backward hides 8; then fc's update. conv's gradients of 10/3 come after
  // fc's, which hides 1. conv's update runs beside the transfer of fc's weights, which takes 20; then conv's weights.
  EXPECT_NEAR(q.exposed_s, 12 + 7.0 / 3 + (20 - 7.0 / 3 - 0.5) + 10.0 / 3 + 10 * kStepResult, 1e-9);
}

// A ring's links carry hardly more with every rank, a star's first link as much more.
TEST(StepPrice, AStarTakesLongerWithEveryRank) {
  PlanRequest request = tiny(Strategy::kDataParallelStar).request;
  Network network = two_ranks(/*overlaps=*/false);
  for (const int ranks : {2, 3, 4, 8}) {
    request.ranks = network.ranks_per_host = ranks;
    request.step_rows = 4 * ranks;
    const Prediction p = price_step(make_plan(tiny_model(), request), network, compute());
    const double result = 2.0 * kStepResultBytes * (ranks - 1) / ranks / 96;
    EXPECT_NEAR(p.transfer_s, 2 * (ranks - 1) * (192 + 32) / 96.0 + result, 1e-9);
    EXPECT_NEAR(static_cast<double>(p.busiest_link), (ranks - 1) * (192 + 32) + 96 * result, 1);
  }
}

// On a wire of bf16 they leave in 16 elements of f32; the others are 48 of fc, 16 of bn and 16 of conv.
TEST(StepPrice, RunningAveragesInABucketOfTheirOwnAreUpdatedWithTheirLayer) {
  PlanRequest request = tiny(Strategy::kDataParallelZero).request;
  request.bf16_transport = true;
  const Model model = model_of("[1, 2, 2]", 4, R"(
  { name = "conv", type = "conv", out = 3, kernel = 1, bias = false },
  { name = "bn", type = "batch_norm" },
  { name = "fc", type = "dense", out = 4, bias = false })");
  const Plan plan = make_plan(model, request);
  const Prediction p = price_step(plan, two_ranks(), FixedCompute({{1, 2, 0.5}, {0, 0, 0.25}, {3, 4, 1}}, 0.25));
  EXPECT_DOUBLE_EQ(p.update_s, (0.5 + 0.25 + 1) / 2);
  EXPECT_EQ(p.bytes, (48 + 16 + 16) * 2 / 2 + 16 * 4 / 2 + (48 + 16 + 16 + 16) * 4 / 2 + kStepResultBytes);
  EXPECT_NEAR(p.transfer_s, (80 + 32 + 192) / 96.0 + kStepResult, 1e-12);
  // fc's sum, 48 / 96, is waited for when bn's bucket is sent; fc's and bn's weights are sent during conv's backward.
  // Then come conv's sum, 16 / 96, and after the averages' weights, 32 / 96, conv's weights, which its update, 0.25,
  // hides in part.
  EXPECT_NEAR(p.exposed_s, 48 / 96.0 + 16 / 96.0 + (32 + 32) / 96.0 - 0.5 / 2 + kStepResult, 1e-12);
}

// Two sums of f64 for 3 channels are 48 bytes, which two ranks add up in half a second, in forward and in backward; all
// wait for them. A gradient that has left before holds up the second one: fc's 192 bytes take 2 seconds, which conv's
// backward pass hides otherwise.
TEST(StepPrice, StatisticsOfTheStepAreWaitedForTwice) {
  const auto predicted = [](const std::string& rows, int64_t bucket_bytes) {
    const Model model = model_of("[1, 2, 2]", 4,
                                 concat(R"(
  { name = "conv", type = "conv", out = 3, kernel = 1, bias = false },
  { name = "bn", type = "batch_norm", rows = )",
                                        rows, R"( },
  { name = "fc", type = "dense", out = 4, bias = false })"));
    PlanRequest request = tiny(Strategy::kDataParallel).request;
    request.bucket_bytes = bucket_bytes;
    return price_step(make_plan(model, request), two_ranks(),
                      FixedCompute({{1, 2, 0.5}, {0, 0, 0.25}, {3, 4, 1}}, 0.25));
  };
  for (const auto& [bucket_bytes, more] : {std::pair(1 << 20, 1.0), std::pair(1, 3.0)}) {
    const Prediction without = predicted("0", bucket_bytes), with = predicted("\"step\"", bucket_bytes);
    EXPECT_NEAR(with.transfer_s, without.transfer_s + 1, 1e-12);
    EXPECT_NEAR(with.exposed_s, without.exposed_s + more, 1e-12);
    EXPECT_EQ(with.bytes, without.bytes + 96);
    EXPECT_EQ(with.compute_s, without.compute_s);
  }
}

TEST(StepPrice, ANetworkOfAnotherSizeIsAnError) {
  Network network = two_ranks();
  network.ranks_per_host = 3;
  EXPECT_THROW(price_step(tiny(Strategy::kOwtA), network, compute()), Error);
}

TEST(StepPrice, WhatBelongsToNoLayerIsComputedOnce) {
  const FixedCompute with_rest({{1, 2, 0.5}, {0, 0, 0}, {3, 4, 1}}, 0.25, 7);
  for (const Strategy strategy : {Strategy::kDataParallel, Strategy::kOwtA, Strategy::kOwtB, Strategy::kOwtC}) {
    const Prediction without = price_step(tiny(strategy), two_ranks(), compute()),
                     with = price_step(tiny(strategy), two_ranks(), with_rest);
    EXPECT_NEAR(with.compute_s, without.compute_s + 7, 1e-12) << name_of(strategy);
    EXPECT_NEAR(with.step_s(), without.step_s() + 7, 1e-12) << name_of(strategy);
  }
}

// A stage's copies of weights take 2/5 of an update's time, predictions 3/5. The first of two stages has the conv,
// whose update takes 0.5. The last stage runs with the current weights.
TEST(StepPrice, CopiesOfWeightsAreMemoryTraffic) {
  const auto copying = [](const char* schedule) {
    PlanRequest request{.ranks = 2, .strategy = Strategy::kPipeline, .step_rows = 8};
    request.options.pipeline = {.schedule = pipeline_schedule_from(schedule), .micro_batches = 4};
    std::vector<TimedAction> times;
    price_step(make_plan(tiny_model(), request), two_ranks(), compute(), &times);
    double seconds = 0, updates = 0;
    for (const TimedAction& at : times) {
      if (at.action.kind == Action::Kind::kCopyWeights) seconds += at.end_s - at.begin_s;
      if (at.action.kind == Action::Kind::kUpdate) updates += at.end_s - at.begin_s;
    }
    EXPECT_NEAR(updates, 4 * 1.5, 1e-12) << schedule;  // one for every micro-batch
    return seconds;
  };
  EXPECT_EQ(copying("vanilla"), 0);
  EXPECT_NEAR(copying("pipedream"), 3 * 0.2, 1e-12);
  EXPECT_NEAR(copying("spectrain"), 3 * 0.3, 1e-12);
  EXPECT_NEAR(copying("spectrain2"), 3 * 0.3, 1e-12);
}

}  // namespace
}  // namespace owt::step_price_test
