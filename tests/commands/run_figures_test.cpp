// Figures that a run reports: progress, the table of times, state.json, unused tensors of a weights file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "src/files/safetensors.h"
#include "src/system/log.h"
#include "tests/support/whole_runs.h"

namespace owt::run_figures_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using Json = nlohmann::json;

// 100 training images in steps of 24: five to an epoch.
class RunFigures : public ::testing::Test, protected WholeRuns {
 protected:
  std::vector<Json> train_records(const std::string& out) const {
    std::vector<Json> all;
    for (const std::string& line : text_lines(path(out) + "/metrics.jsonl"))
      if (const Json one = Json::parse(line); one["kind"] == "train") all.push_back(one);
    return all;
  }
};

// The lines of progress that a file shows: at the end of each epoch and of the run.
TEST_F(RunFigures, ProgressSaysAtTheEndOfAnEpochWhatMetricsSay) {
  testing::internal::CaptureStderr();
  run("a", {{"run.log_every", "1"},
            {"schedule.epochs", "5"},
            {"schedule.max_steps", "12"},
            {"schedule.type", "step"},
            {"schedule.every", "1"},
            {"schedule.factor", "0.5"}});
  std::vector<std::string> shown;
  for (const std::string& line : split_lines(testing::internal::GetCapturedStderr()))
    if (line.starts_with("epoch ") && line.find("  left ") != std::string::npos) shown.push_back(line);
  const std::vector<Json> records = train_records("a");
  ASSERT_EQ(records.size(), 12u);
  // A slow run may show other steps too.
  for (const int64_t step : {5, 10, 12}) {
    const Json& record = records[static_cast<size_t>(step - 1)];
    const std::string begin =
        format("epoch {}/3  step {}/12  {:.1f} %  ", (step - 1) / 5 + 1, step, 100 * static_cast<double>(step) / 12);
    EXPECT_THAT(shown, ::testing::Contains(
                           AllOf(StartsWith(begin),
                                 HasSubstr(format("images/s  loss {:.4f}  top-1 {:.1f} %  left ",
                                                  record["loss"].get<double>(), 100 * record["top1"].get<double>())),
                                 ::testing::EndsWith(format("  lr {:.3g}", record["lr"].get<double>())))));
  }
}

TEST_F(RunFigures, AResumedRunsProgressContinuesWhereItWas) {
  const Overrides two_epochs{{"schedule.epochs", "2"}};
  run("a", merged(two_epochs, {{"schedule.max_steps", "7"}}));
  testing::internal::CaptureStderr();
  run("a", two_epochs, "auto");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("epoch 2/2  step 10/10  100.0 %"));
}

TEST_F(RunFigures, TheTimingTableIsShownWhereItIsAskedForAndItsFileIsAlwaysThere) {
  for (const bool timing : {false, true}) {
    TrainOptions options;
    options.out = path(timing ? "with" : "without");
    options.threads = 1;
    options.timing = timing;
    testing::internal::CaptureStdout();
    train(small_settings(kSmallRecipe, {{"schedule.max_steps", "3"}}), options);
    const std::string shown = testing::internal::GetCapturedStdout();
    EXPECT_THAT(read_file(options.out + "/timing.csv"), HasSubstr("\nlayer,conv1,conv,"));
    if (timing)
      EXPECT_THAT(shown, AllOf(StartsWith("Worker 0 of 1, medians over "), HasSubstr(" steps of 24 images\n")));
    else
      EXPECT_EQ(shown, "");
  }
}

TEST_F(RunFigures, StateSaysWhereTheRunIsAndHowItWasMade) {
  run("a", {{"schedule.epochs", "2"},
            {"schedule.max_steps", "7"},
            {"run.seed", "12"},
            {"parallel.workers", "2"},
            {"parallel.strategy", "owt-c"}});
  const std::string folder = *newest_checkpoint(path("a"));
  const RunState state = load_checkpoint_state(folder);
  EXPECT_EQ(state.step, 7);
  EXPECT_EQ(state.epoch, 1);
  EXPECT_EQ(state.images_in_epoch, 48);
  EXPECT_EQ(state.step_rows, 24);
  EXPECT_EQ(state.images, 100);
  EXPECT_EQ(state.evaluated_step, 7);
  EXPECT_EQ(state.seed, 12u);
  EXPECT_EQ(state.workers, 2);
  EXPECT_EQ(state.strategy, "owt-c");
  EXPECT_EQ(state.checksums.size(), 2u);
  for (const auto& [file, checksum] : state.checksums) EXPECT_EQ(file_checksum(folder + "/" + file), checksum) << file;
  // The best is the first of the highest accuracies there were.
  double best = -1;
  int64_t best_step = -1;
  for (const std::string& line : text_lines(path("a") + "/metrics.jsonl"))
    if (const Json one = Json::parse(line); one["kind"] == "eval" && one["top1"] > best)
      best = one["top1"], best_step = one["step"];
  EXPECT_EQ(state.best_step, best_step);
  EXPECT_NEAR(state.best_top1, best, 1e-6);
}

TEST_F(RunFigures, TensorsThatTheModelDoesNotHaveAreNamed) {
  run("a", {{"schedule.max_steps", "1"}});
  SafetensorsReader from(weights_of("a"));
  const auto write = [&](const std::string& name, const std::vector<std::string>& strange) {
    std::vector<SafetensorsWriter::NamedShape> entries;
    for (const auto& entry : from.entries()) entries.push_back({entry.name, entry.shape});
    for (const std::string& one : strange) entries.push_back({one, {2}});
    SafetensorsWriter file(path(name), entries);
    for (const auto& entry : from.entries()) {
      const Tensor values = from.read(entry.name);
      file.write(entry.name, std::vector<float>(values.data(), values.data() + values.elements()));
    }
    for (const std::string& one : strange) file.write(one, std::vector<float>{1, 2});
    file.finish();
    return path(name);
  };
  const auto told = [&](const std::string& weights) {
    testing::internal::CaptureStderr();
    evaluate_file(small_settings(kSmallRecipe), {weights, "", 1});
    const std::string by_evaluation = testing::internal::GetCapturedStderr();
    testing::internal::CaptureStderr();
    run(std::filesystem::path(weights).filename().string() + " trained", {{"schedule.max_steps", "1"}}, "", weights);
    EXPECT_EQ(testing::internal::GetCapturedStderr().find("stranger") != std::string::npos,
              by_evaluation.find("stranger") != std::string::npos);
    return by_evaluation;
  };
  EXPECT_THAT(told(write("same", {})), Not(HasSubstr("stranger")));
  EXPECT_THAT(told(write("more", {"stranger.one", "stranger.two"})),
              AllOf(HasSubstr("stranger.one"), HasSubstr(path("more"))));
}

}  // namespace
}  // namespace owt::run_figures_test
