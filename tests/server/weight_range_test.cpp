// A range of served weights, with pushes in every order that the rules allow.
#include "src/server/weight_range.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "src/system/check.h"
#include "tests/support/harness.h"

namespace owt::weight_range_test {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kLength = 3;

Tensor filled(float value) {
  Tensor tensor({kLength});
  std::fill_n(tensor.data(), kLength, value);
  return tensor;
}

// A range as seen by its workers, one of which may be on the same rank. Every gradient is added to the weights.
constexpr int kNobody = -1;
class Served {
 public:
  Served(int workers, const ConsistencyRules& rules, int own_worker = 0)
      : own_worker(own_worker),
        mine(filled(0)),
        answers(static_cast<size_t>(workers)),
        range(
            workers, own_worker, rules, DType::kF32, mine,
            [this](const ServedUpdate& now) {
              updates.push_back(now);
              Tensor weights = now.weights;
              for (int64_t i = 0; i < kLength; ++i) weights.data()[i] += now.gradient.data()[i];
            },
            [this](int worker, const Tensor& weights) {
              answers[static_cast<size_t>(worker)] = download(weights).front();
            }) {
    range.begin(0);
  }

  void push(int worker, float value, const PushedFor& pushed = {}) {
    answers[static_cast<size_t>(worker)].reset();
    if (worker == own_worker) return range.push_own(own = filled(value), pushed);
    Tensor gradient = range.memory();
    gradient.copy_from(filled(value));
    range.push(worker, gradient, pushed);
  }
  // The weights that the worker was answered with, if it was.
  std::optional<float> answer(int worker) const { return answers[static_cast<size_t>(worker)]; }

