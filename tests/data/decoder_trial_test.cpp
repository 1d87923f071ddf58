#include "data/decoder_trial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace owt::decoder_trial_test {
namespace {

// The trial after steps whose images either decoder finishes in so many seconds. In the first steps of a block they
// come from the previous one's decoder, and an evaluation interrupts a block of each.
void run_trial(DecoderTrial& trial, double cpu_s, double gpu_s) {
  double now = 5;
  for (int64_t step = 0; step <= DecoderTrial::kSteps; ++step) {
    EXPECT_FALSE(trial.awaits_choice());
    trial.begin_step(now);
    const bool on_gpu = trial.on_gpu(std::max<int64_t>(0, step - DecoderTrial::kUntimed + 1));
    now += (on_gpu ? gpu_s : cpu_s) + (step == 35 || step == 55 ? 100 : 0);
  }
}

TEST(DecoderTrial, KeepsTheDecoderWithTheShorterSteps) {
  DecoderTrial cpu(""), gpu("");
  run_trial(cpu, 1, 1.25);
  run_trial(gpu, 1, 0.75);
  EXPECT_TRUE(cpu.awaits_choice());
  EXPECT_EQ(cpu.faster(), Decoder::kCpu);
  EXPECT_EQ(gpu.faster(), Decoder::kGpu);
  EXPECT_DOUBLE_EQ(gpu.step_s(Decoder::kCpu), 1);
  EXPECT_DOUBLE_EQ(gpu.step_s(Decoder::kGpu), 0.75);
  gpu.choose(Decoder::kGpu);
  EXPECT_FALSE(gpu.awaits_choice());
}

TEST(DecoderTrial, OfEqualSpeedKeepsTheCpu) {
  DecoderTrial trial("");
  run_trial(trial, 1, 1);
  EXPECT_EQ(trial.faster(), Decoder::kCpu);
}

// Loader threads make batches before their step, and all ranks must agree on the decoder of a step.
TEST(DecoderTrial, TheChoiceChangesNoBatchThatMayBeUnderWay) {
  const auto plan = [](const DecoderTrial& trial) {
    std::string steps;
    for (int64_t step = 0; step < 140; ++step) steps += trial.on_gpu(step) ? 'g' : '-';
    return steps;
  };
  DecoderTrial trial("");
  const std::string blocks = std::string(40, '-') + std::string(20, 'g') + std::string(20, '-') + std::string(20, 'g');
  EXPECT_EQ(plan(trial), blocks + std::string(40, '-'));
  trial.choose(Decoder::kGpu);
  EXPECT_EQ(plan(trial), blocks + std::string(16, '-') + std::string(24, 'g'));
}

TEST(DecoderTrial, WithoutAGpuThatDecodesTheCpuDecodesEveryStep) {
  DecoderTrial trial("no nvJPEG");
  EXPECT_EQ(trial.why_not(), "no nvJPEG");
  trial.choose(Decoder::kCpu);
  for (int64_t step = 0; step < 140; ++step) EXPECT_FALSE(trial.on_gpu(step));
  run_trial(trial, 1, 0.5);
  EXPECT_FALSE(trial.awaits_choice());
}

}  // namespace
}  // namespace owt::decoder_trial_test
