// How commands use data: a model's name selects its recipe, classes are matched by their names, and a given folder is
// read or refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/cifar.h"
#include "data/photos/photo.h"
#include "src/system/log.h"
#include "tests/support/program.h"
#include "tests/support/target_tables.h"

namespace owt::data_commands_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pointwise;
using Json = nlohmann::json;

class DataCommands : public ProgramTest {
 protected:
  // One grey for each class, so that a linear classifier separates them at once.
  void photos(const std::string& folder, const std::vector<std::string>& classes, int each = 3) const {
    for (const std::string& name : classes) {
      const auto grey = static_cast<uint8_t>(name == "bird" ? 20 : name == "cat" ? 120 : 230);
      fs::create_directories(file(folder + "/" + name));
      for (int i = 0; i < each; ++i)
        write_png(file(format("{}/{}/{}.png", folder, name, i)),
                  {20, 20, std::vector<uint8_t>(20 * 20 * 3, static_cast<uint8_t>(grey + i))});
    }
  }
  void prepare(const std::string& from, const std::string& to, const std::string& more = "") const {
    const Result done = owt("prepare folder " + file(from) + " " + file(to) + " --size 0 " + more);
    ASSERT_EQ(done.code, 0) << done.err;
  }
  // A run on bird, cat and dog that classifies all of them.
  void train() {
    photos("photos", {"bird", "cat", "dog"});
    prepare("photos", "data");
    prepare("photos", "data", "--split val");
    write("linear.toml", R"(
[model]
name = "linear"
input = [3, 16, 16]
classes = 3
layer = [{ name = "fc0", type = "dense", out = 8 }, { name = "relu0", type = "relu" }, { name = "fc", type = "dense", out = 3 }]
[data]
format = "shards"
batch = 9
augment = { crop = 16, short_side = 16, scale = 0.01, mean = [128, 128, 128] }
[optimizer]
learning_rate = 0.05
[schedule]
epochs = 80
[run]
eval_every_epochs = 0
checkpoint_every_epochs = 0
)");
    const Result done = owt("train " + file("linear.toml") + " --data " + file("data") + " --out " + file("run"));
    ASSERT_EQ(done.code, 0) << done.err;
    ASSERT_THAT(done.out, HasSubstr("top-1 100.00 %"));
  }
};

TEST_F(DataCommands, ATestFolderWithSomeOfTheClassesIsEvaluatedByTheirNames) {
  train();
  photos("some", {"cat", "dog"});
  prepare("some", "apart", "--split val");
  const Result eval = owt("eval " + file("run") + " --data " + file("apart") + " --per-class");
  EXPECT_THAT(eval.out, AllOf(HasSubstr("top-1 100.00 %"), HasSubstr("cat"), Not(HasSubstr("bird")))) << eval.err;
  EXPECT_THAT(eval.err, HasSubstr("has 2 of the 3 classes of " + file("run")));

  prepare("some", "with_names", "--split val --classes " + file("run/classes.txt"));
  EXPECT_EQ(read_file(file("with_names/classes.txt")), "bird\ncat\ndog\n");
  const Result same = owt("eval " + file("run") + " --data " + file("with_names"));
  EXPECT_THAT(same.out, HasSubstr("top-1 100.00 %"));

  photos("other", {"cat", "emu"});
  const Result refused =
      owt("prepare folder " + file("other") + " " + file("o") + " --classes " + file("run/classes.txt"));
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("class 'emu'"), HasSubstr(file("run/classes.txt"))));
  prepare("other", "others", "--split val");
  const std::string extract = "extract --layer fc --out " + file("x.npy") + " ";
  EXPECT_EQ(owt(extract + file("run") + " --data " + file("others")).code, 0) << "no labels are wanted";
  for (const std::string& command : {std::string("eval "), extract + "--labels " + file("l.npy") + " "}) {
    const Result unknown = owt(command + file("run") + " --data " + file("others"));
    EXPECT_EQ(unknown.code, 1) << command;
    EXPECT_THAT(unknown.err, HasSubstr("the class 'emu', which " + file("run") + " does not know"));
  }
  EXPECT_EQ(owt("eval " + file("run") + " --classes number --data " + file("others")).code, 0);
  EXPECT_EQ(owt("eval " + file("run") + " --classes data --data " + file("others")).code, 2);
}

