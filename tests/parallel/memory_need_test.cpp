#include "src/parallel/memory_need.h"

#include <gtest/gtest.h>

namespace owt {
namespace {

Plan plan_of(int ranks, Strategy strategy, int64_t step_rows, Precision precision = Precision::kFp32) {
  Config config = Config::text(R"(
name = "tiny"
input = [1, 2, 2]
classes = 4
[[layer]]
name = "conv"
type = "conv"
out = 3
kernel = 1
bias = false
[[layer]]
name = "relu"
type = "relu"
[[layer]]
name = "fc"
type = "dense"
out = 4
bias = false
)");
  PlanRequest request;
  request.ranks = ranks;
  request.strategy = strategy;
  request.step_rows = step_rows;
  request.on.precision = precision;
  return make_plan(read_model(config), request);
}

TEST(MemoryNeed, OfOneRankCountsWeightsActivationsAndTwoGradients) {
  const MemoryNeed need = memory_need(plan_of(1, Strategy::kOwtA, 8));
  EXPECT_EQ(need.weight_bytes, (3 + 4 * 12) * 12);
  // images 4, conv 12 (relu in place), fc 4, two gradients of 12
  EXPECT_EQ(need.step_row_bytes, 4.0 * (4 + 12 + 4 + 2 * 12));
}

TEST(MemoryNeed, Bf16HalvesActivationsAndAddsACopyOfTheWeights) {
  const MemoryNeed need = memory_need(plan_of(1, Strategy::kOwtA, 8, Precision::kBf16));
  EXPECT_EQ(need.weight_bytes, (3 + 4 * 12) * 14);
  EXPECT_EQ(need.step_row_bytes, 2.0 * (4 + 12 + 4 + 2 * 12));
}

TEST(MemoryNeed, SplitDenseLayersKeepTheirShareOfTheWeights) {
  const MemoryNeed need = memory_need(plan_of(2, Strategy::kOwtA, 8));
  EXPECT_EQ(need.weight_bytes, (3 + 2 * 12) * 12);
}

// The bucket of 3 + 48 elements is padded to 8 + 48 and, for three ranks, to shares of 24.
TEST(MemoryNeed, SharesOfTheUpdateKeepTheirShareOfTheVelocities) {
  const MemoryNeed need = memory_need(plan_of(3, Strategy::kDataParallelZero, 9));
  EXPECT_EQ(need.weight_bytes, (3 + 48) * 8 + 24 * 4);
}

TEST(MemoryNeed, RowsThatFitAreTheLargestStepWithinTheMemory) {
  const MemoryNeed need{1000, 10.0};
  EXPECT_EQ(need.rows_in(1055), 5);
  EXPECT_LE(need.bytes(need.rows_in(1055)), 1055);
  EXPECT_GT(need.bytes(need.rows_in(1055) + 1), 1055);
  EXPECT_EQ(need.rows_in(900), 0);
}

}  // namespace
}  // namespace owt
