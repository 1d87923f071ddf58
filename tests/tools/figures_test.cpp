// Printed figures, read back and compared with what they are computed from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "data/photo.h"
#include "src/core/log.h"
#include "src/parallel/choose.h"
#include "tests/support/program.h"
#include "tests/support/shards.h"

namespace owt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FiguresTest : public ProgramTest {
 protected:
  // The output of a command that succeeds.
  std::string printed(const std::string& words) const {
    const Result result = owt(words);
    EXPECT_EQ(result.code, 0) << words << ": " << result.err;
    return result.out;
  }
};

// The words of the line that begins with this one.
std::vector<std::string> words_of(const std::string& text, const std::string& first) {
  for (const std::string& line : split_lines(text)) {
    std::istringstream words(line);
    std::vector<std::string> all;
    for (std::string word; words >> word;) all.push_back(word);
    if (!all.empty() && all[0] == first) return all;
  }
  ADD_FAILURE() << "no line " << first << " in " << text;
  return std::vector<std::string>(9);
}

TEST_F(FiguresTest, InspectCountsParametersAndWorkOfEveryLayer) {
  const Settings settings = small_settings(kSmallRecipe);
  const Plan plan = make_plan(settings.model, settings.plan_request());
  const std::string shown = printed("inspect " + small_recipe());
  double forward = 0, training = 0;
  int64_t parameters = 0;
  for (const LayerPlan& layer : plan.layers) {
    const std::vector<std::string> words = words_of(shown, layer.name);
    EXPECT_EQ(words[1], layer.type);
    EXPECT_EQ(words[2], layer.out.str());
    EXPECT_EQ(words[3], layer.trained > 0 ? std::to_string(layer.trained) : "-");
    EXPECT_EQ(words[4], format("{:.3f}", layer.flops_per_row / 1e6));
    if (!layer.in_place) {
      EXPECT_EQ(words[5], format("{:.1f}", static_cast<double>(layer.out.elements()) * 4 / 1e3)) << layer.name;
    }
    parameters += layer.trained;
    forward += layer.flops_per_row;
    training += layer.flops_per_row + layer.backward_flops_per_row;
  }
  EXPECT_THAT(shown,
              HasSubstr(format("parameters {}; forward {:.3f} GFLOP per image, training step {:.3f} GFLOP per image",
                               parameters, forward / 1e9, training / 1e9)));
}

TEST_F(FiguresTest, PlanSaysWhatEveryStrategySendsAndHolds) {
  const Overrides four{{"parallel.workers", "4"}};
  const Settings settings = small_settings(kSmallRecipe, four);
  const std::string shown = printed("plan " + small_recipe() + " --workers 4 --parallel owt-c --parallel dp");
  const std::string summary = shown.substr(shown.find("MB sent per worker"));
  for (const std::string& name : strategy_names()) {
    PlanRequest request = settings.plan_request();
    request.strategy = strategy_from(name);
    const Plan plan = make_plan(settings.model, request);
    const std::vector<std::string> words = words_of(summary, name);
    EXPECT_EQ(words[1], format("{:.3f}", static_cast<double>(plan.bytes_per_step()) / 1e6)) << name;
    EXPECT_EQ(words[2], format("{:.2f}", static_cast<double>(plan.weight_bytes_per_rank()) / 1e6)) << name;
    EXPECT_EQ(words.size() > 3, name == "owt-c" || name == "dp") << "shown above: " << name;
    if (words.size() > 3) {
      EXPECT_THAT(shown, HasSubstr(plan.table()));
    }
  }
}

// Links that cost nothing but time for each message, and links of which only the bytes count.
TEST_F(FiguresTest, PlanSaysFromWhichBatchOnSplittingPays) {
  std::set<std::string> sentences;
  for (const std::string links : {"--bandwidth 1GB/s --latency 10s", "--bandwidth 1MB/s --latency 1us"}) {
    const std::string shown = printed("plan " + config("models/alexnet_owt.toml") + " --workers 4 --gpu H200 " + links +
                                      " --json " + file("p.json"));
    const auto json = nlohmann::json::parse(read_file(file("p.json")));
    const int64_t rows = json["crossover_rows"], by_bytes = json["crossover_rows_by_bytes"];
    const std::string sentence = rows == 0   ? "splitting pays at every batch"
                                 : rows <= 4 ? "splitting pays at no batch"
                                             : format("splitting pays below a batch of {}", rows);
    sentences.insert(sentence.substr(0, 22));
    EXPECT_THAT(shown, HasSubstr("With these links and compute times " + sentence + "; ")) << links;
    EXPECT_THAT(shown, HasSubstr(by_bytes == 0 ? std::string("sends fewer bytes than dp at every batch.")
                                               : format("sends fewer bytes than dp below a batch of {}.", by_bytes)));
    EXPECT_THAT(shown, HasSubstr(json["reason"].get<std::string>()));
    for (const auto& one : json["strategies"]) {
      const std::string name = one["name"];
      EXPECT_DOUBLE_EQ(one["images_per_second"].get<double>(), 64 / one["step_s"].get<double>()) << name;
    }
  }
  EXPECT_EQ(sentences.size(), 2u);
}

TEST_F(FiguresTest, BenchCommsSpeedsAreThoseOfItsTimes) {
  const std::string shown =
      printed("bench-comm --workers 3 --sizes 12K..100K --collective all_reduce --collective broadcast --seconds 1e4");
  int lines = 0;
  for (const std::string& line : split_lines(shown)) {
    std::istringstream words(line);
    std::string collective;
    double bytes = 0, us = 0, algorithm = 0, bus = 0;
    int calls = 0;
    if (!(words >> collective >> bytes >> us >> algorithm >> bus >> calls)) continue;
    ++lines;
    EXPECT_GE(calls, 1);
    EXPECT_NEAR(algorithm * us, bytes, 0.06 * (us + algorithm) + 1) << line;  // both are printed with one digit
    EXPECT_NEAR(bus, algorithm * (collective == "all_reduce" ? 2 * 2.0 / 3 : 1), 0.2) << line;
  }
  EXPECT_EQ(lines, 2 * 3) << shown;  // 12, 48 and 100 kilobytes
}

TEST_F(FiguresTest, InspectTellsTheSpreadOfSizesAndClasses) {
  write_split(file("set"), "train", {.images = 7, .classes = 3});
  const std::string shown = printed("inspect " + file("set"));
  EXPECT_THAT(shown, AllOf(HasSubstr("train: 7 images, 3 classes of 2 to 3 images"),
                           HasSubstr("height 40 / 43 / 46, width 52 / 55 / 58")));
}

// Whatever their order, options of their own come after --set, which is of the recipe.
TEST_F(FiguresTest, OptionsOfTheirOwnComeAfterSet) {
  const std::string plan = "plan " + small_recipe() + " --parallel owt-c ";
  const std::string expected = printed(plan + "--workers 4 --model-ranks 2");
  EXPECT_EQ(printed(plan + "--workers 4 --model-ranks 2 --set parallel.model_ranks=4 --set parallel.workers=2"),
            expected);
  EXPECT_EQ(printed(plan + "--set parallel.model_ranks=2 --set parallel.workers=4"), expected);
  EXPECT_NE(printed(plan + "--workers 4 --model-ranks 4"), expected);
}

}  // namespace
}  // namespace owt