TEST_F(DataCommands, AModelStandsForItsRecipeWhereThereIsData) {
  photos("photos", {"bird", "cat"});
  prepare("photos", "data");
  const Result named = owt("train resnet50 --data " + file("data"), "cd " + file("") + ";");
  EXPECT_THAT(named.err, AllOf(HasSubstr("imagenet_resnet50.toml"), HasSubstr("data.validation=0.1")));
  EXPECT_EQ(named.code, 1);
  const Result path =
      owt("train " + config("models/resnet18.toml") + " --data " + file("data"), "cd " + file("") + ";");
  EXPECT_THAT(path.err, HasSubstr("imagenet_resnet18.toml"));
  const Result without = owt("train resnet34 --data " + file("data"));
  EXPECT_EQ(without.code, 1);
  EXPECT_THAT(without.err, AllOf(HasSubstr("resnet34 is a model"), HasSubstr("--set model=resnet34")));
  EXPECT_FALSE(fs::exists(file("runs")));
}

TEST_F(DataCommands, DataThatIsNotReadIsRefused) {
  const std::string recipe = small_recipe(), data = " --data " + file("");
  for (const std::string& words :
       {"train " + recipe, "simulate " + recipe, "eval " + recipe + " --weights none",
        "predict " + recipe + " x.png --weights none", "export " + recipe + " --onnx x --weights none"}) {
    const Result result = owt(words + data);
    EXPECT_EQ(result.code, 2) << words;
    EXPECT_THAT(result.err, AllOf(HasSubstr("is not read"), HasSubstr("draws its images"))) << words;
  }
  EXPECT_EQ(owt("train " + recipe + " --other-data").code, 2);
  EXPECT_EQ(owt("report " + file("run") + " --threads 1").code, 2);
}

TEST_F(DataCommands, BenchDataReadsAFolderOrTheDataOfARecipe) {
  photos("photos", {"bird", "cat"});
  prepare("photos", "data");
  const std::string words = "bench-data " + file("data") + " --seconds 0.1 ";
  const Result both = owt(words + "--threads 1,2 --workers 2 --device cpu");
  ASSERT_EQ(both.code, 0) << both.err;
  EXPECT_THAT(both.out, AllOf(HasSubstr("6 training images in " + file("data") + ", read as imagenet_resnet50 says"),
                              HasSubstr("\n      2 "), HasSubstr("\n      4 "), HasSubstr("\ndecode "),
                              HasSubstr("\naugment "), HasSubstr("--cold")));
  // On busy cores, threads may seem to wait for files.
  EXPECT_THAT(both.out, AnyOf(HasSubstr("Longest stage: "), HasSubstr("The threads wait for files: ")));
  const auto json = nlohmann::json::parse(owt(words + "--json --cold --device cpu").out);
  EXPECT_EQ(json["images"], 6);
  EXPECT_EQ(json["cold"], true);
  ASSERT_EQ(json["speeds"].size(), 1u);
  EXPECT_GT(json["speeds"][0]["us_per_image"]["decode"], 0);

  write("small.toml", kSmallRecipe);
  EXPECT_THAT(owt("bench-data " + file("small.toml")).err, HasSubstr("draws its images"));
  const std::string by_recipe =
      "bench-data imagenet_resnet18 --seconds 0.1 --device cpu --set data.dir=" + file("data") + " ";
  EXPECT_THAT(owt(by_recipe).out, HasSubstr("in " + file("data") + ", read as imagenet_resnet18 says"));
  EXPECT_EQ(owt(by_recipe + "--recipe imagenet_resnet50").code, 2);
  EXPECT_THAT(owt("bench-data " + file("photos")).err, HasSubstr("owt prepare folder"));
  EXPECT_EQ(owt(words + "--threads 1.5").code, 2);
}

