#include "src/train/teacher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "src/comm/threads.h"
#include "src/plan/plan_rows.h"
#include "src/train/inference.h"
#include "src/train/made_up_batch.h"
#include "src/train/worker.h"
#include "tests/support/check_layer.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"
#include "tests/support/whole_runs.h"

namespace owt::teacher_test {
namespace {

using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;

class TeacherTest : public DeviceTest, protected WholeRuns {
 protected:
  // The folder of a teacher that has learned a little.
  std::string teacher(const Overrides& changes = {}) {
    return run("teacher", merged(here({{"optimizer.learning_rate", "0.05"}}), changes)).run_folder;
  }
  Overrides here(const Overrides& more = {}) const {
    return merged({{"run.device", name_of(device())}, {"run.log_every", "1"}, {"schedule.max_steps", "6"}}, more);
  }
  Overrides taught_by(const std::string& run, const Overrides& more = {}) const {
    return merged(here({{"loss.distill.run", run}}), more);
  }
  std::map<int64_t, double> losses_with(const std::string& out, const Overrides& changes) {
    return losses(run(out, changes).run_folder);
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, TeacherTest, testing::ValuesIn(devices()), device_name);

Overrides on(const char* strategy, const char* workers, const Overrides& more = {}) {
  return merged({{"parallel.strategy", strategy}, {"parallel.workers", workers}}, more);
}

constexpr const char* kHint = "{ teacher_layer = 'pool1', layer = 'pool1', weight = 3 }";

std::vector<Overrides> many_ranks(Device device) {
  std::vector<Overrides> all = {on("dp", "3"),
                                on("dp-zero", "3"),
                                on("dp-star", "2"),
                                on("owt-a", "2"),
                                on("owt-a", "3", {{"parallel.shares", "[2, 1, 1]"}}),
                                on("dp", "3", {{"parallel.shares", "[6, 6, 2]"}}),
                                on("owt-b", "3"),
                                on("owt-c", "4", {{"parallel.model_ranks", "2"}}),
                                on("owt-d", "2", {{"data.accumulate", "2"}}),
                                on("mp", "2"),
                                on("mp-dense", "2"),
                                on("pipeline", "2")};
  if (device == Device::kCuda) return all;
  all.push_back(on("ps", "2"));
  all.push_back(on("ps", "3", {{"ps.servers", "1"}}));
  return all;
}

TEST_P(TeacherTest, EveryStrategyFollowsOneWorker) {
  const std::string its = teacher();
  int runs = 0;
  for (const char* type : {"softmax", "logistic"}) {
    const Overrides all = taught_by(its, {{"loss.type", type}});
    const auto wanted = losses_with(concat("one-", type), all);
    for (const Overrides& ranks : many_ranks(device())) {
      const auto found = losses_with(concat(type, ++runs), merged(all, ranks));
      ASSERT_EQ(found.size(), wanted.size());
      for (const auto& [step, loss] : wanted)
        EXPECT_NEAR(found.at(step), loss, 1e-4 * loss) << type << " " << ranks[0].second << " step " << step;
    }
  }
}

TEST_P(TeacherTest, TargetsOfARowAreTheProbabilitiesOfItsImage) {
  const std::string its = teacher();
  for (const Overrides& changes : many_ranks(device())) {
    const bool hints = changes[0].second != "pipeline";
    Settings settings = small_settings(
        kSmallRecipe, merged(taught_by(its, hints ? Overrides{{"loss.distill.hint", kHint}} : Overrides()), changes));
    SCOPED_TRACE(name_of(settings.parallel.strategy));
    open_teacher(settings);
    const Plan plan = settings.plan_to_run();
    Inference alone(for_one_rank(*settings.distill.teacher), settings.distill.weights),
        to_pool1(for_one_rank(*settings.distill.teacher), settings.distill.weights, "pool1");
    std::mutex one_at_a_time;
    run_ranks(
        plan.ranks(), 1,
        [&](Communicator& comm) {
          Teacher teacher(settings, plan, comm);
          const Stream stream(device());
          for (const int64_t step_rows : {plan.request.step_rows, plan.request.step_rows - 3}) {
            PlanRequest request = plan.request;
            request.step_rows = step_rows;
            request.loss.targets = {};
            const Batch batch = made_up_batch(settings.model, rows_of(plan, step_rows).of(comm.rank()), request);
            const Batch& its_batch = teacher.teach(batch, Mode::kTrain, stream);
            const Tensor taught = its_batch.labels, hint = its_batch.hint;
            stream.synchronize();
            const Tensor with = taught.to(Device::kCpu), without = batch.labels.to(Device::kCpu);
            const std::lock_guard lock(one_at_a_time);
            const int64_t rows = batch.images.shape().rows(), classes = settings.model.classes;
            if (rows == 0) continue;
            if (hints) {
              EXPECT_THAT(download(hint), Pointwise(FloatNear(1e-5f), download(to_pool1.run(batch.images))));
            }
            const Tensor logits = alone.run(batch.images);
            const LabelRows layout = settings.loss.label_rows();
            for (int64_t row = 0; row < rows; ++row) {
              EXPECT_EQ(layout.label(with.data<int32_t>(), row).first, without.data<int32_t>()[row]);
              const int32_t* targets = layout.targets_of(with.data<int32_t>(), row);
              double sum = 0;
              const auto exponential = [&](int64_t c) {
                return std::exp(double{logits.data()[row * classes + c]} / settings.loss.targets.temperature);
              };
              for (int64_t c = 0; c < classes; ++c) sum += exponential(c);
              for (int64_t c = 0; c < classes; ++c)
                EXPECT_NEAR(double{target_of(targets[c])}, exponential(c) / sum, 1e-5) << row << " " << c;
            }
          }
        },
        device());
  }
}

TEST_P(TeacherTest, AWeightOf0LeavesTheLossOfTheLabel) {
  const std::string its = teacher();
  const auto with_weight = [&](const char* weight) {
    return run(concat("weight-", weight), taught_by(its, {{"loss.distill.weight", weight}}));
  };
  const auto without = losses_with("alone", here());
  EXPECT_EQ(losses(with_weight("0").run_folder), without);
  EXPECT_NE(losses(with_weight("0.5").run_folder), without);
}

TEST_P(TeacherTest, EvaluationComparesWithTheLabelsOnly) {
  const TrainOutcome trained = run("student", taught_by(teacher()));
  EvalOptions options;
  options.weights = weights_of("student");
  options.run_folder = trained.run_folder;
  options.threads = 1;
  const Evaluation again = evaluate_file(small_settings(kSmallRecipe, taught_by(path("gone"))), options);
  EXPECT_EQ(again.loss, trained.evaluation.loss) << "and the teacher is not needed";
  EXPECT_EQ(again.top1, trained.evaluation.top1);
}

TEST_P(TeacherTest, ARunResumesBitForBit) {
  const Overrides all = taught_by(teacher(), on("owt-a", "2"));
  run("whole", all);
  run("part", merged(all, {{"schedule.max_steps", "3"}}));
  run("part", all, "auto");
  EXPECT_EQ(read_file(weights_of("part")), read_file(weights_of("whole")));
}

TEST_P(TeacherTest, MixedImagesAndBf16HaveTargetsToo) {
  const std::string its = teacher();
  for (const Overrides& more : {Overrides{{"data.augment.mixup", "0.4"}}, Overrides{{"run.precision", "bf16"}}}) {
    const Overrides all = taught_by(its, more);
    const auto wanted = losses_with("one" + more[0].first, all);
    const auto found = losses_with("two" + more[0].first, merged(all, on("owt-c", "2")));
    ASSERT_EQ(found.size(), wanted.size());
    for (const auto& [step, loss] : wanted) EXPECT_NEAR(found.at(step), loss, 0.01 * loss) << more[0].first << step;
  }
}

TEST_P(TeacherTest, EveryStrategyWithoutStagesFollowsOneWorkerWithAHint) {
  const std::string its = teacher();
  const Overrides all = taught_by(its, {{"loss.distill.hint", kHint}});
  const auto wanted = losses_with("one", all);
  int runs = 0;
  for (const Overrides& ranks : many_ranks(device())) {
    const std::string& strategy = ranks[0].second;
    if (strategy == "pipeline") continue;
    const auto found = losses_with(concat("run", ++runs), merged(all, ranks));
    ASSERT_EQ(found.size(), wanted.size());
    for (const auto& [step, loss] : wanted) EXPECT_NEAR(found.at(step), loss, 1e-4 * loss) << strategy << " " << step;
  }
}

TEST_P(TeacherTest, AHintChangesWhatIsLearnt) {
  const std::string its = teacher();
  const auto with = losses_with("with", taught_by(its, {{"loss.distill.hint", kHint}}));
  const auto without = losses_with("without", taught_by(its));
  EXPECT_EQ(with.at(1), without.at(1)) << "the loss in the log is without it";
  EXPECT_NE(with.at(6), without.at(6));
}

TEST_P(TeacherTest, AStudentWithAHintMayStartFromWeightsWithoutOne) {
  const std::string its = teacher();
  run("started", taught_by(its, {{"loss.distill.hint", kHint}}), "", weights_of("teacher"));
  EXPECT_TRUE(std::filesystem::exists(weights_of("started")));
}

// A checkpoint that is better later does not change the teacher of a run.
TEST_P(TeacherTest, ARunKeepsTheCheckpointOfItsTeacher) {
  const std::string its = teacher();
  const std::string first = *best_checkpoint(its);
  run("student", taught_by(its));
  const Config recipe = Config::file(path("student/config.toml"));
  EXPECT_EQ(Config(recipe).table("loss").table("distill").string("checkpoint"),
            std::filesystem::absolute(first).string());
  EXPECT_THAT(message_of([&] {
                run("other", taught_by(its, {{"loss.distill.checkpoint", path("none")}}));
              }),
              HasSubstr("none is no checkpoint folder; name another one of"));
  EXPECT_THAT(message_of([&] {
                run("other", taught_by(its, {{"loss.distill.checkpoint", *best_checkpoint(path("student"))}}));
              }),
              HasSubstr("is of the run " + std::filesystem::absolute(path("student")).string()));
}

// The recipe itself names no checkpoint, and another one is the best.
TEST_P(TeacherTest, AResumedRunKeepsTheCheckpointOfItsTeacher) {
  const std::string its = teacher(), other = its + "/checkpoints/step-00000001";
  std::filesystem::copy(*best_checkpoint(its), other, std::filesystem::copy_options::recursive);
  run("student", taught_by(its, {{"loss.distill.checkpoint", other}, {"schedule.max_steps", "3"}}));
  run("student", taught_by(its), "auto");
  EXPECT_EQ(Config::file(path("student/config.toml")).table("loss").table("distill").string("checkpoint"),
            std::filesystem::absolute(other).string());
}

TEST_P(TeacherTest, ATeacherHasNoGradients) {
  Settings settings = small_settings(kSmallRecipe, taught_by(teacher()));
  open_teacher(settings);
  for (const auto& layer : whole_layers(settings.distill.teacher->model))
    for (const Param* param : layer->params()) EXPECT_EQ(param->role, ParamRole::kFrozen) << param->name;
}

// mp could split all layers of these networks.
TEST_P(TeacherTest, UnderMpEveryRankHasTheWholeTeacherOfAHint) {
  std::string recipe = kSmallRecipe;
  recipe.erase(recipe.find("groups = 2\n"), 11);
  const auto trained = [&](const std::string& out, const Overrides& changes) {
    TrainOptions options;
    options.out = path(out);
    options.threads = 1;
    return losses(train(small_settings(recipe, merged(here(), changes)), options).run_folder);
  };
  trained("teacher", {});
  const Overrides all{{"loss.distill.run", path("teacher")}, {"loss.distill.hint", kHint}};
  const auto wanted = trained("one", all), found = trained("two", merged(all, on("mp", "2")));
  ASSERT_EQ(found.size(), wanted.size());
  for (const auto& [step, loss] : wanted) EXPECT_NEAR(found.at(step), loss, 1e-4 * loss) << step;
}

// Each rank alone computes its own rows.
TEST_P(TeacherTest, ItsMemoryIsThatOfTheRowsOfARank) {
  const auto bytes = [&](const Overrides& changes) {
    Settings settings = small_settings(kSmallRecipe, merged(taught_by(path("teacher")), changes));
    open_teacher(settings);
    return static_cast<double>(teacher_bytes(settings, make_plan(settings.model, settings.plan_request()), 0));
  };
  teacher();
  const Overrides large{{"data.batch", "4096"}};
  EXPECT_NEAR(bytes(merged(large, on("dp", "4"))), bytes(large) / 4, bytes(large) / 20);
  EXPECT_EQ(teacher_bytes(small_settings(kSmallRecipe), Plan(), 0), 0);
}

TEST_P(TeacherTest, AHintIsForTrainingOnly) {
  const Overrides all = taught_by(teacher(), merged(on("owt-a", "2"), {{"loss.distill.hint", kHint}}));
  const TrainOutcome trained = run("whole", all);
  run("part", merged(all, {{"schedule.max_steps", "3"}}));
  run("part", all, "auto");
  EXPECT_EQ(read_file(weights_of("part")), read_file(weights_of("whole")));
  EvalOptions options;
  options.weights = weights_of("whole");
  options.run_folder = trained.run_folder;
  options.threads = 1;
  testing::internal::CaptureStderr();
  EXPECT_NEAR(evaluate_file(small_settings(kSmallRecipe, here()), options).loss, trained.evaluation.loss, 1e-6);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::Not(HasSubstr("hint")));
}

TEST_P(TeacherTest, MuonDoesNotTakeTheProjectionOfAHintAsAMatrix) {
  const Overrides muon = merged(with_optimizer("muon_unit"), {{"loss.distill.hint", kHint}});
  Settings settings = small_settings(kSmallRecipe, taught_by(teacher(), muon));
  open_teacher(settings);
  std::map<std::string, bool> is_matrix;
  for (const auto& layer : whole_layers(settings.model))
    for (const Param* param : layer->params()) is_matrix[param->name] = param->is_matrix;
  EXPECT_FALSE(is_matrix.at("hint.project.weight"));
  EXPECT_TRUE(is_matrix.at("conv2.weight"));
}

TEST_P(TeacherTest, AHintThatDoesNotFitIsNamed) {
  const std::string its = teacher();
  const auto said = [&](const char* theirs, const char* mine, const Overrides& more = {}) {
    const std::string hint = concat("{ teacher_layer = '", theirs, "', layer = '", mine, "' }");
    return message_of([&] { run("refused", taught_by(its, merged({{"loss.distill.hint", hint}}, more))); });
  };
  EXPECT_THAT(said("conv3", "conv2"), HasSubstr("has no layer 'conv3'; did you mean 'conv"));
  EXPECT_THAT(said("conv2", "conf2"), HasSubstr("has no layer 'conf2'; did you mean 'conv2'?"));
  EXPECT_THAT(said("conv1", "conv2"), HasSubstr("name layers whose images have the same height and width"));
  EXPECT_THAT(said("fc1", "fc1"), HasSubstr("name layers whose images have the same height and width"));
  EXPECT_THAT(message_of([&] {
                time_steps(small_settings(kSmallRecipe,
                                          taught_by(its, merged({{"loss.distill.hint", kHint}}, on("pipeline", "2")))),
                           {.steps = 1, .threads = 1});
              }),
              HasSubstr("under strategy pipeline workers share the rows"));
  EXPECT_THAT(said("conv2", "conv2", on("pipeline", "2")),
              HasSubstr("under strategy pipeline workers share the rows of layer 'conv2' of the model"));
}

TEST_P(TeacherTest, TheTimeOfTheTeacherIsInTheTableOfTheStep) {
  const Settings settings = small_settings(kSmallRecipe, taught_by(teacher(), on("owt-a", "2")));
  EXPECT_THAT(time_steps(settings, {.steps = 2, .threads = 1}).report.table(), HasSubstr("teacher"));
}

TEST_P(TeacherTest, WhatDoesNotFitIsNamed) {
  const std::string its = teacher();
  const auto said = [&](const std::string& run_folder, const Overrides& more = {}) {
    return message_of([&] { run("refused", taught_by(run_folder, more)); });
  };
  EXPECT_THAT(said(path("gone")), HasSubstr("is no run folder; it has no config.toml"));
  std::filesystem::create_directory(path("begun"));
  std::filesystem::copy(its + "/config.toml", path("begun/config.toml"));
  EXPECT_THAT(said(path("begun")), HasSubstr("has no checkpoint yet; train the teacher first"));
  EXPECT_THAT(said(its, {{"data.augment.crop", "10"}, {"model.input", "[3, 10, 10]"}}),
              HasSubstr("both see the same images"));
  EXPECT_THAT(said(its, {{"data.augment.mean", "none"}, {"data.augment.scale", "0.5"}}),
              HasSubstr("give data.augment the teacher's mean, std and scale"));
  EXPECT_THAT(said(its, {{"loss.sample", "0.5"}}), HasSubstr("'sample' leaves some out"));
  EXPECT_THAT(said(its, {{"loss.distill.temperature", "0"}}), HasSubstr("temperature"));
  EXPECT_THAT(said(its, {{"run.canonical", "true"}}), HasSubstr("leave loss.distill out"));
  EXPECT_FALSE(std::filesystem::exists(path("refused"))) << "a refused run leaves nothing behind";
}

}  // namespace
}  // namespace owt::teacher_test
