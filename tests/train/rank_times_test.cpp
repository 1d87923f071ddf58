#include "src/train/rank_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/comm/threads.h"
#include "src/system/check.h"

namespace owt::rank_times_test {
namespace {

RankTimes made_up(int rank) {
  RankTimes times{
      .rows = {{"conv1", Phase::kForward, 1.1 * rank}, {"fc1 input: 3, \"x\"", Phase::kTransfer, 2, 1.0 / 3, 1 << 30}},
      .step_ms = 10.0 / 3,
      .steps = 30,
      .period = 2,
      .loader = {0.25, 1e-9},
      .host = "node 1"};
  for (int i = 0; i < rank; ++i) times.rows.push_back({concat("more", i), Phase::kData, 1.0 / (i + 1)});
  return times;
}

TEST(RankTimes, ComeBackFromTheirTextToTheLastBit) {
  for (const int rank : {0, 3}) EXPECT_EQ(RankTimes::from_text(made_up(rank).text()), made_up(rank));
}

TEST(RankTimes, ATextThatIsCutOffIsAnError) {
  const std::string text = made_up(1).text();
  EXPECT_THROW(RankTimes::from_text(text.substr(0, text.rfind(':') - 1)), Error);
}

// Runs empty steps with a transfer of these milliseconds each.
void run_steps(Profiler& profiler, const std::vector<double>& transfer_ms, const std::string& name = "labels") {
  profiler.enable(true);
  for (const double ms : transfer_ms) {
    profiler.begin_step();
    {
      const Profiler::Scope scope(&profiler, name, Phase::kTransfer);
      profiler.add_transfer(ms, static_cast<int64_t>(ms));
    }
    profiler.end_step();
  }
}

TEST(RankTimes, EveryRankGetsThoseOfAllHoweverLongTheyAre) {
  run_ranks(3, 1, [](Communicator& comm) {
    Profiler profiler;
    run_steps(profiler, std::vector<double>(5, comm.rank() + 1), std::string(static_cast<size_t>(comm.rank()), 'x'));
    const StepTimes all = gather_times(comm, profiler, 1, Device::kCpu, {1, 2});
    for (const auto* times : {&all.medians, &all.middle}) {
      ASSERT_EQ(times->size(), 3u);
      for (size_t rank = 0; rank < 3; ++rank) {
        ASSERT_EQ((*times)[rank].rows.size(), 1u);
        EXPECT_EQ((*times)[rank].rows[0].name.size(), rank);
        EXPECT_EQ((*times)[rank].rows[0].transfer_ms, static_cast<double>(rank) + 1);
        EXPECT_EQ((*times)[rank].steps, 5);
        EXPECT_EQ((*times)[rank].loader, (LoaderTimes{1, 2}));
      }
    }
  });
}

StepTimes of_one_rank(const Profiler& profiler, int64_t period) {
  StepTimes times;
  run_ranks(1, 1, [&](Communicator& comm) { times = gather_times(comm, profiler, period, Device::kCpu); });
  return times;
}

// Whatever the steps took, and with rows that came late.
TEST(RankTimes, OfMiddleStepsAddUpToTheStep) {
  Profiler profiler;
  run_steps(profiler, {1, 2, 3});
  run_steps(profiler, {4, 5, 6, 7}, "more");
  const StepTimes times = of_one_rank(profiler, 1);
  EXPECT_GE(times.middle.front().rest_ms(), -1e-12);
  EXPECT_EQ(times.longest.rows, times.middle.front().rows);
  EXPECT_EQ(rank_times(profiler).find("labels", Phase::kTransfer)->transfer_ms, 0);  // the median of 1 2 3 0 0 0 0
}

TEST(RankTimes, OfStepsThatRepeatAreThoseOfMeans) {
  Profiler profiler;
  run_steps(profiler, {0, 6, 0, 8, 0, 10, 77});
  EXPECT_EQ(rank_times(profiler, 6).rows[0].transfer_ms, 4);
  EXPECT_EQ(of_one_rank(profiler, 6).middle.front().rows[0].transfer_ms, 4);
  EXPECT_EQ(rank_times(profiler, 2).rows[0].transfer_ms, 4);
}

TEST(RankTimes, WhatIsInNoRowIsTheRest) {
  const RankTimes times{.rows = {{"a", Phase::kForward, 3}, {"b", Phase::kTransfer, 2}, {"c", Phase::kData, 1}},
                        .step_ms = 10};
  EXPECT_EQ(times.rest_ms(), 4);
  EXPECT_EQ(times.exposed_ms(), 2);
  EXPECT_EQ(times.busy_ms(), 8);
  EXPECT_EQ(times.data_ms(), 1);
}

}  // namespace
}  // namespace owt::rank_times_test
