#include "src/plan/order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "src/plan/plan_rows.h"
#include "tests/support/models.h"

namespace owt::order_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Kind = Action::Kind;

// Two layers of the front part are trained; each of four ranks has columns of fc1 and fc2.
const char* const kLayers = R"(
  { name = "conv1", type = "conv", out = 4, kernel = 1 },
  { name = "conv2", type = "conv", out = 4, kernel = 1 },
  { name = "fc1", type = "dense", out = 8 },
  { name = "fc2", type = "dense", out = 4 })";

Plan plan_of(PlanRequest request) {
  request.bucket_bytes = 1;  // a bucket for each layer
  if (request.step_rows == 1) request.step_rows = 8 * request.ranks;
  return make_plan(model_of("[3, 2, 2]", 4, kLayers), request);
}

std::vector<Action> training_of(const Plan& plan) { return training(plan, plan.request.step_rows); }

// "start gradients, bucket 0"; only those about the wire or updates, or all.
std::vector<std::string> lines(const Plan& plan, const std::vector<Action>& actions,
                               const std::vector<Kind>& kinds = {}) {
  std::vector<std::string> all;
  for (const Action& at : actions)
    if (kinds.empty() || std::count(kinds.begin(), kinds.end(), at.kind) > 0)
      all.push_back(concat(name_of(at.kind), at.round == kOwnRows ? "" : concat(" ", at.round),
                           subject(plan, at).empty() ? "" : " ", subject(plan, at), at.beside ? " beside" : ""));
  return all;
}

TEST(Order, OfOneRankIsForwardLossBackwardAndOneUpdate) {
  const Plan plan = plan_of({});
  EXPECT_THAT(
      lines(plan, training_of(plan)),
      ElementsAre("forward conv1", "forward conv2", "forward fc1", "forward fc2", "loss 0", "backward data fc2",
                  "backward weights fc2", "backward data fc1", "backward weights fc1", "backward data conv2",
                  "backward weights conv2", "backward data conv1", "backward weights conv1", "update conv1 to fc2"));
}

TEST(Order, OfOneRankUpdatesDenseWeightsWithTheirGradients) {
  const Plan plan = plan_of({});
  std::vector<std::string> updated;
  for (const Action& at : training_of(plan))
    if (at.updates) updated.push_back(concat(name_of(at.kind), " ", subject(plan, at)));
  EXPECT_THAT(updated, ElementsAre("backward weights fc2", "backward weights fc1"));
  for (const Action& at : training_of(plan_of({.ranks = 2, .strategy = Strategy::kDataParallel})))
    EXPECT_FALSE(at.updates);
}

TEST(Order, OfDataParallelRanksSendsABucketWhenItsLastLayerIsDone) {
  const Plan plan = plan_of({.ranks = 2, .strategy = Strategy::kDataParallel});
  EXPECT_THAT(lines(plan, training_of(plan), {Kind::kBackwardWeights, Kind::kStart, Kind::kWait, Kind::kUpdate}),
              ElementsAre("backward weights fc2", "start gradients, bucket 0", "backward weights fc1",
                          "start gradients, bucket 1", "backward weights conv2", "start gradients, bucket 2",
                          "backward weights conv1", "start gradients, bucket 3", "wait gradients, bucket 0",
                          "wait gradients, bucket 1", "wait gradients, bucket 2", "wait gradients, bucket 3",
                          "update conv1 to fc2", "start step result", "wait step result"));
}

TEST(Order, OfSharesUpdatesABucketAndSendsItsWeightsWhenTheNextHasLeft) {
  for (const Strategy strategy : {Strategy::kDataParallelZero, Strategy::kDataParallelStar}) {
    const Plan plan = plan_of({.ranks = 2, .strategy = strategy});
    EXPECT_THAT(
        lines(plan, training_of(plan), {Kind::kStart, Kind::kWait, Kind::kUpdate}),
        ElementsAre("start gradients, bucket 0", "start gradients, bucket 1", "wait gradients, bucket 0 beside",
                    "update fc2 beside", "start weights, bucket 0 beside", "start gradients, bucket 2",
                    "wait gradients, bucket 1 beside", "update fc1 beside", "start weights, bucket 1 beside",
                    "start gradients, bucket 3", "wait gradients, bucket 2 beside", "update conv2 beside",
                    "start weights, bucket 2 beside", "wait gradients, bucket 3 beside", "update conv1 beside",
                    "start weights, bucket 3 beside", "wait weights, bucket 0", "wait weights, bucket 1",
                    "wait weights, bucket 2", "wait weights, bucket 3", "start step result", "wait step result"));
  }
}

