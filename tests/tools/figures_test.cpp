// Printed figures, read back and compared with the values that they are computed from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "data/photos/photo.h"
#include "src/files/checkpoint_files.h"
#include "src/plan/plan_bytes.h"
#include "src/plan/plan_table.h"
#include "src/predict/choose.h"
#include "src/system/log.h"
#include "tests/support/program.h"
#include "tests/support/shards.h"

namespace owt::figures_test {
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
    EXPECT_EQ(words[3], layer.parameters > 0 ? std::to_string(layer.parameters) : "-");
    EXPECT_EQ(words[4], format("{:.3f}", layer.flops_per_row / 1e6));
    if (!layer.in_place) {
      EXPECT_EQ(words[5], format("{:.1f}", static_cast<double>(layer.out.elements()) * 4 / 1e3)) << layer.name;
    }
    parameters += layer.parameters;
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
    EXPECT_EQ(words[1], format("{:.3f}", static_cast<double>(bytes_per_step(plan)) / 1e6)) << name;
    EXPECT_EQ(words[2], format("{:.3f}", static_cast<double>(busiest_link(plan)) / 1e6)) << name;
    EXPECT_EQ(words[3], format("{:.2f}", static_cast<double>(weight_bytes_per_rank(plan)) / 1e6)) << name;
    EXPECT_EQ(words.size() > 4, name == "owt-c" || name == "dp") << "shown above: " << name;
    if (words.size() > 4) {
      EXPECT_THAT(shown, HasSubstr(plan_table(plan)));
    }
  }
}

// Links that cost only time for each message, and links where only the bytes count.
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

TEST_F(FiguresTest, InspectReportsTheSpreadOfSizesAndClasses) {
  write_split(file("set"), "train", {.images = 7, .classes = 3});
  const std::string shown = printed("inspect " + file("set"));
  EXPECT_THAT(shown, AllOf(HasSubstr("train: 7 images, 3 classes of 2 to 3 images"),
                           HasSubstr("height 40 / 43 / 46, width 52 / 55 / 58")));
}

// Photos of three classes, `bad` of which are none, and two files that are no photos by their names.
void write_photos(const std::string& folder, int images, int bad) {
  for (int i = 0; i < images; ++i) {
    const std::string of_class = folder + "/class" + std::to_string(i % 3);
    std::filesystem::create_directories(of_class);
    write_bytes(of_class + "/" + std::to_string(100 + i) + ".jpg",
                i < bad ? "no photo" : jpeg_of(made_photo(i, 200, 180), {}));
  }
  write_bytes(folder + "/class1/readme.txt", "");
  write_bytes(folder + "/class2/notes", "");
}

TEST_F(FiguresTest, PrepareReportsWhatItMadeSkippedAndIgnored) {
  write_photos(file("in"), 14, 2);
  const std::string words = " " + file("out") + " --size 0 --shard-images 4 --max-skipped 2";
  const std::string shown = printed("prepare folder " + file("in") + words);
  double bytes = 0;
  for (const char* shard : {"000000.tar", "000001.tar", "000002.tar", "000003.tar"})
    bytes += static_cast<double>(std::filesystem::file_size(file("out/train/") + shard));
  EXPECT_EQ(shown.find(format("{0}: 12 images of 3 classes in 4 shards, {1:.1f} MB; 2 skipped, see {0}/skipped.txt; ",
                              file("out/train"), bytes / 1e6)),
            0u)
      << shown;
  EXPECT_THAT(shown, HasSubstr(" s\n2 files were ignored: by their names they are not images\n"));
  EXPECT_EQ(printed("prepare folder " + file("in") + words).find(file("out/train") + ": already prepared"), 0u);
  write_photos(file("more"), 3, 0);
  std::filesystem::remove(file("more/class1/readme.txt"));
  std::filesystem::remove(file("more/class2/notes"));
  const std::string all_good = printed("prepare folder " + file("more") + words + " --split val");
  EXPECT_THAT(all_good, AllOf(HasSubstr("val: 3 images of 3 classes in 1 shard, "), HasSubstr(" MB; none skipped; ")));
  EXPECT_EQ(all_good.find(" ignored"), std::string::npos);
}

// 18.7 % of 16 are 2.99, 18.8 % are 3.01.
TEST_F(FiguresTest, PerCentOfBadPhotosAreRoundedDown) {
  write_photos(file("in"), 16, 3);
  const std::string words = "prepare folder " + file("in") + " " + file("out") + " --size 0 --max-skipped ";
  EXPECT_THAT(owt(words + "18.7%").err, HasSubstr("3 of 16 images cannot be used, more than --max-skipped allows (2)"));
  EXPECT_THAT(printed(words + "18.8%"), HasSubstr("3 skipped"));
}

