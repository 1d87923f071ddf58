// Whole runs on every device, and runs resumed on another device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/comm/signals.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"
#include "tests/support/whole_runs.h"

namespace owt::trainer_on_devices_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

const Overrides kTwoEpochs{{"run.log_every", "1"}, {"schedule.epochs", "2"}};  // 10 steps

class TrainerOnDevices : public DeviceTest, protected WholeRuns {
 protected:
  Overrides here(const Overrides& changes) const { return on(device(), changes); }
  static Overrides on(Device device, const Overrides& changes) {
    return merged(changes, {{"run.device", name_of(device)}});
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, TrainerOnDevices, ::testing::ValuesIn(devices()), device_name);

TEST_P(TrainerOnDevices, LogsEveryStepOnceInOrderWithItsLoss) {
  const SmallRun steps = run_small(kSmallRecipe, 10, here({{"schedule.epochs", "2"}}));
  const TrainOutcome outcome = run("a", here(kTwoEpochs));
  EXPECT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.evaluation.images, 50);
  const std::vector<TrainLine> lines = train_lines(path("a"));
  ASSERT_EQ(lines.size(), 10u);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(lines[i].step, static_cast<int64_t>(i + 1));
    EXPECT_NEAR(lines[i].loss, steps.losses[i], 1e-5 * steps.losses[i]);
  }
  for (const char* file : {"config.toml", "log.txt", "timing.csv", "checkpoints/latest"})
    EXPECT_TRUE(fs::exists(path("a") + "/" + file)) << file;
}

TEST_P(TrainerOnDevices, WritesCheckpointsOfTheRightSteps) {
  run("a", here(merged(kTwoEpochs, {{"run.checkpoint_every_steps", "3"},
                                    {"run.keep_checkpoints", "100"},
                                    {"run.eval_every_epochs", "0"}})));
  std::vector<std::string> names;
  for (const std::string& folder : list_checkpoints(path("a"))) names.push_back(fs::path(folder).filename().string());
  EXPECT_THAT(names, ::testing::ElementsAre("step-00000003", "step-00000005", "step-00000006", "step-00000009",
                                            "step-00000010"));
  // What is in them: the weights after that many steps.
  run("b", here(merged(kTwoEpochs, {{"schedule.max_steps", "6"}})));
  EXPECT_EQ(read_file(path("a") + "/checkpoints/step-00000006/weights.safetensors"), read_file(weights_of("b")));
}

TEST_P(TrainerOnDevices, TimesEveryLayerAndTheRowsAddUp) {
  for (const char* workers : {"1", "2"}) {
    const Settings settings = small_settings(kSmallRecipe, here({{"parallel.workers", workers}}));
    const TimeOutcome timed = time_steps(settings, {.steps = 4, .threads = 1, .trace = path("trace.json")});
    const TimingReport& report = timed.report;
    EXPECT_EQ(report.steps, 4);
    double sum = 0;
    for (size_t i = 0; i + 1 < report.rows.size(); ++i) sum += report.rows[i].ms;
    EXPECT_NEAR(sum, report.step().ms, 1e-6 * report.step().ms);
    for (const TimingRow& row : report.rows)
      if (row.kind == TimingRow::Kind::kLayer && row.type == "conv") {
        EXPECT_GT(row.forward_ms, 0) << row.name;
        EXPECT_GT(row.backward_ms, 0) << row.name;
      }
    EXPECT_THAT(timed.trace, AllOf(HasSubstr("traceEvents"), HasSubstr("conv1")));
  }
}

TEST_P(TrainerOnDevices, TimesAnEvaluationWithoutBackwardAndUpdate) {
  const Settings settings = small_settings(kSmallRecipe, here({{"parallel.workers", "2"}}));
  const TimingReport report = time_steps(settings, {.steps = 4, .threads = 1, .evaluation = true}).report;
  EXPECT_GT(report.images_per_second(), 0);
  for (const TimingRow& row : report.rows) {
    if (row.type == "conv") {
      EXPECT_GT(row.forward_ms, 0) << row.name;
    }
    EXPECT_EQ(row.backward_ms + row.update_ms, 0) << row.name;
    EXPECT_NE(row.name, "gradients");
  }
}

// The properties in trainer_test.cpp on a GPU, and properties that involve two devices.
class TrainerOnGpu : public TrainerOnDevices {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TrainerOnGpu);
INSTANTIATE_TEST_SUITE_P(Gpus, TrainerOnGpu, ::testing::ValuesIn(gpu_devices()), device_name);

TEST_P(TrainerOnGpu, ARunStoppedAfterAnyStepResumesBitForBit) {
  for (const Overrides& parallel : {Overrides{}, Overrides{{"parallel.workers", "3"}, {"parallel.strategy", "owt-c"}},
                                    Overrides{{"parallel.workers", "3"}, {"parallel.strategy", "dp-zero"}}}) {
    const Overrides changes = here(merged(kTwoEpochs, parallel));
    const std::string tag = parallel.empty() ? "" : parallel.back().second;
    run("whole" + tag, changes);
    for (const char* stop : {"2", "5", "8"}) {
      if (tag != "" && stop != std::string("8")) continue;  // ResumedRun has the others, on the CPU
      const std::string out = "part" + tag + stop;
      run(out, merged(changes, {{"schedule.max_steps", stop}}));
      run(out, changes, "auto");
      EXPECT_EQ(read_file(weights_of(out)), read_file(weights_of("whole" + tag))) << "stopped after step " << stop;
      EXPECT_EQ(read_file(optimizer_of(out)), read_file(optimizer_of("whole" + tag))) << "stopped after step " << stop;
      EXPECT_EQ(losses(path(out)), losses(path("whole" + tag)));
    }
  }
}

