#include "src/train/weight_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "src/files/safetensors.h"
#include "src/system/files.h"
#include "src/train/start_facts.h"
#include "tests/support/whole_runs.h"

namespace owt::weight_sizes_test {
namespace {

using Json = nlohmann::json;

TEST(SampleStride, TakesAllOfSmallTensorsAndAllColumnsOfLargeOnes) {
  EXPECT_EQ(sample_stride({64, 8, 8}), 1);
  for (const Shape& shape :
       {Shape{4097}, Shape{4096, 4096}, Shape{1000, 4096}, Shape{96, 11, 11, 3}, Shape{7, 30030}}) {
    const int64_t stride = sample_stride(shape), sampled = shape.elements() / stride;
    EXPECT_LE(sampled, kSampledElements) << shape.str();
    EXPECT_GE(sampled, std::min(shape.elements(), kSampledElements) / 5) << shape.str();
    EXPECT_EQ(std::gcd(stride, shape.row_elements()), 1) << shape.str();
  }
}

class WeightSizesOfRuns : public ::testing::Test, protected WholeRuns {
 protected:
  std::vector<Json> sizes(const std::string& out) const {
    std::vector<Json> all;
    for (const std::string& line : text_lines(path(out) + "/metrics.jsonl"))
      if (const Json one = Json::parse(line); one["kind"] == "weights") all.push_back(one);
    return all;
  }
};

const Overrides kTwice{{"schedule.max_steps", "4"},
                       {"run.eval_every_steps", "2"},
                       {"run.checkpoint_every_steps", "1"},
                       {"run.keep_checkpoints", "9"},
                       {"run.log_every", "1"}};

// All parameters of the small recipe are smaller than a sample.
TEST_F(WeightSizesOfRuns, AreTheMeansOverTheWeightsOfCheckpoints) {
  run("a", kTwice);
  const std::vector<Json> all = sizes("a");
  ASSERT_EQ(all.size(), 2u);
  SafetensorsReader before(path("a") + "/checkpoints/step-00000003/weights.safetensors");
  SafetensorsReader after(path("a") + "/checkpoints/step-00000004/weights.safetensors");
  EXPECT_EQ(all[1]["step"], 4);
  size_t compared = 0;
  for (const auto& [name, mean] : all[1]["mean"].items()) {
    const Tensor old = before.read(name), now = after.read(name);
    if (now.elements() > kSampledElements) continue;
    double size = 0, change = 0;
    for (int64_t i = 0; i < now.elements(); ++i) {
      size += std::abs(now.data()[i]);
      change += std::abs(now.data()[i] - old.data()[i]);
    }
    const auto count = static_cast<double>(now.elements());
    EXPECT_NEAR(mean.get<double>(), size / count, 1e-6 * size / count) << name;
    EXPECT_NEAR(all[1]["change"][name].get<double>(), change / count, 1e-6 * change / count) << name;
    ++compared;
  }
  EXPECT_GT(compared, 4u);
}

TEST_F(WeightSizesOfRuns, AreTheSameForEveryStrategyAndNumberOfRanks) {
  run("one", kTwice);
  const std::vector<Json> wanted = sizes("one");
  ASSERT_EQ(wanted.size(), 2u);
  for (const auto& [strategy, ranks] : std::vector<std::pair<std::string, std::string>>{{"dp", "3"},
                                                                                        {"dp-zero", "3"},
                                                                                        {"dp-star", "2"},
                                                                                        {"ps", "3"},
                                                                                        {"owt-a", "3"},
                                                                                        {"owt-d", "4"},
                                                                                        {"mp", "2"},
                                                                                        {"mp-dense", "3"},
                                                                                        {"pipeline", "2"}}) {
    const std::string out = strategy + ranks;
    run(out, merged(kTwice, {{"parallel.strategy", strategy}, {"parallel.workers", ranks}}));
    const std::vector<Json> found = sizes(out);
    ASSERT_EQ(found.size(), 2u) << out;
    for (size_t i = 0; i < 2; ++i)
      for (const char* measure : {"mean", "change"}) {
        ASSERT_EQ(found[i][measure].size(), wanted[i][measure].size()) << out;
        for (const auto& [name, value] : wanted[i][measure].items())
          EXPECT_NEAR(found[i][measure][name].get<double>(), value.get<double>(), 1e-3 * value.get<double>() + 1e-9)
              << out << ' ' << measure << " of " << name;
      }
  }
}

TEST_F(WeightSizesOfRuns, AreNotOfFrozenLayersAndHaveNoChangeWithoutAnUpdate) {
  run("a", merged(kTwice, {{"optimizer.freeze", "['conv1']"}, {"schedule.max_steps", "2"}}));
  ASSERT_EQ(sizes("a").size(), 1u);
  EXPECT_FALSE(sizes("a")[0]["mean"].contains("conv1.weight"));
  EXPECT_TRUE(sizes("a")[0]["mean"].contains("fc1.weight"));
}

// A run that was stopped before its evaluation does that first.
TEST_F(WeightSizesOfRuns, AStartIsWrittenByEveryProcessThatTrains) {
  const auto starts = [&](const std::string& out) {
    std::vector<Json> all;
    for (const std::string& line : text_lines(path(out) + "/metrics.jsonl"))
      if (const Json one = Json::parse(line); one["kind"] == "start") all.push_back(one);
    return all;
  };
  run("a", merged(kTwice, {{"schedule.max_steps", "2"}}));
  run("a", kTwice, "auto");
  ASSERT_EQ(starts("a").size(), 2u);
  EXPECT_EQ(starts("a")[0]["step"], 0);
  EXPECT_EQ(starts("a")[1]["step"], 2);
  const auto per_epoch = starts("a")[1]["steps_per_epoch"].get<double>();
  EXPECT_EQ(starts("a")[1]["epoch"].get<double>(), 2 / per_epoch);
  for (const char* fact : {"version", "command", "host", "workers", "strategy", "seed", "started"})
    EXPECT_TRUE(starts("a")[0]["facts"].contains(fact)) << fact;
}

TEST(ShellWords, AreAsAShellTakesThem) {
  EXPECT_EQ(shell_words({"owt", "train", "a b", "it's", "", "x=[1]"}), R"(owt train 'a b' 'it'\''s' '' 'x=[1]')");
}

}  // namespace
}  // namespace owt::weight_sizes_test