TEST_F(FiguresTest, PrepareStatsPrintsWhatItWrites) {
  write_split(file("set"), "train", {.images = 5});
  const std::string shown = printed("prepare stats " + file("set"));
  const auto json = nlohmann::json::parse(read_file(file("set/train/stats.json")));
  std::ostringstream wanted;
  wanted << file("set/train/stats.json") << ": 5 images; channel mean";
  for (const double value : json["mean"]) wanted << ' ' << value;
  wanted << ", std";
  for (const double value : json["std"]) wanted << ' ' << value;
  EXPECT_EQ(shown, wanted.str() + "\n");
  // Colours as fractions of white, with four digits.
  std::string colours = "training images, 0 to 1: channel mean";
  for (const double value : json["mean"]) colours += format(" {:.4f}", value / 255);
  colours += ", std";
  for (const double value : json["std"]) colours += format(" {:.4f}", value / 255);
  EXPECT_THAT(printed("inspect " + file("set")),
              AllOf(HasSubstr("\n" + colours + "\n"), HasSubstr("\n     1 n00000001 class 1 "),
                    HasSubstr("  min / median / max: height 40 / 42 / 44, width 52 / 54 / 56, bytes ")));
}

TEST_F(FiguresTest, TrainAndInspectReportTheFolderAndTheAccuracyOfTheRun) {
  const std::string train = "train " + small_recipe() + " --workers 2 --parallel owt-b --seed 5 --steps 7 --set " +
                            "schedule.epochs=2 --out ";
  const std::string shown = printed(train + file("run")), timed = printed(train + file("timed") + " --timing");
  nlohmann::json last, best;
  for (const std::string& line : text_lines(file("run/metrics.jsonl")))
    if (const auto one = nlohmann::json::parse(line); one["kind"] == "eval") {
      if (best.is_null() || one["top1"] > best["top1"]) best = one;
      last = one;
    }
  const auto percent = [](const nlohmann::json& value) { return 100 * value.get<double>(); };
  const std::string result = format("test accuracy: top-1 {:.2f} %, top-5 {:.2f} %, loss {:.4f} (50 images)\n",
                                    percent(last["top1"]), percent(last["top5"]), last["loss"].get<double>());
  EXPECT_EQ(shown.find(result + "run folder: " + file("run") + " ("), 0u) << shown;
  EXPECT_EQ(timed.find("Worker 0 of 2, medians over "), 0u) << timed;
  EXPECT_THAT(timed, HasSubstr(result));

  const std::string checkpoint = file("run/checkpoints/step-00000007");
  const std::string inspected = printed("inspect " + file("run"));
  EXPECT_EQ(inspected.find(format("checkpoint {}: all checksums match\n"
                                  "step 7, epoch 1 (+48 images), seed 5, 2 workers, strategy owt-b\n"
                                  "best top-1 {:.2f} % at step {}\n",
                                  checkpoint, percent(best["top1"]), best["step"].get<int64_t>())),
            0u)
      << inspected;
  EXPECT_EQ(printed("inspect " + checkpoint), inspected);
  const Settings settings = small_settings(kSmallRecipe);
  int64_t elements = 0;
  for (const LayerPlan& layer : make_plan(settings.model, settings.plan_request()).layers) elements += layer.parameters;
  EXPECT_THAT(inspected, HasSubstr(format("{}/weights.safetensors: 10 tensors, {} elements\n", checkpoint, elements)));
  RunState state = load_checkpoint_state(checkpoint);
  state.best_step = -1;
  write_bytes(checkpoint + "/state.json", state.to_json());
  EXPECT_EQ(printed("inspect " + checkpoint).find("best top-1"), std::string::npos);
}

// In any order, specific options override --set, which changes the recipe.
TEST_F(FiguresTest, OptionsOfTheirOwnComeAfterSet) {
  const std::string plan = "plan " + small_recipe() + " --parallel owt-c ";
  const std::string expected = printed(plan + "--workers 4 --model-ranks 2");
  EXPECT_EQ(printed(plan + "--workers 4 --model-ranks 2 --set parallel.model_ranks=4 --set parallel.workers=2"),
            expected);
  EXPECT_EQ(printed(plan + "--set parallel.model_ranks=2 --set parallel.workers=4"), expected);
  EXPECT_NE(printed(plan + "--workers 4 --model-ranks 4"), expected);
}

}  // namespace
}  // namespace owt::figures_test
