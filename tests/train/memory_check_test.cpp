#include "src/train/memory_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/predict/memory_need.h"
#include "tests/support/message_of.h"
#include "tests/support/models.h"

namespace owt::memory_check_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Plan plan_of(int ranks, Strategy strategy, int64_t step_rows) {
  PlanRequest request;
  request.ranks = ranks;
  request.strategy = strategy;
  request.step_rows = step_rows;
  return make_plan(tiny_model(), request);
}

int64_t to_train(const Plan& plan, int rank) { return rank_bytes(plan, Mode::kTrain, rank); }

int64_t both(int64_t step_rows) {
  const Plan plan = plan_of(2, Strategy::kDataParallel, step_rows);
  return to_train(plan, 0) + to_train(plan, 1);
}

std::string refusal(const MemoryOfRanks& host) {
  return message_of([&] { check_memory(plan_of(2, Strategy::kDataParallel, 1000), host, to_train); });
}

TEST(MemoryCheck, WhatFitsToTheLastByteIsTaken) {
  EXPECT_THAT(refusal({"this host", {0, 1}, {both(1000), "this host has"}}), IsEmpty());
}

TEST(MemoryCheck, WorkersOfAHostAddUp) {
  EXPECT_THAT(refusal({"this host", {1}, {both(1000) / 2, "this host has"}}), IsEmpty());
  EXPECT_THAT(refusal({"this host", {0, 1}, {both(1000) / 2, "this host has"}}),
              AllOf(HasSubstr("2 workers on this host"), HasSubstr("for steps of 1000 images, and this host has")));
}

TEST(MemoryCheck, NamesTheMostImagesThatWouldFit) {
  EXPECT_THAT(refusal({"this host", {0, 1}, {both(1000) - 1, "this host has"}}),
              HasSubstr("steps of 998 images would"));
  EXPECT_THAT(refusal({"this host", {0, 1}, {both(338) + 1, "this host has"}}), HasSubstr("steps of 338 images would"));
  EXPECT_THAT(refusal({"this host", {0, 1}, {both(2) - 1, "this host has"}}), HasSubstr("use a smaller network"));
}

TEST(MemoryCheck, NamesMicroBatchesWithWhichTheStepWouldFit) {
  Plan sliced = plan_of(2, Strategy::kDataParallel, 1000);
  sliced.request.slices = 5;
  EXPECT_THAT(refusal({"this host", {0, 1}, {2 * memory_need(sliced).bytes(1000), "this host has"}}),
              HasSubstr("data.accumulate = 5"));
}

// Each rank of dp has two copies of its weights and velocities.
TEST(MemoryCheck, CountsTheMirrorIfWorkersChange) {
  const MemoryOfRanks host{"this host", {0, 1}, {both(1000), "this host has"}};
  Plan plan = plan_of(2, Strategy::kDataParallel, 1000);
  plan.request.mirror_every = 50;
  EXPECT_THAT(message_of([&] { check_memory(plan, host, to_train); }), HasSubstr("2 workers on this host"));
  const int64_t copies = 2 * 2 * (3 + 48) * 4;
  EXPECT_EQ(mirror_bytes(plan, 1), copies);
  check_memory(plan, {"this host", {0, 1}, {both(1000) + 2 * copies, "this host has"}}, to_train);
}

TEST(MemoryCheck, RefusesWhatNoMachineHas) {
  for (const Strategy strategy : {Strategy::kDataParallel, Strategy::kOwtA, Strategy::kPipeline})
    EXPECT_THAT(message_of([&] { check_memory(plan_of(2, strategy, int64_t{1} << 40), MemoryUse{}); }),
                AllOf(HasSubstr("2 workers on this host take"), HasSubstr("images would fit (data.batch)")))
        << name_of(strategy);
  check_memory(plan_of(2, Strategy::kDataParallel, 8), MemoryUse{});
}

}  // namespace
}  // namespace owt::memory_check_test
