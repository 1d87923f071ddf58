// The actions of a step, recorded by a profiler, against the list of actions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "src/comm/profiled.h"
#include "src/comm/threads.h"
#include "src/parallel/step.h"
#include "src/plan/order.h"
#include "src/plan/plan_rows.h"
#include "src/server/parameter_server.h"
#include "src/train/made_up_batch.h"
#include "tests/support/harness.h"
#include "tests/support/models.h"
#include "tests/support/strategies.h"

namespace owt::step_order_test {
namespace {

// Every kind of transfer: few logits are gathered, many stay on their ranks; fc2 is split by inputs under owt-d.
const char* const kFewClasses = R"(
  { name = "conv1", type = "conv", out = 4, kernel = 3 },
  { name = "relu1", type = "relu" },
  { name = "bn1", type = "batch_norm" },
  { name = "conv2", type = "conv", out = 4, kernel = 3 },
  { name = "fc1", type = "dense", out = 12 },
  { name = "relu2", type = "relu" },
  { name = "fc2", type = "dense", out = 6 },
  { name = "fc3", type = "dense", out = 8 })";
const char* const kManyClasses = R"(
  { name = "conv1", type = "conv", out = 4, kernel = 3 },
  { name = "fc1", type = "dense", out = 12 },
  { name = "drop1", type = "dropout", rate = 0.5 },
  { name = "fc2", type = "dense", out = 60 })";
constexpr int64_t kRowsOfARank = 4;  // so that no round is empty

using Scopes = std::vector<std::pair<std::string, Phase>>;

// The profiler's scopes of a step, in order. A scope that continues counts once.
Scopes scopes_of(const Profiler& profiler) {
  Scopes scopes;
  for (const Profiler::Span& span : profiler.spans()) {
    const Profiler::Row& row = profiler.rows()[span.row];
    std::pair<std::string, Phase> scope{row.phase == Phase::kUpdate ? "update" : row.name, row.phase};
    if (scopes.empty() || scopes.back() != scope) scopes.push_back(std::move(scope));
  }
  return scopes;
}

// Layers that run in one op have one scope with all their names; it is reduced to the first name.
std::set<std::string> cut_to_first_layers(Scopes& scopes) {
  std::set<std::string> others;
  for (auto& [name, phase] : scopes) {
    for (size_t at = name.find('+'); at != std::string::npos; at = name.find('+', at + 1))
      others.insert(name.substr(at + 1, name.find('+', at + 1) - at - 1));
    name = name.substr(0, name.find('+'));
  }
  return others;
}

Phase phase_of(Action::Kind kind) {
  switch (kind) {
    case Action::Kind::kForward:
      return Phase::kForward;
    case Action::Kind::kLoss:
      return Phase::kLoss;
    case Action::Kind::kUpdate:
    case Action::Kind::kCopyWeights:
    case Action::Kind::kAverageWeights:
    case Action::Kind::kNorms:
      return Phase::kUpdate;
    case Action::Kind::kStart:
    case Action::Kind::kWait:
      return Phase::kTransfer;
    default:
      return Phase::kBackward;
  }
}

std::string scope_name(const Plan& plan, const Action& action) {
  if (action.kind == Action::Kind::kLoss) return "loss";
  if (phase_of(action.kind) == Phase::kUpdate) return "update";
  if (action.transfer != kNoTransfer) return plan.transfer(action.transfer).name;
  return plan.layer(action.layers.begin).name;
}

// Layers without parameters leave no scope for weight gradients and updates. Switching weights takes no time.
bool leaves_a_scope(const Plan& plan, const Action& action, const std::set<std::string>& others) {
  if (action.kind == Action::Kind::kStart || action.kind == Action::Kind::kWait || action.kind == Action::Kind::kLoss)
    return true;
  if (action.kind == Action::Kind::kCopyWeights || action.kind == Action::Kind::kTakeWeights)
    return action.kind == Action::Kind::kCopyWeights;
  bool learns = false;
  for (int64_t i = action.layers.begin; i < action.layers.end; ++i) learns = learns || !plan.layer(i).params.empty();
  if (action.kind == Action::Kind::kNorms) return true;
  if (phase_of(action.kind) == Phase::kUpdate) return learns;
  return !others.contains(plan.layer(action.layers.begin).name);
}

Scopes listed(const Plan& plan, const std::vector<Action>& order, const std::set<std::string>& others) {
  Scopes scopes;
  for (const Action& action : order) {
    if (!leaves_a_scope(plan, action, others)) continue;
    std::pair<std::string, Phase> scope{scope_name(plan, action), phase_of(action.kind)};
    if (scopes.empty() || scopes.back() != scope) scopes.push_back(std::move(scope));
  }
  return scopes;
}