// The step result is sent before the gradients, except in evaluations, which have no gradients.
TEST(Order, OfServersTellsTheResultBeforeItsGradients) {
  const Plan plan = plan_of({.ranks = 2, .strategy = Strategy::kParameterServer}),
             zero = plan_of({.ranks = 2, .strategy = Strategy::kDataParallelZero});
  std::vector<std::string> wanted = lines(zero, training_of(zero), {Kind::kStart, Kind::kWait, Kind::kUpdate});
  const auto told = std::find(wanted.begin(), wanted.end(), "start step result");
  ASSERT_NE(told, wanted.end());
  std::rotate(wanted.begin(), told, told + 1);
  EXPECT_EQ(lines(plan, training_of(plan), {Kind::kStart, Kind::kWait, Kind::kUpdate}), wanted);
  EXPECT_EQ(lines(plan, evaluation(plan, plan.request.step_rows)),
            lines(zero, evaluation(zero, zero.request.step_rows)));
}

TEST(Order, OfOwtAGathersRowsOnceAndScattersTheirGradientDuringTheWeightsGradient) {
  const Plan plan = plan_of({.ranks = 2, .strategy = Strategy::kOwtA});
  EXPECT_THAT(
      lines(plan, training_of(plan)),
      ElementsAre("start labels", "forward conv1", "forward conv2", "start 0 fc1 input", "wait 0 fc1 input",
                  "forward 0 fc1", "start 0 fc2 input", "wait 0 fc2 input", "forward 0 fc2", "start 0 logits",
                  "wait 0 logits", "wait 0 labels", "loss 0", "backward data 0 fc2", "start 0 fc2 input gradient",
                  "backward weights 0 fc2", "wait 0 fc2 input gradient", "backward data 0 fc1",
                  "start 0 fc1 input gradient", "backward weights 0 fc1", "wait 0 fc1 input gradient",
                  "backward data conv2", "backward weights conv2", "start gradients, bucket 0", "backward data conv1",
                  "backward weights conv1", "start gradients, bucket 1", "update fc1 to fc2",
                  "wait gradients, bucket 0", "wait gradients, bucket 1", "update conv1 to conv2", "start step result",
                  "wait step result"));
}

// With 60 classes logits stay on their ranks. Logistic units need no statistics of other ranks for their gradient.
TEST(Order, OfShardedLogitsWaitsForStatisticsBeforeBackwardOrAfterThatOfLogisticUnits) {
  const std::string layers = "{ name = 'fc1', type = 'dense', out = 60 }";
  const auto order = [&](LossType type, bool learns) {
    const Plan plan = make_plan(model_of("[3, 2, 2]", 60, layers),
                                {.ranks = 2, .strategy = Strategy::kOwtC, .step_rows = 8, .loss = {.type = type}});
    std::vector<std::string> all;
    for (const std::string& line : lines(plan, learns ? training_of(plan) : evaluation(plan, 8)))
      if (line.find(" 1 ") != std::string::npos || line == "loss 1") all.push_back(line);
    return all;
  };
  EXPECT_THAT(order(LossType::kSoftmax, true),
              ElementsAre("start 1 fc1 input", "wait 1 fc1 input", "forward 1 fc1", "wait 1 labels", "loss 1",
                          "start 1 loss statistics", "wait 1 loss statistics", "loss 1", "backward data 1 fc1",
                          "backward weights 1 fc1"));
  EXPECT_THAT(order(LossType::kLogistic, true),
              ElementsAre("start 1 fc1 input", "wait 1 fc1 input", "forward 1 fc1", "wait 1 labels", "loss 1",
                          "start 1 loss statistics", "backward data 1 fc1", "backward weights 1 fc1",
                          "wait 1 loss statistics", "loss 1"));
  EXPECT_EQ(order(LossType::kLogistic, false), order(LossType::kSoftmax, false));
}

