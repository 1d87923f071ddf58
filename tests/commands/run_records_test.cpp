// Records of a run and their times: lines of metrics.jsonl, evaluations, checkpoints, the first lines of its log.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "src/plan/plan_bytes.h"
#include "src/system/log.h"
#include "tests/support/whole_runs.h"

namespace owt::run_records_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Json = nlohmann::json;
using Steps = std::vector<int64_t>;

// 100 training images in steps of 24: five to an epoch.
class RunRecords : public ::testing::Test, protected WholeRuns {
 protected:
  std::vector<Json> lines(const std::string& out, const std::string& kind) const {
    std::vector<Json> all;
    for (const std::string& line : text_lines(path(out) + "/metrics.jsonl"))
      if (const Json one = Json::parse(line); one["kind"] == kind) all.push_back(one);
    return all;
  }
  Steps steps_of(const std::string& out, const std::string& kind) const {
    Steps steps;
    for (const Json& line : lines(out, kind)) steps.push_back(line["step"]);
    return steps;
  }
  Steps checkpoints_of(const std::string& out) const {
    Steps steps;
    for (const std::string& folder : list_checkpoints(path(out))) steps.push_back(load_checkpoint_state(folder).step);
    return steps;
  }
  std::string log_of(const std::string& out) const { return read_file(path(out) + "/log.txt"); }
};

TEST_F(RunRecords, AProcessWritesWhatBoundsItsStepsAndHowItEnded) {
  run("a", {{"schedule.max_steps", "7"}});
  ASSERT_EQ(lines("a", "end").size(), 1u);
  EXPECT_EQ(lines("a", "end")[0]["state"], "finished");
  EXPECT_EQ(lines("a", "end")[0]["step"], 7);
  ASSERT_EQ(lines("a", "bottleneck").size(), 1u);
  EXPECT_THAT(log_of("a"), HasSubstr(lines("a", "bottleneck")[0]["text"].get<std::string>()));
}

TEST_F(RunRecords, ARunThatDivergesWritesThat) {
  EXPECT_ANY_THROW(run("a", {{"schedule.max_steps", "20"}, {"optimizer.learning_rate", "1e30"}}));
  ASSERT_EQ(lines("a", "end").size(), 1u);
  EXPECT_EQ(lines("a", "end")[0]["state"], "diverged");
}

TEST_F(RunRecords, StepsAreLoggedAtTheFirstTheLastAndEveryNth) {
  run("a", {{"schedule.epochs", "2"},
            {"run.log_every", "3"},
            {"schedule.type", "step"},
            {"schedule.every", "1"},
            {"schedule.factor", "0.5"}});
  EXPECT_THAT(steps_of("a", "train"), ElementsAre(1, 3, 6, 9, 10));
  for (const Json& line : lines("a", "train")) {
    const int64_t epoch = (line["step"].get<int64_t>() - 1) / 5;
    EXPECT_EQ(line["epoch"], epoch) << line;
    EXPECT_DOUBLE_EQ(line["lr"].get<double>(), 0.02 * std::pow(0.5, epoch)) << line;
    EXPECT_GE(line["top1"].get<double>(), 0);
    EXPECT_LE(line["top1"].get<double>(), 1);
    EXPECT_GE(line["data_wait_ms"].get<double>(), 0);
    EXPECT_FALSE(line.contains("corrupt_records"));
  }
}

TEST_F(RunRecords, AnEvaluationBelongsToTheEpochThatWasTrained) {
  run("a", {{"schedule.epochs", "3"}, {"schedule.max_steps", "12"}});
  std::vector<std::pair<int64_t, int64_t>> found;  // step, epoch
  for (const Json& line : lines("a", "eval")) {
    found.emplace_back(line["step"], line["epoch"]);
    EXPECT_EQ(line["images"], 50);
    EXPECT_LE(line["top1"].get<double>(), line["top5"].get<double>());
  }
  EXPECT_THAT(found, ElementsAre(std::pair(5, 0), std::pair(10, 1), std::pair(12, 2)));
  for (const char* told : {"epoch 1, step 5: test loss", "epoch 2, step 10: test loss", "epoch 3, step 12: test loss"})
    EXPECT_THAT(log_of("a"), HasSubstr(told));
}