std::string text(const Scopes& scopes) {
  std::string all;
  for (const auto& [name, phase] : scopes) all += concat("\n  ", name, ", ", name_of(phase));
  return all;
}

struct Case {
  const char* layers;
  Strategy strategy;
  int ranks, model_ranks;
  DenseUpdate dense_update;
  bool bf16_transport;
  StepKind kind = StepKind::kSynchronous;
  double average_from = 0;
  DenseSplit split = DenseSplit::kOfStrategy;
  PipelineRequest pipeline = {};
  int ema_every = 0;
  int slices = 1;
  std::vector<std::string> frozen = {};
  int norm_sums = 0;
  LossType loss = LossType::kSoftmax;
};

class StepOrder : public DeviceTest {
 protected:
  void expect_the_list(const Case& c, Mode mode) const {
    if (!works_on(c.strategy, device())) return;
    if (c.norm_sums > 0 && !finds_norms(c.strategy)) return;
    Model model = model_of("[3, 8, 8]", c.layers == kFewClasses ? 8 : 60, c.layers);
    model.frozen = c.frozen;
    const Plan plan = make_plan(model, {.ranks = c.ranks,
                                        .strategy = c.strategy,
                                        .dense_update = c.dense_update,
                                        .step_rows = kRowsOfARank * c.ranks,
                                        .bucket_bytes = 1,
                                        .on = device(),
                                        .bf16_transport = c.bf16_transport,
                                        .loss = {.type = c.loss},
                                        .model_ranks = c.model_ranks,
                                        .average_every = c.kind == StepKind::kSynchronous ? 1 : 4,
                                        .average_from = c.average_from,
                                        .ema_every = c.ema_every,
                                        .norm_sums = c.norm_sums,
                                        .split = c.split,
                                        .beside_from = 1,
                                        .options = {.pipeline = c.pipeline},
                                        .slices = c.slices});
    const std::string what = concat(name_of(c.strategy), ", ", c.ranks, " ranks, groups of ", c.model_ranks);
    run_ranks(
        c.ranks, 1,
        [&](Communicator& inner) {
          Profiler profiler;
          ProfiledCommunicator comm(inner, &profiler);
          RankModel mine(model, plan, comm.rank());
          Optimizer optimizer({.learning_rate = 0.01});
          Step step(plan, mine, optimizer, comm, &profiler, {.make_served = make_parameter_server});
          mine.initialize(1);
          const Slice rows = rows_of(plan, plan.request.step_rows).of(comm.rank());
          const Batch batch = made_up_batch(model, rows, plan.request);
          step.prepare(plan.request.step_rows, mode);
          profiler.enable(true);
          profiler.keep_spans(true);
          profiler.begin_step();
          if (mode == Mode::kTrain)
            step.train(batch, 0, {.front = 0.01, .back = 0.01, .kept = 0.5}, false, c.kind);
          else
            step.evaluate(batch);
          profiler.end_step();
          Scopes ran = scopes_of(profiler);
          const auto others = cut_to_first_layers(ran);
          const int place = plan.place_of(comm.rank());
          const auto order = mode == Mode::kTrain ? training(plan, plan.request.step_rows, c.kind, place)
                                                  : evaluation(plan, plan.request.step_rows, place);
          EXPECT_EQ(text(ran), text(listed(plan, order, others))) << what;
        },
        device());
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, StepOrder, ::testing::ValuesIn(devices()), device_name);

TEST_P(StepOrder, IsTheListUnderEveryStrategyOnOneToFourRanks) {
  for (const Strategy strategy : all_strategies())
    for (int ranks = 1; ranks <= 4; ++ranks) {
      if (device() != Device::kCpu && ranks != 3) continue;  // a simulated GPU is slow
      for (const char* layers : {kFewClasses, kManyClasses}) {
        if (layers == kManyClasses && facts_of(strategy).rounds == Rounds::kEqualParts && ranks > 3)
          continue;  // too few layers
        for (const Mode mode : {Mode::kTrain, Mode::kEval})
          expect_the_list({layers, strategy, ranks, 0, DenseUpdate::kStep, false}, mode);
      }
    }
}

TEST_P(StepOrder, IsTheListOfLogisticUnits) {
  for (const Strategy strategy : all_strategies())
    for (const char* layers : {kFewClasses, kManyClasses})
      for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
        if (device() != Device::kCpu && mode == Mode::kEval) continue;  // a simulated GPU is slow
        Case c{layers, strategy, 3, 0, DenseUpdate::kStep, false};
        c.loss = LossType::kLogistic;
        expect_the_list(c, mode);
      }
}