  int own_worker;
  Tensor mine, own;
  std::vector<std::optional<float>> answers;
  std::vector<ServedUpdate> updates;
  WeightRange range;
};

// Which moves the weights by as much less as it lacks rows.
TEST(WeightRange, AnUpdateThatWaitedForALostWorkerIsMadeWithoutIt) {
  Served served(3, {}, kNobody);
  served.push(0, 2, {.share = 0.5});
  served.push(2, 4, {.share = 0.25});
  EXPECT_EQ(served.answer(0), std::nullopt);
  served.range.forget(1);
  EXPECT_EQ(served.answer(0), 6);
  EXPECT_EQ(served.answer(2), 6);
  EXPECT_EQ(served.answer(1), std::nullopt);
  ASSERT_EQ(served.updates.size(), 1u);
  EXPECT_EQ(served.updates.front().pushed.share, 0.75);
  served.push(2, 1, {.share = 0.25});
  served.push(0, 1, {.share = 0.5});
  EXPECT_EQ(served.answer(2), 8);
  EXPECT_EQ(served.answer(1), std::nullopt);
}

TEST(WeightRange, SynchronouslyAllAreAnsweredWhenTheLastHasPushed) {
  Served served(3, {});
  served.push(2, 1);
  served.push(0, 2);
  EXPECT_EQ(served.answer(2), std::nullopt);
  served.push(1, 4);
  served.range.await();
  EXPECT_EQ(download(served.mine).front(), 7);
  EXPECT_EQ(served.answer(1), 7);
  EXPECT_EQ(served.answer(2), 7);
  EXPECT_EQ(served.range.updates(), 1);
}

// Adding 1 to 2^24 has no effect; adding it to -2^24 + 2^24 does.
TEST(WeightRange, AddsTheGradientsOfATaskInTheOrderOfTheWorkers) {
  const float large = 1 << 24;
  for (const std::vector<int>& order : {std::vector<int>{0, 1, 2}, {2, 1, 0}, {1, 2, 0}}) {
    Served served(3, {});
    for (const int worker : order) served.push(worker, worker == 0 ? -large : worker == 1 ? large : 1);
    served.range.await();
    EXPECT_EQ(download(served.mine).front(), 1);
  }
}

TEST(WeightRange, ABoundOnTheDelayLetsAWorkerLeadBySoMany) {
  Served served(2, {.delay = 2, .pushes = 1});
  served.push(1, 1);
  EXPECT_EQ(served.answer(1), 1);
  served.push(1, 1);
  EXPECT_EQ(served.answer(1), 2);
  served.push(1, 1);
  EXPECT_EQ(served.answer(1), std::nullopt);
  served.push(0, 10);
  EXPECT_EQ(served.answer(1), 13);
  served.range.await();
  EXPECT_EQ(download(served.mine).front(), 13);
}

TEST(WeightRange, AWorkerKeepsItsWeightsWhileOthersUpdateThem) {
  Served served(2, {.delay = kNoBound, .pushes = 1});
  served.push(0, 1);
  served.range.await();
  served.push(1, 10);
  EXPECT_EQ(download(served.mine).front(), 1);
}

TEST(WeightRange, AnUpdateKnowsTheShareOfAStepThatItsGradientsAre) {
  Served served(4, {.delay = kNoBound, .pushes = 2});
  served.push(3, 1, {.weights = 0.5, .share = 0.25});
  EXPECT_TRUE(served.updates.empty());
  served.push(1, 1, {.weights = 0.4, .share = 0.125});
  ASSERT_EQ(served.updates.size(), 1u);
  EXPECT_EQ(served.updates[0].pushed.share, 0.375);
  EXPECT_EQ(served.updates[0].pushed.weights, 0.4);
  served.push(2, 0, {.share = 0});
  served.push(3, 0, {.share = 0});
  EXPECT_EQ(served.updates.size(), 1u) << "gradients of no rows are none";
  EXPECT_EQ(served.range.updates(), 2);
}

TEST(WeightRange, SettlingAppliesWhatWaitsForFurtherPushes) {
  Served served(2, {.delay = kNoBound, .pushes = 3});
  served.push(0, 1);
  served.push(1, 10);
  EXPECT_EQ(served.answer(1), 0);
  served.range.settle();
  EXPECT_EQ(download(served.mine).front(), 11);
  served.push(0, 100);
  served.push(1, 100);
  served.push(1, 100);
  served.range.settle();
  EXPECT_EQ(download(served.mine).front(), 311);
}

TEST(WeightRange, UpdatesContinueFromThoseBefore) {
  Served served(1, {});
  served.range.begin(7);
  served.push(0, 1);
  EXPECT_EQ(served.updates.back().updates, 7);
  EXPECT_EQ(served.range.updates(), 8);
}

// An upper bound of the staleness: of two workers each may lead the other by the delay.
int64_t most_stale(int workers, const ConsistencyRules& rules) {
  return rules.by_task() ? rules.delay : (workers - 1) * (2 * rules.delay + 1);
}

TEST(WeightRange, InAnyOrderEveryGradientIsAppliedOnceAndNoneIsOlderThanTheBound) {
  constexpr int kWorkers = 3, kTasks = 40;
  for (const ConsistencyRules& rules : {ConsistencyRules{},
                                        {.delay = 1, .pushes = 1},
                                        {.delay = 3, .pushes = 1},
                                        {.delay = kNoBound, .pushes = 1},
                                        {.delay = 1},
                                        {.delay = 4},
                                        {.delay = 0, .pushes = 1},
                                        {.delay = 2, .pushes = 2},
                                        {.delay = 2, .pushes = 7}})
    for (unsigned seed = 0; seed < 20; ++seed) {
      SCOPED_TRACE(concat(rules.text(), ", seed ", seed));
      std::mt19937 random(seed);
      Served served(kWorkers, rules, kNobody);
      std::vector<int> done(kWorkers), may{0, 1, 2};
      int pushes = 0;
      while (!may.empty()) {
        const int worker = may[random() % may.size()];
        served.push(worker, 1);
        ++done[static_cast<size_t>(worker)], ++pushes;
        may.clear();
        for (int w = 0; w < kWorkers; ++w)
          if (done[static_cast<size_t>(w)] < kTasks && (done[static_cast<size_t>(w)] == 0 || served.answer(w)))
            may.push_back(w);
      }
      EXPECT_EQ(pushes, kWorkers * kTasks);
      served.range.settle();
      EXPECT_THAT(download(served.mine), ElementsAre(pushes, pushes, pushes));
      int64_t applied = 0;
      for (const auto& [updates, gradients] : served.range.staleness()) applied += gradients;
      EXPECT_EQ(applied, pushes);
      if (rules.delay != kNoBound && rules.pushes <= 1) {
        EXPECT_LE(served.range.staleness().rbegin()->first, most_stale(kWorkers, rules));
      }
    }
}

TEST(WeightRange, OneThatFailsLetsNobodyWait) {
  Served served(2, {});
  served.push(0, 1);
  served.range.give_up();
  EXPECT_THROW(served.range.await(), Error);
}

TEST(WeightRange, RefusesToKeepGradientsWithoutABound) { EXPECT_THROW(Served(2, {.delay = kNoBound}), Error); }

}  // namespace
}  // namespace owt::weight_range_test