TEST_F(DataCommands, PlanSaysHowManyCoresLoadForAGpu) {
  const std::string here = "export OWT_DATA=" + file("none") + "; ";
  const auto plan = [&](const std::string& words) {
    return owt("plan " + words + " --workers 2 --gpu H200", here).out;
  };
  const std::string json = " --json " + file("p.json");
  const std::string shown = plan("imagenet_resnet50" + json);
  const auto loading = nlohmann::json::parse(read_file(file("p.json")))["loading"];
  const double cores = loading["cores"];
  EXPECT_DOUBLE_EQ(cores * loading["images_per_core_second"].get<double>(), loading["images_per_second"]);
  EXPECT_THAT(shown, AllOf(HasSubstr(format("Loading: {:.1f} core", cores)), HasSubstr("documented for photographs")));
  EXPECT_EQ(shown.find("unless data.loader_threads, here 1, is") != std::string::npos, cores > 1);
  EXPECT_THAT(plan("imagenet_resnet50 --set data.loader_threads=256"), Not(HasSubstr("data.loader_threads")));
  EXPECT_THAT(plan("cifar10_quick"), HasSubstr("not decoded"));
  EXPECT_THAT(plan("resnet50"), Not(HasSubstr("Loading")));
}

TEST_F(DataCommands, ModelsOfTheCommandLineAreFilesOfTheWorkingFolderOrNames) {
  fs::copy_file(config("models/resnet18.toml"), file("mine.toml"));
  const std::string here = "cd " + file("") + ";";
  for (const char* model : {"mine.toml", "resnet18", "resnet18.toml"})
    EXPECT_THAT(owt(concat("inspect imagenet_resnet50 --set model=", model), here).out, HasSubstr("model resnet18"))
        << model;
  EXPECT_THAT(owt("inspect imagenet_resnet50 --set model=resnet19", here).err,
              AllOf(HasSubstr("no such file"), HasSubstr("did you mean 'resnet18'?")));
}

TEST_F(DataCommands, HeldOutImagesAreEvaluatedWhereThereAreNoTestImages) {
  train();
  fs::remove_all(file("data/val"));
  const Result none = owt("train " + file("linear.toml") + " --data " + file("data") + " --out " + file("none"));
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, HasSubstr("--set data.validation=0.1"));
  const Result held = owt("train " + file("linear.toml") + " --data " + file("data") + " --out " + file("held") +
                          " --set data.validation=3 --steps 2");
  ASSERT_EQ(held.code, 0) << held.err;
  EXPECT_THAT(held.out, Not(HasSubstr("owt eval")));
  const Result eval = owt("eval " + file("held"));
  EXPECT_EQ(eval.code, 0) << eval.err;
  EXPECT_THAT(eval.out, HasSubstr("(3 validation images)"));
  EXPECT_THAT(eval.err, HasSubstr("has no test images"));
}

// A linear model of 20 images in CIFAR's format, which all are in every step.
class TargetCommands : public ProgramTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(owt("prepare synthetic " + file("data") + " --train 20 --test 10").code, 0);
    write("linear.toml", R"(
[model]
name = "linear"
input = [3, 32, 32]
classes = 10
layer = [{ name = "fc", type = "dense", out = 10, init = { type = "constant", value = 0.0 } }]
[data]
format = "cifar10"
batch = 20
targets = true
augment = { scale = 0.004 }
[optimizer]
learning_rate = 0.002
momentum = 0
decay = 0
[schedule]
epochs = 6
[run]
log_every = 1
eval_every_epochs = 0
checkpoint_every_epochs = 3
precision = "fp32"
)");
  }
  void write_tables(bool sum_to_1) const {
    for (const Split split : {Split::kTrain, Split::kTest})
      write_target_table(file("data"), split, *read_cifar(file("data"), CifarKind::k10, split), sum_to_1);
  }
  Result train(const std::string& out, const std::string& more = "") const {
    return owt("train " + file("linear.toml") + " --device cpu --data " + file("data") + " --out " + file(out) + " " +
               more);
  }
  std::vector<double> losses(const std::string& run) const {
    std::vector<double> all;
    for (const std::string& line : text_lines(file(run + "/metrics.jsonl")))
      if (const Json json = Json::parse(line); json["kind"] == "train") all.push_back(json["loss"].get<double>());
    return all;
  }
};

