// Runs with Muon: which parameters are matrices, equal copies on all ranks, resumed runs, and what is refused. Equality
// of the losses under every strategy is tested in step_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>

#include "src/core/memory.h"
#include "src/core/threads.h"
#include "src/plan/plan_bytes.h"
#include "src/plan/plan_rows.h"
#include "src/train/equality.h"
#include "src/train/made_up_batch.h"
#include "src/train/worker.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"
#include "tests/support/whole_runs.h"

namespace owt::muon_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Overrides muon(const char* strategy, const char* workers, const Overrides& more = {}) {
  return merged(merged(with_optimizer("muon_unit"),
                       {{"run.device", "cpu"}, {"parallel.strategy", strategy}, {"parallel.workers", workers}}),
                more);
}

std::vector<std::string> matrices_of(const Overrides& changes) {
  std::vector<std::string> names;
  for (const auto& layer : whole_layers(small_settings(kSmallRecipe, changes).model))
    for (const Param* param : layer->params())
      if (param->is_matrix) names.push_back(param->name);
  return names;
}

TEST(Muon, UpdatesTheWeightsOfAllLayersButTheLastAsMatrices) {
  EXPECT_THAT(matrices_of(muon("dp", "1")), ElementsAre("conv1.weight", "conv2.weight", "fc1.weight", "fc2.weight"));
  EXPECT_THAT(matrices_of(muon("dp", "1", {{"optimizer.others.layers", "['fc1', 'c*1']"}})),
              ElementsAre("conv2.weight", "fc2.weight"));
  EXPECT_THAT(matrices_of(muon("dp", "1", {{"optimizer.freeze", "['conv1']"}})),
              ElementsAre("conv2.weight", "fc1.weight", "fc2.weight"));
  EXPECT_THAT(matrices_of({}), ElementsAre());
}

class MuonRuns : public ::testing::Test, protected WholeRuns {};

// Every copy of a weight has the same bits after every step; otherwise the run would end.
TEST_F(MuonRuns, LeaveCopiesOfWeightsEqualToTheLastBitAndResumeBitForBit) {
  const Overrides all{{"run.log_every", "1"}, {"schedule.max_steps", "7"}, {"run.equality_every", "1"}};
  for (const Overrides& on : {muon("owt-d", "4", {{"parallel.model_ranks", "2"}}), muon("dp-zero", "3")}) {
    const std::string tag = name_of(small_settings(kSmallRecipe, on).parallel.strategy);
    SCOPED_TRACE(tag);
    const Overrides changes = merged(all, on);
    run("whole" + tag, changes);
    run("part" + tag, merged(changes, {{"schedule.max_steps", "3"}}));
    ConvChoices::process().clear();  // state of a new process
    run("part" + tag, changes, "auto");
    EXPECT_EQ(read_file(weights_of("part" + tag)), read_file(weights_of("whole" + tag)));
    EXPECT_EQ(read_file(optimizer_of("part" + tag)), read_file(optimizer_of("whole" + tag)));
  }
}

TEST(Muon, CopiesStayEqualWhateverTeamsTheRanksHave) {
  for (const char* strategy : {"dp", "dp-zero", "owt-a", "mp"}) {
    const Settings settings = small_settings(kSmallRecipe, muon(strategy, "4", {{"parallel.model_ranks", "2"}}));
    const Plan plan = settings.plan_to_run();
    run_ranks(
        plan.ranks(), 1,
        [&](Communicator& comm) {
          set_team_size(1 + comm.rank());
          Worker worker(settings, plan, comm);
          worker.model.initialize(3);
          const Batch batch =
              made_up_batch(settings.model, rows_of(plan, plan.request.step_rows).of(comm.rank()), plan.request);
          for (int64_t number = 0; number < 3; ++number) worker.step.train(batch, number, {0.01, 0.01}, false);
          check_equality(plan, worker.model, worker.step.groups(), 3, "nothing is kept");
        },
        Device::kCpu);
  }
}