TEST_P(StepOrder, IsTheListWhereLayersAreFrozen) {
  for (const std::vector<std::string>& frozen : {std::vector<std::string>{"conv*", "bn1"}, {"bn1", "fc1"}, {"fc*"}})
    for (const Strategy strategy : all_strategies()) {
      Case c{kFewClasses, strategy, 3, 0, DenseUpdate::kStep, false};
      c.frozen = frozen;
      expect_the_list(c, Mode::kTrain);
    }
}

TEST_P(StepOrder, IsTheListOnGridsAndWithAnUpdateEveryRound) {
  for (const Strategy strategy : {Strategy::kOwtA, Strategy::kOwtB, Strategy::kOwtC, Strategy::kOwtD,
                                  Strategy::kModelParallel, Strategy::kModelParallelDense})
    for (const DenseUpdate update : {DenseUpdate::kStep, DenseUpdate::kRound})
      expect_the_list({kFewClasses, strategy, 4, 2, update, false}, Mode::kTrain);
}

// The scopes of an update and of the averages after it are merged, so pipelines without a flush show the most.
TEST_P(StepOrder, IsTheListWithAveragesOverTime) {
  const Case plain{kFewClasses, Strategy::kOwtC, 3, 0, DenseUpdate::kStep, false};
  for (const Strategy strategy : {Strategy::kDataParallelZero, Strategy::kOwtC, Strategy::kPipeline})
    for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
      Case with_averages = plain;
      with_averages.strategy = strategy;
      with_averages.ema_every = 2;
      expect_the_list(with_averages, mode);
    }
}

TEST_P(StepOrder, IsTheListWithNormsBetweenGradientsAndUpdates) {
  for (const Strategy strategy : all_strategies())
    for (const int sums : {1, 2}) {
      if (device() != Device::kCpu && sums > 1) continue;  // a simulated GPU is slow
      Case with_norms{kFewClasses, strategy, 3, 0, DenseUpdate::kStep, false};
      with_norms.norm_sums = sums;
      expect_the_list(with_norms, Mode::kTrain);
    }
}

TEST_P(StepOrder, IsTheListWhereWeightsAreAveraged) {
  for (const Strategy strategy : {Strategy::kDataParallel, Strategy::kOwtA, Strategy::kOwtC, Strategy::kOwtD})
    for (const StepKind kind : {StepKind::kLocal, StepKind::kAveraging})
      for (const double from : {0.0, 1.0})
        expect_the_list({kFewClasses, strategy, 3, 0, DenseUpdate::kStep, false, kind, from}, Mode::kTrain);
}

TEST_P(StepOrder, IsTheListOfMicroBatches) {
  for (const Strategy strategy : {Strategy::kDataParallel, Strategy::kDataParallelZero, Strategy::kParameterServer,
                                  Strategy::kOwtA, Strategy::kOwtD, Strategy::kModelParallel})
    for (const int slices : {2, 4})
      for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
        Case c{kFewClasses, strategy, 3, 0, DenseUpdate::kStep, false};
        c.slices = slices;
        expect_the_list(c, mode);
      }
}

TEST_P(StepOrder, IsTheListOfAPipelineWithoutAFlush) {
  for (const char* schedule : {"vanilla", "pipedream", "spectrain", "spectrain2"})
    for (const int model_ranks : {4, 2}) {
      Case c{kFewClasses, Strategy::kPipeline, 4, model_ranks, DenseUpdate::kStep, false};
      c.pipeline = {.schedule = pipeline_schedule_from(schedule), .micro_batches = 4};
      expect_the_list(c, Mode::kTrain);
    }
}

TEST_P(StepOrder, IsTheListWhereDenseLayersAreSplitByInputs) {
  for (const Strategy strategy : {Strategy::kOwtA, Strategy::kOwtC, Strategy::kModelParallelDense})
    for (const char* layers : {kFewClasses, kManyClasses})
      expect_the_list({layers, strategy, 3, 0, DenseUpdate::kStep, false, StepKind::kSynchronous, 0, DenseSplit::kRows},
                      Mode::kTrain);
}

TEST_P(StepOrder, IsTheListWhereGradientsAreRoundedForTheTransfer) {
  for (const Strategy strategy : {Strategy::kDataParallel, Strategy::kDataParallelZero, Strategy::kDataParallelStar,
                                  Strategy::kParameterServer, Strategy::kModelParallel, Strategy::kModelParallelDense})
    expect_the_list({kFewClasses, strategy, 2, 0, DenseUpdate::kStep, true}, Mode::kTrain);
}

}  // namespace
}  // namespace owt::step_order_test