// The rows of the next round are gathered while one round is computed; there is memory for two.
TEST(Order, OfRoundsGathersOneAheadAndWaitsForThePlaceOfTheOneBefore) {
  for (const Strategy strategy : {Strategy::kOwtB, Strategy::kOwtC}) {
    const Plan plan = plan_of({.ranks = 4, .strategy = strategy});
    std::vector<std::string> seam;
    for (const std::string& line : lines(plan, training_of(plan), {Kind::kStart, Kind::kWait}))
      if (line.find("fc1 input") != std::string::npos) seam.push_back(line);
    EXPECT_THAT(seam,
                ElementsAre("start 0 fc1 input", "start 1 fc1 input", "wait 0 fc1 input", "start 0 fc1 input gradient",
                            "wait 0 fc1 input gradient", "start 2 fc1 input", "wait 1 fc1 input",
                            "start 1 fc1 input gradient", "wait 1 fc1 input gradient", "start 3 fc1 input",
                            "wait 2 fc1 input", "start 2 fc1 input gradient", "wait 3 fc1 input",
                            "start 3 fc1 input gradient", "wait 2 fc1 input gradient", "wait 3 fc1 input gradient"))
        << name_of(strategy);
  }
}

TEST(Order, UpdatesTheDenseLayersOnceAStepOrAfterEveryRoundThatHasRows) {
  const auto updates = [](const Plan& plan, int64_t rows) {
    return lines(plan, training(plan, rows), {Kind::kUpdate});
  };
  const Plan step = plan_of({.ranks = 2, .strategy = Strategy::kOwtC});
  EXPECT_THAT(updates(step, 16), ElementsAre("update fc1 to fc2", "update conv1 to conv2"));
  const Plan round = plan_of({.ranks = 2, .strategy = Strategy::kOwtC, .dense_update = DenseUpdate::kRound});
  EXPECT_THAT(updates(round, 16), ElementsAre("update 0 fc1 to fc2", "update 1 fc1 to fc2", "update conv1 to conv2"));
  EXPECT_THAT(updates(round, 1), ElementsAre("update 0 fc1 to fc2", "update conv1 to conv2"));
}

TEST(Order, OfReplicasSumsTheirDenseGradientsWhenTheLastRoundHasThem) {
  const Plan plan = plan_of({.ranks = 4, .strategy = Strategy::kOwtC, .model_ranks = 2});
  std::vector<std::string> sums;
  for (const std::string& line : lines(plan, training_of(plan), {Kind::kBackwardWeights, Kind::kStart, Kind::kUpdate}))
    if (line.find("dense gradients") != std::string::npos || line.find("weights 1 fc") != std::string::npos)
      sums.push_back(line);
  EXPECT_THAT(sums, ElementsAre("backward weights 1 fc2", "start dense gradients, bucket 0", "backward weights 1 fc1",
                                "start dense gradients, bucket 1"));
}

TEST(Order, OfRanksThatSplitDenseLayersAloneBringsNoRowsAndCopiesTheFrontsGradients) {
  const Plan plan = plan_of({.ranks = 2, .strategy = Strategy::kModelParallelDense});
  EXPECT_THAT(
      lines(plan, training_of(plan), {Kind::kStart, Kind::kUpdate}),
      ElementsAre("start 0 fc2 input", "start 0 logits", "start 0 fc2 input gradient", "start 0 fc1 input gradient",
                  "start gradient copies, bucket 0", "start gradient copies, bucket 1", "update fc1 to fc2",
                  "update conv1 to conv2", "start step result"));
}

TEST(Order, OfModelParallelRanksMovesChannelsAsItMovesFeatures) {
  const Plan plan = plan_of({.ranks = 2, .strategy = Strategy::kModelParallel});
  EXPECT_THAT(lines(plan, training_of(plan), {Kind::kStart, Kind::kUpdate}),
              ElementsAre("start 0 conv2 input", "start 0 fc1 input", "start 0 fc2 input", "start 0 logits",
                          "start 0 fc2 input gradient", "start 0 fc1 input gradient", "start 0 conv2 input gradient",
                          "update conv1 to fc2", "start step result"));
}

