// Whole runs whose photographs a GPU decodes.
#include "tests/simulated_gpu/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/commands/measure_loading.h"
#include "tests/simulated_gpu/jpeg.h"
#include "tests/support/message_of.h"
#include "tests/support/shards.h"
#include "tests/support/whole_runs.h"

namespace owt::decoder_gpu_test {
namespace {

using simulated_gpu::decoded_jpegs;
using simulated_gpu::WithJpegs;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

class DecoderRuns : public testing::Test, protected WholeRuns {
 protected:
  DecoderRuns() {
    for (const char* split : {"train", "val"})
      write_split(folder_.file("photos"), split, {.images = 12, .classes = 10, .jpeg = {.quality = 40}});
  }
  Settings settings(const std::string& decoder, const Overrides& changes = {}) const {
    const Overrides photos{{"data.format", "shards"},
                           {"data.dir", folder_.file("photos")},
                           {"data.augment", "{ crop = 32, short_side = 40, area = [0.2, 1.0], mirror = true }"},
                           {"data.test_images", ""},
                           {"data.decoder", decoder},
                           {"schedule.epochs", "100"},
                           {"run.device", "cuda"},
                           {"run.eval_every_epochs", "0"},
                           {"run.checkpoint_every_epochs", "0"}};
    const std::string recipe = recipe_of("[3, 32, 32]", "batch = 4", R"({ name = "fc", type = "dense", out = 10 })");
    return small_settings(recipe, merged(photos, changes));
  }
  void train_photos(const std::string& out, const std::string& decoder, int steps, const Overrides& changes = {},
                    const std::string& resume = "") {
    TrainOptions options;
    options.out = path(out);
    options.resume = resume;
    options.threads = 1;
    train(settings(decoder, merged(changes, {{"schedule.max_steps", std::to_string(steps)}})), options);
  }
  std::string log_of(const std::string& out) const { return read_file(path(out) + "/log.txt"); }
  RunState state_of(const std::string& out) const { return load_checkpoint_state(*newest_checkpoint(path(out))); }
  // Writes this choice into the checkpoint.
  void choose(const std::string& out, const std::string& decoder) const {
    RunState state = state_of(out);
    state.decoder = decoder;
    write_bytes(*newest_checkpoint(path(out)) + "/state.json", state.to_json());
  }

  static constexpr const char* kChoice = "decodes the photographs of training: ";
};

TEST_F(DecoderRuns, OnTheGpuLearnTheSameAsOnTheCpuWithAnyNumberOfWorkers) {
  const Overrides two{{"parallel.workers", "2"}, {"parallel.strategy", "dp"}};
  for (const Overrides& workers : {Overrides{}, two}) {
    const std::string tag = workers.empty() ? "one" : "two";
    train_photos("cpu " + tag, "cpu", 7, workers);
    const int64_t before = decoded_jpegs();
    train_photos("gpu " + tag, "gpu", 7, workers);
    EXPECT_GE(decoded_jpegs() - before, 7 * 4);
    EXPECT_EQ(read_file(weights_of("gpu " + tag)), read_file(weights_of("cpu " + tag)));
    EXPECT_THAT(log_of("gpu " + tag), HasSubstr("the GPU decodes the photographs of training, as the recipe says"));
  }
}

TEST_F(DecoderRuns, AutoMeasuresBothAndAResumedRunKeepsTheChoice) {
  const int64_t before = decoded_jpegs();
  const Overrides two{{"parallel.workers", "2"}, {"parallel.strategy", "dp"}};
  train_photos("auto", "auto", DecoderTrial::kSteps + 1, two);
  EXPECT_GE(decoded_jpegs() - before, 2 * DecoderTrial::kBlock * 4);
  EXPECT_THAT(log_of("auto"), HasSubstr(kChoice));
  EXPECT_THAT(state_of("auto").decoder, AnyOf("cpu", "gpu"));

  train_photos("short", "auto", 5);
  EXPECT_EQ(state_of("short").decoder, "");
  for (const std::string decoder : {"cpu", "gpu"}) {
    const int64_t earlier = decoded_jpegs();
    choose("short", decoder);
    const int steps = decoder == "cpu" ? 10 : 15;
    train_photos("short", "auto", steps, {}, "auto");
    EXPECT_EQ(decoded_jpegs() > earlier, decoder == "gpu");
    EXPECT_EQ(state_of("short").step, steps);
    EXPECT_EQ(state_of("short").decoder, decoder);
    EXPECT_THAT(log_of("short"), HasSubstr(concat("the ", decoder == "gpu" ? "GPU" : "CPU",
                                                  " decodes the photographs of training, as in the checkpoint")));
  }
  const int64_t earlier = decoded_jpegs();
  train_photos("short", "cpu", 20, {}, "auto");
  EXPECT_EQ(decoded_jpegs(), earlier) << "what the recipe names counts";
  EXPECT_THAT(log_of("short"), Not(HasSubstr(kChoice)));
}

TEST_F(DecoderRuns, AreMeasuredWithoutTraining) {
  const int64_t before = decoded_jpegs();
  const LoadSpeed gpu = measure_loading(settings("gpu"), folder_.file("photos"), {.seconds = 0.05});
  EXPECT_GT(decoded_jpegs(), before);
  EXPECT_EQ(gpu.decoder, Decoder::kGpu);
  EXPECT_GT(gpu.stage_s(LoadStage::kRead), 0);
  EXPECT_EQ(gpu.stage_s(LoadStage::kDecode), 0);
  EXPECT_EQ(gpu.stage_s(LoadStage::kResize), 0);
}

TEST_F(DecoderRuns, WithoutNvjpegAutoIsTheCpuAndSaysWhy) {
  const WithJpegs jpegs({.engines = false, .kernels = false});
  train_photos("auto", "auto", DecoderTrial::kSteps + 1);
  EXPECT_THAT(log_of("auto"), HasSubstr("the CPU decodes the photographs: nvJPEG does not work on this GPU"));
  EXPECT_THAT(log_of("auto"), Not(HasSubstr(kChoice)));
  EXPECT_THAT(message_of([&] { train_photos("gpu", "gpu", 2); }), HasSubstr("set data.decoder = \"cpu\""));
}

}  // namespace
}  // namespace owt::decoder_gpu_test