// With a rate that changes nothing, the first evaluation is the best, and its checkpoint is kept.
TEST_F(RunRecords, EvaluationsAndCheckpointsComeWhenTheRecipeSays) {
  const struct {
    const char *evaluate, *evaluate_steps, *epochs, *steps, *keep;  // eval_every_ and checkpoint_every_epochs, _steps
    Steps evaluations, checkpoints;
  } cases[] = {
      {"1", "0", "1", "0", "100", {5, 10, 15, 20}, {5, 10, 15, 20}},
      {"2", "0", "0", "4", "100", {10, 20}, {4, 8, 10, 12, 16, 20}},
      {"0", "0", "3", "0", "100", {20}, {15, 20}},
      {"3", "0", "2", "7", "100", {15, 20}, {7, 10, 14, 15, 20}},
      {"1", "0", "1", "0", "2", {5, 10, 15, 20}, {5, 15, 20}},
      {"4", "0", "1", "0", "1", {20}, {20}},
      {"0", "7", "0", "0", "100", {7, 14, 20}, {7, 20}},
      {"2", "4", "0", "6", "100", {4, 8, 10, 12, 16, 20}, {4, 6, 12, 18, 20}},
      {"0", "100", "1", "0", "100", {20}, {5, 10, 15, 20}},
  };
  for (const auto& one : cases) {
    const std::string out = format("{} {} {} {} {}", one.evaluate, one.evaluate_steps, one.epochs, one.steps, one.keep);
    run(out, {{"schedule.epochs", "4"},
              {"optimizer.learning_rate", "1e-30"},
              {"run.eval_every_epochs", one.evaluate},
              {"run.eval_every_steps", one.evaluate_steps},
              {"run.checkpoint_every_epochs", one.epochs},
              {"run.checkpoint_every_steps", one.steps},
              {"run.keep_checkpoints", one.keep}});
    EXPECT_EQ(steps_of(out, "eval"), one.evaluations) << out;
    EXPECT_EQ(checkpoints_of(out), one.checkpoints) << out;
  }
}

TEST_F(RunRecords, AnEvaluationWithinAnEpochBelongsToIt) {
  run("a", {{"schedule.epochs", "2"}, {"run.eval_every_epochs", "0"}, {"run.eval_every_steps", "3"}});
  std::vector<std::pair<int64_t, int64_t>> found;  // step, epoch
  for (const Json& line : lines("a", "eval")) found.emplace_back(line["step"], line["epoch"]);
  EXPECT_THAT(found, ElementsAre(std::pair(3, 0), std::pair(6, 1), std::pair(9, 1), std::pair(10, 1)));
  EXPECT_THAT(log_of("a"), AllOf(HasSubstr("epoch 1, step 3: test loss"), HasSubstr("epoch 2, step 6: test loss")));
}

// Local SGD averages in the steps after which evaluations run.
TEST_F(RunRecords, EvaluationsByStepsSeeTheWeightsOfACheckpointUnderEveryStrategy) {
  for (const Overrides& parallel :
       {Overrides{{"parallel.workers", "1"}}, Overrides{{"parallel.strategy", "dp"}},
        Overrides{{"parallel.strategy", "dp-zero"}}, Overrides{{"parallel.strategy", "dp-star"}},
        Overrides{{"parallel.strategy", "ps"}}, Overrides{{"parallel.strategy", "ps"}, {"ps.delay", "2"}},
        Overrides{{"parallel.strategy", "owt-a"}}, Overrides{{"parallel.strategy", "owt-b"}},
        Overrides{{"parallel.strategy", "owt-c"}}, Overrides{{"parallel.strategy", "owt-d"}},
        Overrides{{"parallel.strategy", "mp"}}, Overrides{{"parallel.strategy", "mp-dense"}},
        Overrides{{"parallel.strategy", "pipeline"}},
        Overrides{{"parallel.strategy", "dp"}, {"parallel.average_every", "8"}},
        Overrides{{"parallel.strategy", "owt-c"}, {"parallel.average_every", "8"}}}) {
    const std::string out = parallel.front().second + (parallel.size() > 1 ? " apart" : "");
    SCOPED_TRACE(out);
    run(out, merged(merged({{"parallel.workers", "2"}}, parallel), {{"schedule.max_steps", "7"},
                                                                    {"run.eval_every_epochs", "0"},
                                                                    {"run.eval_every_steps", "3"},
                                                                    {"run.checkpoint_every_epochs", "0"},
                                                                    {"run.checkpoint_every_steps", "3"},
                                                                    {"run.keep_checkpoints", "100"}}));
    EXPECT_THAT(steps_of(out, "eval"), ElementsAre(3, 6, 7));
    for (const Json& line : lines(out, "eval")) {
      const std::string checkpoint = format("{}/checkpoints/step-{:08}", path(out), line["step"].get<int64_t>());
      const Evaluation again =
          evaluate_file(small_settings(kSmallRecipe), {checkpoint + "/weights.safetensors", "", 1});
      EXPECT_EQ(again.top1, line["top1"].get<double>());
      EXPECT_NEAR(again.loss, line["loss"].get<double>(), 1e-5);
    }
  }
}