TEST(Order, OfEvaluationEndsWithTheLossAndItsResult) {
  for (const Strategy strategy : all_strategies()) {
    const Plan plan = plan_of({.ranks = 3, .strategy = strategy});
    const std::vector<Action> order = evaluation(plan, plan.request.step_rows, plan.places() - 1);
    EXPECT_THAT(lines(plan, order, {Kind::kBackwardData, Kind::kBackwardWeights, Kind::kUpdate}), IsEmpty());
    const std::vector<std::string> all = lines(plan, order);
    EXPECT_EQ(all.back(), "wait step result") << name_of(strategy);
    EXPECT_EQ(all.at(all.size() - 3).substr(0, 4), "loss") << name_of(strategy);
    for (const std::string& line : all) EXPECT_EQ(line.find("gradient"), std::string::npos) << line;
  }
}

// Forward of a micro-batch uses the memory of an earlier output.
TEST(Order, OfAPipelinesEvaluationOverwritesNoOutputInFlight) {
  const Plan plan = plan_of({.ranks = 2, .strategy = Strategy::kPipeline});
  ASSERT_GT(plan.equal_parts, tapes(plan, 0));
  const TransferId output = plan.layer(plan.back_layers(0).end).transfers.input;
  std::set<int> under_way;
  for (const Action& at : evaluation(plan, plan.request.step_rows, 0)) {
    if (at.kind == Kind::kForward) {
      EXPECT_FALSE(under_way.contains(at.round - tapes(plan, 0))) << at.round;
    }
    if (at.transfer == output && at.kind == Kind::kStart) under_way.insert(at.round);
    if (at.transfer == output && at.kind == Kind::kWait) under_way.erase(at.round);
  }
}

// What starts is waited for, once, and later: in every strategy, on grids, and whatever the rows.
TEST(Order, EveryTransferThatStartsIsWaitedForAndNothingElseIs) {
  for (const Strategy strategy : all_strategies())
    for (const int model_ranks : {0, 2})
      for (const DenseUpdate update : {DenseUpdate::kStep, DenseUpdate::kRound})
        for (const bool bf16_transport : {false, true})
          for (const int64_t rows : {1, 5, 32}) {
            const Plan plan = plan_of({.ranks = 4,
                                       .strategy = strategy,
                                       .dense_update = update,
                                       .bf16_transport = bf16_transport,
                                       .model_ranks = splits_dense(strategy) ? model_ranks : 0,
                                       .slices = facts_of(strategy).can_accumulate ? 1 + model_ranks : 1});
            std::map<std::tuple<TransferId, int, int>, int> under_way;
            for (const Action& at : training(plan, rows, static_cast<int>(rows) % plan.places())) {
              const bool labels = at.transfer == plan.of_step.labels;  // start once and are waited for in every round
              // of another micro-batch
              if (labels && at.kind == Kind::kStart) under_way.erase({at.transfer, kOwnRows, 0});
              const std::tuple key{at.transfer, labels ? kOwnRows : at.round, at.bucket};
              if (at.kind == Kind::kStart) {
                EXPECT_EQ(under_way[key]++, 0) << subject(plan, at);
                // Sums of gradients are sent on as copies.
                if (at.transfer == plan.of_step.gradient_copies)
                  under_way[{plan.of_step.gradients, at.round, at.bucket}] = 0;
              }
              if (at.kind == Kind::kWait) {
                EXPECT_EQ(under_way[key], 1) << subject(plan, at);
                under_way[key] -= labels ? 0 : 1;
              }
            }
            under_way.erase({plan.of_step.labels, kOwnRows, 0});
            for (const auto& [key, count] : under_way) EXPECT_EQ(count, 0) << name_of(strategy);
          }
}

TEST(Order, LargeDenseLayersOfAGpuAreUpdatedDuringWhatFollows) {
  PlanRequest request{.on = {Device::kCuda, Precision::kBf16}, .beside_from = 1};
  const Plan plan = plan_of(request);
  EXPECT_THAT(lines(plan, training_of(plan), {Kind::kBackwardWeights, Kind::kUpdate}),
              ElementsAre("backward weights fc2", "backward weights fc1", "update fc1 to fc2 beside",
                          "backward weights conv2", "backward weights conv1", "update conv1 to conv2"));
  for (const Action& action : training_of(plan)) EXPECT_FALSE(action.updates) << "the update computes gradients";
  request.beside_from = 1 << 20;
  EXPECT_THAT(lines(plan_of(request), training_of(plan_of(request)), {Kind::kUpdate}),
              ElementsAre("update conv1 to fc2"));
  request.beside_from = 1;
  request.on.device = Device::kCpu;
  EXPECT_THAT(lines(plan_of(request), training_of(plan_of(request)), {Kind::kUpdate}),
              ElementsAre("update conv1 to fc2"));
}