// Updates of parts of a step gather their matrices too.
TEST(Muon, SendsTheBytesOfThePlanAndLearnsWhateverTheScheduleOfTheUpdates) {
  for (const Overrides& on :
       {muon("owt-c", "3", {{"parallel.dense_update", "round"}}), muon("owt-a", "2", {{"parallel.average_every", "2"}}),
        muon("owt-d", "2", {{"optimizer.clip", "0.2"}}), muon("pipeline", "2", {{"pipeline.schedule", "pipedream"}})}) {
    const SmallRun run = run_small(kSmallRecipe, 4, on);
    EXPECT_EQ(run.bytes, run.planned_of_ranks) << on.back().second;
    for (const double loss : run.losses) EXPECT_LT(loss, 4) << on.back().second;
  }
}

// A single step allocates all of it.
TEST(Muon, TakesTheMemoryOfThePlan) {
  for (const auto& [strategy, workers] : {std::pair("dp", "1"), {"dp-zero", "3"}, {"owt-a", "2"}, {"owt-d", "2"}}) {
    const Settings settings = small_settings(kSmallRecipe, muon(strategy, workers));
    const Plan plan = settings.plan_to_run();
    const Settings sgd = small_settings(kSmallRecipe, {{"parallel.strategy", strategy}, {"parallel.workers", workers}});
    const auto taken = [&](const Settings& of) {
      PlanRequest request = of.plan_request();
      request.keeps_gradients = true;  // matrices keep them too
      const Plan its = make_plan(of.model, request);
      const int64_t before = host_memory().in_use;
      int64_t most = 0;
      std::barrier all_here(plan.ranks());
      run_ranks(
          plan.ranks(), 1,
          [&](Communicator& comm) {
            Worker worker(of, its, comm);
            worker.model.initialize(3);
            const Batch batch =
                made_up_batch(of.model, rows_of(plan, plan.request.step_rows).of(comm.rank()), plan.request);
            worker.step.train(batch, 0, {0.01, 0.01}, false);
            all_here.arrive_and_wait();
            if (comm.rank() == 0) most = host_memory().in_use - before;
            all_here.arrive_and_wait();
          },
          Device::kCpu);
      return most;
    };
    EXPECT_GT(matrix_bytes(plan), 0);
    EXPECT_EQ(taken(settings) - taken(sgd), plan.ranks() * matrix_bytes(plan)) << strategy;
  }
}

TEST(Muon, NamesWhatItDoesNotGoTogetherWith) {
  const auto said = [](const Overrides& changes) { return message_of([&] { run_small(kSmallRecipe, 1, changes); }); };
  EXPECT_THAT(said(muon("ps", "2")), HasSubstr("needs the whole gradient of a matrix, and under ps each worker"));
  EXPECT_THAT(said(muon("dp", "2", {{"run.canonical", "true"}})), HasSubstr("products of whole matrices"));
  EXPECT_THAT(said(muon("pipeline", "2", {{"pipeline.schedule", "spectrain"}})), HasSubstr("spectrain"));
  for (const char* others :
       {"{ learning_rate = 0 }", "{ momentum = 1 }", "{ decay = -1 }", "{ layers = ['conv9'] }", "{ rate = 1 }"})
    EXPECT_THAT(said(muon("dp", "1", {{"optimizer.others", others}})), HasSubstr("[optimizer].others")) << others;
  EXPECT_THAT(said(muon("dp", "1", {{"optimizer.others", "{ layers = ['conv9'] }"}})), HasSubstr("conv9: no layer"));
  const Settings on_gpus = small_settings(kSmallRecipe, muon("owt-a", "2", {{"run.device", "cuda"}}));
  EXPECT_THAT(message_of([&] { make_plan(on_gpus.model, on_gpus.plan_request()); }),
              HasSubstr("under owt-a they have parts; use --parallel dp, or --device cpu"));
}

}  // namespace
}  // namespace owt::muon_test
