#include "src/plan/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/support/message_of.h"

namespace owt::pipeline_test {
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
using Done = std::map<std::tuple<int, bool, int>, int>;  // when a task, (stage, forward, micro-batch), ended

struct Timeline {
  int end = 0;                 // units until all are done
  std::vector<int> idle;       // idle time of each stage until then
  std::vector<int> under_way;  // micro-batches at most
  Done done{};
};

Timeline run(PipelineSchedule schedule, int stages, int micro_batches) {
  std::vector<std::vector<StageTask>> tasks;
  for (int place = 0; place < stages; ++place) tasks.push_back(stage_tasks(schedule, stages, place, micro_batches));
  std::vector<size_t> next(static_cast<size_t>(stages), 0);
  Timeline result{0, std::vector<int>(static_cast<size_t>(stages), 0),
                  std::vector<int>(static_cast<size_t>(stages), 0)};
  Done& done = result.done;
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
  for (const std::string& name : pipeline_schedule_names())
    for (int stages = 1; stages <= 5; ++stages)
      for (int micro_batches = 1; micro_batches <= 9; ++micro_batches) {
        const PipelineSchedule schedule = pipeline_schedule_from(name);
        const Timeline at = run(schedule, stages, micro_batches);
        EXPECT_EQ(at.end, 2 * (micro_batches + stages - 1)) << name_of(schedule);
        for (int place = 0; place < stages; ++place) {
          const auto p = static_cast<size_t>(place);
          EXPECT_DOUBLE_EQ(static_cast<double>(at.idle[p]) / at.end, bubble(stages, micro_batches));
          EXPECT_EQ(at.under_way[p], most_under_way(schedule, stages, place, micro_batches));
        }
      }
}

constexpr PipelineSchedule kWithoutFlush[] = {PipelineSchedule::kVanilla, PipelineSchedule::kPipeDream,
                                              PipelineSchedule::kSpecTrain, PipelineSchedule::kSpecTrain2};

// A version of weights: the number of micro-batches in its updates, and how many more are predicted.
struct Version {
  int updates = 0, ahead = 0;
  bool operator==(const Version&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Version& at) { return out << at.updates << "+" << at.ahead; }

// The versions of weights for each task of a stage, in the order of its tasks.
std::map<std::pair<bool, int>, Version> versions(PipelineSchedule schedule, int stages, int place, int micro_batches) {
  std::map<std::pair<bool, int>, Version> all;
  std::map<int, Version> copies;
  int updates = 0;
  for (const StageTask& task : stage_tasks(schedule, stages, place, micro_batches)) {
    const TaskWeights weights = weights_of(schedule, stages, place, micro_batches, task);
    if (weights.made) copies[weights.copy] = {updates, weights.ahead};
    all[{task.forward, task.batch}] = weights.copy == kNewestWeights ? Version{updates, 0} : copies.at(weights.copy);
    if (task.forward) continue;
    const int kept = kept_before_update(schedule, stages, place, micro_batches, task.batch);
    if (kept != kNewestWeights) copies[kept] = {updates, 0};
    ++updates;
  }
  EXPECT_EQ(updates, micro_batches);
  return all;
}

// With N stages and k from 0 (SpecTrain): forward s = floor(k/2) + N - k - 1, backward s = floor(k/2). The later
// variant: forward s = N - k - 1, and backward with the same weights.
TEST(WeightsOfTasks, AreThoseOfThePapersWhereThePipelineIsFull) {
  constexpr int kMicroBatches = 16;
  for (int stages = 1; stages <= 6; ++stages)
    for (int k = 0; k < stages; ++k) {
      const int gap = stages - k - 1;
      std::map<PipelineSchedule, std::map<std::pair<bool, int>, Version>> of;
      for (const PipelineSchedule schedule : kWithoutFlush) of[schedule] = versions(schedule, stages, k, kMicroBatches);
      for (int b = gap; b < kMicroBatches - k / 2; ++b) {
        SCOPED_TRACE(testing::Message() << "stage " << k << " of " << stages << ", micro-batch " << b);
        const auto at = [&](PipelineSchedule schedule, bool forward) { return of.at(schedule).at({forward, b}); };
        EXPECT_EQ(version_gap(stages, k, b), gap);
        EXPECT_EQ(at(PipelineSchedule::kVanilla, true), (Version{b - gap, 0}));
        EXPECT_EQ(at(PipelineSchedule::kVanilla, false), (Version{b, 0}));
        EXPECT_EQ(at(PipelineSchedule::kPipeDream, true), (Version{b - gap, 0}));
        EXPECT_EQ(at(PipelineSchedule::kPipeDream, false), (Version{b - gap, 0}));
        EXPECT_EQ(at(PipelineSchedule::kSpecTrain, true), (Version{b - gap, k / 2 + stages - k - 1}));
        EXPECT_EQ(at(PipelineSchedule::kSpecTrain, false), (Version{b, k / 2}));
        EXPECT_EQ(at(PipelineSchedule::kSpecTrain2, true), (Version{b - gap, stages - k - 1}));
        EXPECT_EQ(at(PipelineSchedule::kSpecTrain2, false), (Version{b - gap, stages - k - 1}));
      }
    }
}

// Also while the pipeline fills and drains: every prediction is for updates that occur, in the right number.
TEST(WeightsOfTasks, ArePredictedForTheUpdatesThatCome) {
  for (int stages = 1; stages <= 6; ++stages)
    for (int micro_batches = 1; micro_batches <= 9; ++micro_batches) {
      const Done done = run(PipelineSchedule::kSpecTrain, stages, micro_batches).done;
      for (int k = 0; k < stages; ++k) {
        const auto v1 = versions(PipelineSchedule::kSpecTrain, stages, k, micro_batches);
        const auto v2 = versions(PipelineSchedule::kSpecTrain2, stages, k, micro_batches);
        const auto stash = versions(PipelineSchedule::kPipeDream, stages, k, micro_batches);
        for (int b = 0; b < micro_batches; ++b) {
          SCOPED_TRACE(testing::Message()
                       << "stage " << k << " of " << stages << ", micro-batch " << b << " of " << micro_batches);
          const auto target = [b](const auto& of, bool forward) {
            const Version& at = of.at({forward, b});
            return at.updates + at.ahead;
          };
          int until_stage_0 = b;  // updates of this stage before the first one's by this micro-batch is over
          while (until_stage_0 + 1 < micro_batches && done.at({k, false, until_stage_0 + 1}) <= done.at({0, false, b}))
            ++until_stage_0;
          EXPECT_EQ(target(v1, true), until_stage_0);
          EXPECT_EQ(target(v1, false), until_stage_0);
          EXPECT_EQ(v1.at({false, b}).updates, b);
          EXPECT_EQ(target(v2, true), b);
          EXPECT_EQ(v2.at({false, b}), v2.at({true, b}));
          EXPECT_EQ(stash.at({false, b}), stash.at({true, b}));
          EXPECT_EQ(stash.at({true, b}).updates, b - version_gap(stages, k, b));
        }
      }
    }
}

TEST(WeightsOfTasks, AreTheNewestWithoutLookingAheadUnderOneStageOrOneMicroBatch) {
  for (const PipelineSchedule schedule : kWithoutFlush)
    for (const auto& [stages, micro_batches] : {std::pair{1, 5}, {4, 1}})
      for (int place = 0; place < stages; ++place)
        for (const StageTask& task : stage_tasks(schedule, stages, place, micro_batches))
          EXPECT_EQ(weights_of(schedule, stages, place, micro_batches, task), TaskWeights{});
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
}  // namespace owt::pipeline_test