// tests/support/target_tables.h; PyTorch 2.15: six steps of SGD with cross_entropy(logits, targets) and with
// binary_cross_entropy_with_logits(logits, targets, reduction="sum") / 20, and scikit-learn 1.9.1's
// average_precision_score of the test images.
TEST_F(TargetCommands, ARunLearnsWhatPyTorchLearnsAndEvalPrintsThePrecision) {
  write_tables(true);
  const Result soft = train("soft");
  ASSERT_EQ(soft.code, 0) << soft.err;
  EXPECT_THAT(losses("soft"), Pointwise(DoubleNear(1e-5), {2.302585093, 2.301104449, 2.299678097, 2.298298034,
                                                           2.296958492, 2.295655243}));
  const Result plain = owt("eval " + file("soft") + " --data " + file("data"));
  EXPECT_THAT(plain.out, AllOf(HasSubstr("loss 2.3024"), Not(HasSubstr("mAP")))) << plain.err;

  write_tables(false);
  const Result several = train("several", "--set loss.type=logistic");
  ASSERT_EQ(several.code, 0) << several.err;
  EXPECT_THAT(losses("several"), Pointwise(DoubleNear(1e-5), {6.931471806, 6.895009947, 6.861517422, 6.830142469,
                                                              6.800521404, 6.772455910}));
  const Result eval = owt("eval " + file("several") + " --workers 2 --data " + file("data"));
  EXPECT_THAT(eval.out, AllOf(HasSubstr("mAP 0.5984"), HasSubstr("loss 6.9313"))) << eval.err;
  const Json figures = Json::parse(owt("eval " + file("several") + " --json - --data " + file("data")).out);
  EXPECT_NEAR(figures["mean_average_precision"].get<double>(), 0.5983809524, 1e-9);
}

TEST_F(TargetCommands, AResumedRunContinuesWithTheSameTargetsAndRefusesOthers) {
  write_tables(false);
  ASSERT_EQ(train("whole", "--set loss.type=logistic").code, 0);
  ASSERT_EQ(train("run", "--set loss.type=logistic --epochs 3").code, 0);
  const std::string resume = "train " + file("run") + " --resume auto --epochs 6 --data " + file("data");
  const std::string table = read_file(file("data/targets_train.csv"));
  write("data/targets_train.csv", table.substr(0, table.rfind(',')) + ",0.5\n");
  EXPECT_THAT(owt(resume).err, HasSubstr("or have other targets (data.targets)"));
  write("data/targets_train.csv", table);
  const Result resumed = owt(resume);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(losses("run"), losses("whole"));
}

// All classes of an image have equal targets, so most are no image's label.
TEST_F(TargetCommands, AClassWithTargetsHasImagesAndOneWithoutPositivesHasNoPrecision) {
  write_tables(false);
  for (const char* split : {"train", "test"}) {
    std::string table = text_lines(file(concat("data/targets_", split, ".csv"))).front();
    for (int image = 0; image < (split == std::string("train") ? 20 : 10); ++image)
      table += concat("\n", image, image % 2 ? ",.4,.4,.4,.4,.4,0,0,0,0,0" : ",0,0,0,0,0,.3,.3,.3,.3,.3");
    write(concat("data/targets_", split, ".csv"), table + "\n");
  }
  const Result done = train("low", "--set loss.type=logistic");
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_THAT(done.err, Not(HasSubstr("no training images")));
  const Result eval = owt("eval " + file("low") + " --data " + file("data"));
  EXPECT_THAT(eval.out, Not(HasSubstr("mAP"))) << eval.out;
  EXPECT_THAT(eval.err, HasSubstr("there is no mAP: no image has a class"));
}

TEST_F(TargetCommands, WhatDoesNotFitIsRefusedInOneLine) {
  write_tables(false);
  EXPECT_THAT(train("run", "--set data.targets=false").err,
              HasSubstr("targets_train.csv is not used; with data.targets"));
  EXPECT_THAT(owt("inspect " + file("data")).out,
              HasSubstr("  targets_train.csv: 5.00 classes of an image have a target"));
  const Result softmax = train("no");
  EXPECT_EQ(softmax.code, 1);
  EXPECT_THAT(softmax.err, HasSubstr("targets_train.csv:2: the targets add up to 5, wanted 1 for the softmax"));
  for (const char* key : {"label_smoothing=0.1", "sample=0.5", "distill.run=there"}) {
    const Result refused = train("no", std::string("--set loss.") + key);
    EXPECT_EQ(refused.code, 1);
    EXPECT_THAT(refused.err, HasSubstr("but data.targets gives every class a target; leave one of them out")) << key;
  }
  fs::remove(file("data/targets_test.csv"));
  const Result missing = train("no", "--set loss.type=logistic");
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.err, HasSubstr("targets_test.csv with the targets of these images, which data.targets wants"));
}

}  // namespace
}  // namespace owt::data_commands_test
