#include "src/parallel/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/support/message_of.h"

namespace owt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string text_of(const std::vector<StageTask>& tasks) {
  std::string text;
  for (const StageTask& task : tasks) text += (task.forward ? "F" : "B") + std::to_string(task.batch) + " ";
  return text;
}

TEST(StageTasks, OfGPipeDoForwardOfAllFirst) {
  for (const int place : {0, 1})
    EXPECT_EQ(text_of(stage_tasks(PipelineSchedule::kGPipe, 2, place, 3)), "F0 F1 F2 B2 B1 B0 ");
}

TEST(StageTasks, Of1F1BAlternateOnceThePipelineIsFull) {
  EXPECT_EQ(text_of(stage_tasks(PipelineSchedule::k1F1B, 3, 0, 4)), "F0 F1 F2 B0 F3 B1 B2 B3 ");
  EXPECT_EQ(text_of(stage_tasks(PipelineSchedule::k1F1B, 3, 1, 4)), "F0 F1 B0 F2 B1 F3 B2 B3 ");
  EXPECT_EQ(text_of(stage_tasks(PipelineSchedule::k1F1B, 3, 2, 4)), "F0 B0 F1 B1 F2 B2 F3 B3 ");
  EXPECT_EQ(text_of(stage_tasks(PipelineSchedule::k1F1B, 3, 0, 1)), "F0 B0 ");
}

// The stages as machines that take one unit of time for each task and may begin it when the neighbour is done.
struct Timeline {
  int end = 0;                 // units until all are done
  std::vector<int> idle;       // of each stage, until then
  std::vector<int> under_way;  // micro-batches at most
};

Timeline run(PipelineSchedule schedule, int stages, int micro_batches) {
  std::vector<std::vector<StageTask>> tasks;
  for (int place = 0; place < stages; ++place) tasks.push_back(stage_tasks(schedule, stages, place, micro_batches));
  std::vector<size_t> next(static_cast<size_t>(stages), 0);
  std::map<std::tuple<int, bool, int>, int> done;  // when the task of a stage ended
  Timeline result{0, std::vector<int>(static_cast<size_t>(stages), 0),
                  std::vector<int>(static_cast<size_t>(stages), 0)};
  std::vector<int> open(static_cast<size_t>(stages), 0);
  const auto is_there = [&](int place, const StageTask& task, int now) {
    const int from = place + (task.forward ? -1 : 1);
    if (from < 0 || from == stages) return true;
    const auto found = done.find({from, task.forward, task.batch});
    return found != done.end() && found->second <= now;
  };
  size_t left = static_cast<size_t>(stages) * 2 * static_cast<size_t>(micro_batches);
  for (int now = 0; left > 0 && now < 1000; ++now)
    for (int place = 0; place < stages; ++place) {
      const auto p = static_cast<size_t>(place);
      if (next[p] == tasks[p].size() || !is_there(place, tasks[p][next[p]], now)) {
        ++result.idle[p];
        continue;
      }
      const StageTask task = tasks[p][next[p]++];
      done[{place, task.forward, task.batch}] = now + 1;
      open[p] += task.forward ? 1 : -1;
      result.under_way[p] = std::max(result.under_way[p], open[p]);
      --left;
      result.end = now + 1;
    }
  EXPECT_EQ(left, 0u) << name_of(schedule) << ": a stage waits for ever";
  return result;
}

TEST(StageTasks, EndAfterTheTimeThatTheBubbleSaysAndKeepAsManyActivations) {
  for (const PipelineSchedule schedule : {PipelineSchedule::kGPipe, PipelineSchedule::k1F1B})
    for (int stages = 1; stages <= 5; ++stages)
      for (int micro_batches = 1; micro_batches <= 9; ++micro_batches) {
        const Timeline at = run(schedule, stages, micro_batches);
        EXPECT_EQ(at.end, 2 * (micro_batches + stages - 1)) << name_of(schedule);
        for (int place = 0; place < stages; ++place) {
          const auto p = static_cast<size_t>(place);
          EXPECT_DOUBLE_EQ(static_cast<double>(at.idle[p]) / at.end, bubble(stages, micro_batches));
          EXPECT_EQ(at.under_way[p], most_under_way(schedule, stages, place, micro_batches));
        }
      }
}

TEST(Schedules, AreFoundByTheirNames) {
  for (const std::string& name : pipeline_schedule_names()) EXPECT_EQ(name_of(pipeline_schedule_from(name)), name);
  EXPECT_THAT(message_of([] { pipeline_schedule_from("2f2b"); }),
              HasSubstr("no schedule '2f2b' (there are gpipe, 1f1b"));
}

TEST(BalancedStages, HaveTheLeastCostliestStage) {
  const std::vector<int64_t> anywhere(5, 1);
  EXPECT_THAT(balanced_stages({1, 1, 1, 1, 4}, anywhere, 2), ElementsAre(Slice{0, 4}, Slice{4, 5}));
  EXPECT_THAT(balanced_stages({3, 1, 1, 2, 1}, anywhere, 3), ElementsAre(Slice{0, 1}, Slice{1, 3}, Slice{3, 5}));
  EXPECT_THAT(balanced_stages({4, 1, 1, 1, 1}, anywhere, 1), ElementsAre(Slice{0, 5}));
}

TEST(BalancedStages, AreCutWhereLeastIsSentAmongThoseThatCostAsMuch) {
  EXPECT_THAT(balanced_stages({2, 0, 0, 2}, {0, 30, 10, 20}, 2), ElementsAre(Slice{0, 2}, Slice{2, 4}));
}

TEST(BalancedStages, AreCutOnlyWhereTheyMayBe) {
  EXPECT_THAT(balanced_stages({1, 1, 1, 1}, {-1, 5, -1, 5}, 2), ElementsAre(Slice{0, 1}, Slice{1, 4}));
  EXPECT_THAT(message_of([] {
                balanced_stages({1, 1, 1, 1}, {-1, 5, -1, -1}, 3);
              }),
              HasSubstr("cannot be cut into 3 stages: it has 1 places for a cut"));
}

// The best of all ways to cut, tried one by one.
TEST(BalancedStages, AreAsGoodAsTheBestOfAllCuts) {
  uint64_t state = 7;
  const auto next = [&](uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 40) % below;
  };
  for (int round = 0; round < 50; ++round) {
    std::vector<double> cost;
    for (int i = 0; i < 8; ++i) cost.push_back(static_cast<double>(next(9)));
    double least = 1e9;
    for (size_t a = 1; a < 8; ++a)
      for (size_t b = a + 1; b < 8; ++b) {
        double sums[3] = {};
        for (size_t i = 0; i < 8; ++i) sums[i < a ? 0 : i < b ? 1 : 2] += cost[i];
        least = std::min(least, *std::max_element(sums, sums + 3));
      }
    double most = 0;
    for (const Slice& run : balanced_stages(cost, std::vector<int64_t>(8, 0), 3)) {
      double sum = 0;
      for (int64_t i = run.begin; i < run.end; ++i) sum += cost[static_cast<size_t>(i)];
      most = std::max(most, sum);
    }
    EXPECT_EQ(most, least);
  }
}

}  // namespace
}  // namespace owt
