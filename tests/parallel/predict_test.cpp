#include "src/parallel/predict.h"

#include <gtest/gtest.h>

#include "src/parallel/memory_need.h"
#include "tests/support/fixed_compute.h"

namespace owt {
namespace {

// Weights: conv 3, fc 4 x 12. A row at the boundary has 12 values, 48 bytes.
Plan tiny(Strategy strategy, DenseUpdate dense_update = DenseUpdate::kStep) {
  Config config = Config::text(R"(
name = "tiny"
input = [1, 2, 2]
classes = 4
layer = [
  { name = "conv", type = "conv", out = 3, kernel = 1, bias = false },
  { name = "relu", type = "relu" },
  { name = "fc", type = "dense", out = 4, bias = false },
]
)");
  PlanRequest request;
  request.ranks = 2;
  request.strategy = strategy;
  request.dense_update = dense_update;
  request.step_rows = 8;
  request.bucket_bytes = 1;  // a bucket for each layer
  return make_plan(read_model(config), request);
}

// 96 bytes a second, no latency.
Network two_ranks(bool overlaps = true) {
  Network network;
  network.ranks_per_host = 2;
  network.local = {0, 96};
  network.overlaps = overlaps;
  return network;
}

// Of a rank's 4 rows: conv 4 forward and 8 backward, fc 12 and 16, loss 1.
FixedCompute compute() { return FixedCompute({{1, 2, 0.5}, {0, 0, 0}, {3, 4, 1}}, 0.25); }

constexpr double kStepResult = 40.0 / 96;  // five f64 in two directions, half of them sent each time

TEST(Predict, DataParallelGradientsLeaveWhileBackwardGoesOn) {
  // Gradients of fc, 192 bytes: 2 s, gone while conv's backward takes 8. Those of conv, 16 bytes (3 weights are padded to
  // 4): 1/6 s that nothing hides.
  const Prediction p = predict(tiny(Strategy::kDataParallel), two_ranks(), compute());
  EXPECT_DOUBLE_EQ(p.compute_s, 4 + 12 + 1 + 16 + 8);
  EXPECT_DOUBLE_EQ(p.update_s, 1.5);
  EXPECT_NEAR(p.exposed_s, 1.0 / 6 + kStepResult, 1e-12);
  EXPECT_NEAR(p.transfer_s, 2 + 1.0 / 6 + kStepResult, 1e-12);
  EXPECT_NEAR(p.step_s(), 42.5 + 1.0 / 6 + kStepResult, 1e-12);
  EXPECT_NEAR(p.images_per_second(), 8 / p.step_s(), 1e-12);
  EXPECT_FALSE(p.split);
  EXPECT_EQ(p.bytes, 192 + 16 + 40);
  EXPECT_EQ(p.memory_bytes, memory_need(tiny(Strategy::kDataParallel)).bytes(8));
}

TEST(Predict, GradientsThatTakeLongerThanBackwardAreExposed) {
  Network slow = two_ranks();
  slow.local.bytes_per_s = 12;
  // fc's gradients: 16 s from the 33rd on, against 8 of backward; then conv's 16/12.
  const Prediction p = predict(tiny(Strategy::kDataParallel), slow, compute());
  EXPECT_NEAR(p.exposed_s, 8 + 16.0 / 12 + 40.0 / 12, 1e-12);
}

TEST(Predict, WithoutOverlapEveryTransferIsExposed) {
  for (const Strategy strategy : {Strategy::kDataParallel, Strategy::kOwtA, Strategy::kOwtB, Strategy::kOwtC}) {
    const Prediction p = predict(tiny(strategy), two_ranks(false), compute());
    EXPECT_NEAR(p.exposed_s, p.transfer_s, 1e-12) << name_of(strategy);
  }
}

TEST(Predict, OneRoundOfAllRowsWaitsForItsGatherAndItsWayHome) {
  // Labels 1/6 s hide behind conv's 4. Gather of 192 sent bytes: 2. fc on 8 rows, half of the outputs: 12 and 16, loss of
  // 8 rows: 2. Logits 64 bytes: 2/3. Way home 2, then conv's backward 8 and its gradients 1/6.
  const Prediction p = predict(tiny(Strategy::kOwtA), two_ranks(), compute());
  EXPECT_DOUBLE_EQ(p.compute_s, 4 + 12 + 2 + 16 + 8);
  EXPECT_DOUBLE_EQ(p.update_s, 0.5 + 0.5);
  EXPECT_TRUE(p.split);
  // The update of fc, 0.5, hides conv's gradients.
  EXPECT_NEAR(p.exposed_s, 2 + 2.0 / 3 + 2 + kStepResult, 1e-12);
  EXPECT_NEAR(p.transfer_s, 1.0 / 6 + 2 + 2.0 / 3 + 2 + 1.0 / 6 + kStepResult, 1e-12);
}

TEST(Predict, TheNextRoundTravelsWhileThisOneComputes) {
  // Two rounds of 4 rows, each with a gather and a way home of 1 s and logits of 1/3 s; fc 6 and 8, loss 1.
  // The first gather is exposed. The second is under way when round 0 computes. The logits of both rounds are exposed. The
  // way home of round 0 hides behind round 1, that of round 1 is exposed.
  const Prediction p = predict(tiny(Strategy::kOwtC), two_ranks(), compute());
  EXPECT_DOUBLE_EQ(p.compute_s, 4 + 2 * (6 + 1 + 8) + 8);
  EXPECT_NEAR(p.exposed_s, 1 + 2.0 / 3 + 1 + kStepResult, 1e-12);
}

TEST(Predict, OneSenderAtATimeTakesTwiceAsLong) {
  // owt-b: a broadcast of 4 rows, 192 bytes, takes 2 s, and so does the reduction of their gradients.
  const Prediction p = predict(tiny(Strategy::kOwtB), two_ranks(), compute());
  EXPECT_NEAR(p.transfer_s, 1.0 / 6 + 2 * (2 + 1.0 / 3 + 2) + 1.0 / 6 + kStepResult, 1e-12);
  EXPECT_NEAR(p.exposed_s, 2 + 2.0 / 3 + 2 + kStepResult, 1e-12);
}

TEST(Predict, ADenseUpdateInEveryRoundIsPaidInEveryRound) {
  const Prediction p = predict(tiny(Strategy::kOwtC, DenseUpdate::kRound), two_ranks(), compute());
  EXPECT_DOUBLE_EQ(p.update_s, 2 * 0.5 + 0.5);
}

TEST(Predict, ModelParallelComputesAllRowsEverywhere) {
  const Prediction p = predict(tiny(Strategy::kModelParallel), two_ranks(), compute());
  EXPECT_DOUBLE_EQ(p.compute_s, 8 + 12 + 2 + 16 + 16);
  // Logits, the sum of 384 bytes of gradients on their way home, the result.
  EXPECT_NEAR(p.exposed_s, 2.0 / 3 + 4 + kStepResult, 1e-12);
}

TEST(Predict, ANetworkOfAnotherSizeIsAnError) {
  Network network = two_ranks();
  network.ranks_per_host = 3;
  EXPECT_THROW(predict(tiny(Strategy::kOwtA), network, compute()), Error);
}

}  // namespace
}  // namespace owt