// Gradients are summed over the micro-batches, and transfers of gradients occur once.
TEST(Order, OfMicroBatchesIsTheOrderOfEachAndGradientsLeaveWithTheLast) {
  const Plan plan = plan_of({.ranks = 2, .strategy = Strategy::kDataParallel, .slices = 2});
  const std::vector<std::string> pass = {"forward conv1",
                                         "forward conv2",
                                         "forward fc1",
                                         "forward fc2",
                                         "loss 0",
                                         "backward data fc2",
                                         "backward weights fc2",
                                         "backward data fc1",
                                         "backward weights fc1",
                                         "backward data conv2",
                                         "backward weights conv2",
                                         "backward data conv1",
                                         "backward weights conv1"};
  std::vector<std::string> first, second;
  for (const Action& at : training_of(plan))
    if (at.kind != Kind::kStart && at.kind != Kind::kWait && at.kind != Kind::kUpdate)
      (at.slice == 0 ? first : second).push_back(lines(plan, {at}).front());
  EXPECT_EQ(first, pass);
  EXPECT_EQ(second, pass);
  EXPECT_THAT(lines(plan, training_of(plan), {Kind::kStart, Kind::kWait, Kind::kUpdate}),
              ElementsAre("start gradients, bucket 0", "start gradients, bucket 1", "start gradients, bucket 2",
                          "start gradients, bucket 3", "wait gradients, bucket 0", "wait gradients, bucket 1",
                          "wait gradients, bucket 2", "wait gradients, bucket 3", "update conv1 to fc2",
                          "start step result", "wait step result"));
  for (const Action& at : training_of(plan)) {
    EXPECT_FALSE(at.updates);
    EXPECT_TRUE(at.slice == 1 || (at.kind != Kind::kStart && at.kind != Kind::kUpdate));
  }
}

TEST(Order, OfMicroBatchesOfOwtCHasTheRoundsInEachAndUpdatesTheDenseLayersOnceOrAfterEachOfThem) {
  PlanRequest request{.ranks = 2, .strategy = Strategy::kOwtC, .slices = 2};
  const Plan step = plan_of(request);
  std::vector<std::string> rows;
  for (const Action& at : training_of(step))
    if (at.kind == Kind::kStart && (at.transfer == step.of_step.labels || subject(step, at) == "fc1 input"))
      rows.push_back(concat(at.slice, " ", lines(step, {at}).front()));
  EXPECT_THAT(rows, ElementsAre("0 start labels", "0 start 0 fc1 input", "0 start 1 fc1 input", "1 start labels",
                                "1 start 0 fc1 input", "1 start 1 fc1 input"));
  EXPECT_THAT(lines(step, training_of(step), {Kind::kUpdate}),
              ElementsAre("update fc1 to fc2", "update conv1 to conv2"));
  request.dense_update = DenseUpdate::kRound;
  const Plan round = plan_of(request);
  EXPECT_THAT(lines(round, training_of(round), {Kind::kUpdate}),
              ElementsAre("update 0 fc1 to fc2", "update 1 fc1 to fc2", "update 0 fc1 to fc2", "update 1 fc1 to fc2",
                          "update conv1 to conv2"));
}

TEST(Order, OfMicroBatchesAsTextNamesThem) {
  const Plan plan = plan_of({.ranks = 2, .strategy = Strategy::kOwtA, .slices = 3});
  const std::string text = action_text(plan, training_of(plan));
  EXPECT_THAT(text, ::testing::HasSubstr("  nr  action            micro-batch round  of\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("   6  forward                     1     1  fc1\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("start                       3        gradients, bucket 1\n"));
}

TEST(Order, AsTextHasALineForEveryAction) {
  const Plan plan = plan_of({.ranks = 2, .strategy = Strategy::kOwtA});
  const std::vector<Action> order = training_of(plan);
  const std::string text = action_text(plan, order);
  EXPECT_EQ(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')), order.size() + 1);
  EXPECT_THAT(text, ::testing::HasSubstr("   6  forward               1  fc1\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("start                    gradients, bucket 1\n"));
}

}  // namespace
}  // namespace owt::order_test