TEST_P(TrainerOnGpu, AStopSignalWritesACheckpointAndTheRunResumes) {
  for (const char* workers : {"1", "2"}) {
    const Overrides changes = here(merged(kTwoEpochs, {{"parallel.workers", workers}}));
    const std::string out = std::string("a") + workers;
    request_stop(true);
    const TrainOutcome stopped = run(out, changes);
    request_stop(false);
    EXPECT_FALSE(stopped.finished);
    // The steps that were under way when the first one's result came are finished.
    EXPECT_EQ(load_checkpoint_state(*newest_checkpoint(path(out))).step, 3);
    EXPECT_TRUE(run(out, changes, "auto").finished);
    EXPECT_EQ(train_lines(path(out)).size(), 10u);
    run("whole" + out, changes);
    EXPECT_EQ(read_file(weights_of(out)), read_file(weights_of("whole" + out)));
  }
}

TEST_P(TrainerOnGpu, ANotFiniteLossEndsTheRunAndKeepsTheLastCheckpoint) {
  for (const char* workers : {"1", "2"}) {
    const Overrides changes = here(merged(kTwoEpochs, {{"parallel.workers", workers}}));
    const std::string out = std::string("a") + workers;
    run(out, merged(changes, {{"schedule.max_steps", "5"}}));
    const std::string good = read_file(weights_of(out));
    EXPECT_THAT(message_of([&] {
                  run(out, merged(changes, {{"optimizer.learning_rate", "1e20"}}), "auto");
                }),
                AllOf(HasSubstr("step "), HasSubstr("; the last checkpoint is kept (step 5)")));
    EXPECT_EQ(read_file(weights_of(out)), good);
  }
}

TEST_P(TrainerOnGpu, EvaluatingTheWeightsGivesTheAccuracyOfTheRun) {
  const TrainOutcome outcome = run("a", here(kTwoEpochs));
  for (const char* strategy : {"dp", "dp-zero", "dp-star", "owt-b", "mp"}) {
    const Overrides on_two = here({{"parallel.workers", "2"}, {"parallel.strategy", strategy}});
    const Evaluation again = evaluate_file(small_settings(kSmallRecipe, on_two), {weights_of("a"), "", 1});
    EXPECT_EQ(again.images, 50);
    EXPECT_EQ(again.top1, outcome.evaluation.top1);
    EXPECT_EQ(again.top5, outcome.evaluation.top5);
    EXPECT_NEAR(again.loss, outcome.evaluation.loss, 1e-5);
  }
}

TEST_P(TrainerOnGpu, ARunResumesOnAnotherDeviceAndComesBack) {
  run("whole", on(Device::kCpu, kTwoEpochs));
  const auto expected = losses(path("whole"));
  const auto until = [&](const char* step) { return merged(kTwoEpochs, {{"schedule.max_steps", step}}); };
  run("part", on(Device::kCpu, until("3")));
  run("part", on(device(), until("7")), "auto");
  run("part", on(Device::kCpu, kTwoEpochs), "auto");
  const auto found = losses(path("part"));
  ASSERT_EQ(found.size(), 10u);
  for (const auto& [step, loss] : found) EXPECT_NEAR(loss, expected.at(step), 1e-4 * loss) << step;
}

TEST_P(TrainerOnGpu, WeightsAndTheirAccuracyAreTheSameOnBoth) {
  const TrainOutcome outcome = run("a", on(device(), kTwoEpochs));
  const Evaluation again = evaluate_file(small_settings(kSmallRecipe, on(Device::kCpu, {})), {weights_of("a"), "", 1});
  EXPECT_EQ(again.top1, outcome.evaluation.top1);
  EXPECT_NEAR(again.loss, outcome.evaluation.loss, 1e-5);
}

TEST_P(TrainerOnGpu, Bf16ResumesBitForBitToo) {
  const Overrides bf16 = here(merged(kTwoEpochs, {{"run.precision", "bf16"}}));
  run("whole", bf16);
  run("part", merged(bf16, {{"schedule.max_steps", "7"}}));
  run("part", bf16, "auto");
  EXPECT_EQ(read_file(weights_of("part")), read_file(weights_of("whole")));
}

TEST_P(TrainerOnGpu, WithoutGraphsTheRunIsTheSame) {
  run("a", here(kTwoEpochs));
  run("b", here(merged(kTwoEpochs, {{"run.cuda_graph", "false"}})));
  EXPECT_EQ(read_file(weights_of("a")), read_file(weights_of("b")));
  EXPECT_EQ(losses(path("a")), losses(path("b")));
}

TEST(DeviceSettings, APrecisionTheCpuDoesNotKnowIsAnErrorWithTheCure) {
  const Settings settings = small_settings(kSmallRecipe, {{"run.precision", "tf32"}});
  EXPECT_THAT(message_of([&] { settings.compute(); }), AllOf(HasSubstr("'tf32'"), HasSubstr("--precision fp32")));
  EXPECT_EQ(settings.plan_request().on.precision, Precision::kTf32);  // a plan to look at may have it
}

}  // namespace
}  // namespace owt::trainer_on_devices_test