// With a rate that changes nothing, the first evaluation stays the best.
TEST_F(RunRecords, EvaluationsThatAreNotBetterEndTheRunOnceThereIsNoPatience) {
  const Overrides changes{
      {"schedule.epochs", "4"},      {"optimizer.learning_rate", "1e-30"}, {"run.eval_every_epochs", "0"},
      {"run.eval_every_steps", "3"}, {"run.checkpoint_every_epochs", "0"}, {"run.patience", "2"}};
  for (const Overrides& parallel :
       {Overrides{{"parallel.workers", "1"}}, Overrides{{"parallel.workers", "3"}, {"parallel.strategy", "owt-c"}},
        Overrides{{"parallel.workers", "2"}, {"parallel.strategy", "dp"}, {"parallel.average_every", "8"}}}) {
    const std::string out = "workers " + parallel[0].second;
    const TrainOutcome outcome = run(out, merged(changes, parallel));
    EXPECT_TRUE(outcome.finished);
    EXPECT_EQ(outcome.evaluation.images, 50);
    EXPECT_THAT(steps_of(out, "eval"), ElementsAre(3, 6, 9));
    EXPECT_THAT(checkpoints_of(out), ElementsAre(3, 9));
    EXPECT_THAT(log_of(out), HasSubstr("ended after step 9 of 20: none of the last 2 evaluations was better than that "
                                       "of step 3 (run.patience)"));
    // The run has ended, and continues with more patience.
    EXPECT_TRUE(run(out, merged(changes, parallel), "auto").finished);
    EXPECT_THAT(steps_of(out, "eval"), ElementsAre(3, 6, 9));
    run(out, merged(merged(changes, parallel), {{"run.patience", "3"}}), "auto");
    EXPECT_THAT(steps_of(out, "eval"), ElementsAre(3, 6, 9, 12));
  }
}

// The evaluation after step 12 does not count, since the whole run has none there.
TEST_F(RunRecords, PatienceIsThatOfTheWholeRunAfterAResume) {
  const Overrides changes{{"schedule.epochs", "4"}, {"optimizer.learning_rate", "1e-30"}, {"run.patience", "2"}};
  run("a", merged(changes, {{"schedule.max_steps", "12"}}));
  run("a", changes, "auto");
  EXPECT_THAT(steps_of("a", "eval"), ElementsAre(5, 10, 12, 15));
}

// Steps count from the beginning of the run, not from the step where it resumed.
TEST_F(RunRecords, AResumedRunKeepsItsCadence) {
  const Overrides changes{{"schedule.epochs", "3"},
                          {"optimizer.learning_rate", "1e-30"},
                          {"run.log_every", "4"},
                          {"run.checkpoint_every_epochs", "0"},
                          {"run.checkpoint_every_steps", "4"},
                          {"run.keep_checkpoints", "100"}};
  run("a", merged(changes, {{"schedule.max_steps", "6"}}));
  EXPECT_THAT(checkpoints_of("a"), ElementsAre(4, 5, 6));  // by steps, the best, the last
  run("a", changes, "auto");
  EXPECT_THAT(checkpoints_of("a"), ElementsAre(4, 5, 6, 8, 12, 15));
  EXPECT_THAT(steps_of("a", "eval"), ElementsAre(5, 6, 10, 15));
  EXPECT_THAT(steps_of("a", "train"), ElementsAre(1, 4, 6, 8, 12, 15));
  EXPECT_THAT(log_of("a"), HasSubstr("at step 6 of 15"));
}

TEST_F(RunRecords, TheFirstLinesOfTheLogSayWhatRunsWhere) {
  const Overrides one_step{{"schedule.max_steps", "1"}};
  const Overrides four = merged(one_step, {{"parallel.workers", "4"},
                                           {"parallel.strategy", "owt-c"},
                                           {"parallel.dense_update", "round"},
                                           {"parallel.scale_lr", "linear"},
                                           {"parallel.wire", "bf16"}});
  run("one", one_step);
  run("four", four);
  const Settings settings = small_settings(kSmallRecipe, four);
  const Plan plan = settings.plan_to_run();
  EXPECT_THAT(log_of("one"),
              AllOf(HasSubstr("model small: 14 layers, "), HasSubstr("100 training and 50 test images"),
                    HasSubstr("1 worker x 1 thread; 24 images per step\n"), HasSubstr("learning rate 0.02; 1 step\n"),
                    Not(HasSubstr("sent as bf16")), Not(HasSubstr("raises the rate"))));
  EXPECT_THAT(
      log_of("four"),
      AllOf(HasSubstr("4 workers x 1 thread, strategy owt-c, dense update every round; 24 images per step, 6 per "
                      "worker"),
            HasSubstr(format("learning rate 0.02 x 4 (dense layers x 1), scale_lr = linear; 1 step; each worker "
                             "sends {:.2f} MB a step",
                             static_cast<double>(bytes_per_step(plan)) / 1e6)),
            HasSubstr("activations and gradients are sent as bf16"),
            HasSubstr("scale_lr = linear raises the rate with the workers, but data.batch keeps the step at 24")));
  EXPECT_DOUBLE_EQ(lines("four", "train").at(0)["lr"].get<double>(), 0.02 * 4) << "that of the data-parallel layers";
  int64_t weights = 0;
  for (const LayerPlan& layer : plan.layers) weights += layer.parameters;
  EXPECT_THAT(log_of("four"), HasSubstr(format("{:.2f} M parameters", static_cast<double>(weights) / 1e6)));
}

}  // namespace
}  // namespace owt::run_records_test
