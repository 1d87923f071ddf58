// Training on prepared shards through the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "src/system/files.h"
#include "tests/support/shards.h"

namespace owt::shards_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kRecipe = R"(
[data]
format = "shards"
batch = 12
max_corrupt = 0.05
augment = { short_side = 40, area = [0.3, 1.0], mirror = true, mean = "channel", std = "channel", pca = 0.1 }
[model]
name = "small"
input = [3, 24, 24]
classes = 3
[[model.layer]]
name = "conv"
type = "conv"
out = 4
kernel = 5
stride = 3
[[model.layer]]
name = "relu"
type = "relu"
[[model.layer]]
name = "fc"
type = "dense"
out = 3
[optimizer]
learning_rate = 0.01
[schedule]
epochs = 2
[run]
device = "cpu"
conv_algorithm = "direct"  # the measured choice may differ in the last bits
log_every = 1
)";

class ShardsCliTest : public testing::Test {
 protected:
  ShardsCliTest() {
    write_split(data_, "train", {.images = 60, .images_per_shard = 25});
    write_split(data_, "val", {.images = 12, .images_per_shard = 12});
    write_bytes(recipe_, kRecipe);
  }
  struct Result {
    int code = -1;
    std::string out, err;
  };
  Result owt(const std::string& words) const {
    const std::string out = folder_.file("stdout"), err = folder_.file("stderr");
    const int status = std::system(("'" OWT_PROGRAM "' " + words + " >" + out + " 2>" + err).c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out), read_file(err)};
  }
  Result train(const std::string& run, const std::string& more = "") const {
    return owt("train " + recipe_ + " --data " + data_ + " --out " + folder_.file(run) + " " + more);
  }
  // The lines of metrics.jsonl without their times.
  std::string curve(const std::string& run) const {
    std::string text;
    const std::string metrics = read_file(folder_.file(run) + "/metrics.jsonl");
    for (size_t at = 0; (at = metrics.find("\"loss\":", at)) != std::string::npos;) {
      const size_t end = metrics.find(',', at);
      text += metrics.substr(at + 7, end - at - 7) + ' ';
      at = end;
    }
    return text;
  }

  TempFolder folder_;
  std::string data_ = folder_.file("data"), recipe_ = folder_.file("small.toml");
};

TEST_F(ShardsCliTest, WithoutStatisticsTheErrorSaysHowToMakeThem) {
  const Result before = train("run");
  EXPECT_EQ(before.code, 1);
  EXPECT_THAT(before.err, HasSubstr("run owt prepare stats " + data_));
  const Result stats = owt("prepare stats " + data_);
  EXPECT_EQ(stats.code, 0) << stats.err;
  EXPECT_THAT(stats.out, AllOf(HasSubstr("60 images"), HasSubstr("mean")));
  EXPECT_EQ(train("run").code, 0);
}

TEST_F(ShardsCliTest, TwoWorkersLearnWhatOneLearnsAndLoaderThreadsChangeNothing) {
  ASSERT_EQ(owt("prepare stats " + data_ + " --threads 2").code, 0);
  ASSERT_EQ(train("one").code, 0);
  ASSERT_EQ(train("threads", "--set data.loader_threads=3").code, 0);
  EXPECT_EQ(curve("threads"), curve("one"));
  ASSERT_EQ(train("two", "--workers 2").code, 0);
  const std::string one = curve("one"), two = curve("two");
  EXPECT_NEAR(std::stod(one), std::stod(two), 1e-5);
  EXPECT_NEAR(std::stod(one.substr(one.rfind(' ', one.size() - 2))),
              std::stod(two.substr(two.rfind(' ', two.size() - 2))), 1e-4);
}

TEST_F(ShardsCliTest, DamagedRecordsAreReplacedAndCountedUpToTheLimit) {
  ASSERT_EQ(owt("prepare stats " + data_).code, 0);
  for (const size_t record : {3, 7, 20}) damage_record(data_, "train", 0, record);
  const Result three = train("three");
  EXPECT_EQ(three.code, 0) << three.err;
  EXPECT_THAT(three.err, AllOf(HasSubstr("damaged record 3 of at most 3"), HasSubstr("made/")));
  EXPECT_THAT(read_file(folder_.file("three/metrics.jsonl")), HasSubstr("\"corrupt_records\":3"));

  damage_record(data_, "train", 1, 2);
  const Result four = train("four");
  EXPECT_EQ(four.code, 1);
  EXPECT_THAT(four.err, AllOf(HasSubstr("4 damaged record(s)"), HasSubstr("data.max_corrupt")));
  EXPECT_EQ(train("more", "--set data.max_corrupt=0.1").code, 0);
}

TEST_F(ShardsCliTest, OneDamagedRecordIsAllowedInASetWhoseShareIsLessThanOne) {
  ASSERT_EQ(owt("prepare stats " + data_).code, 0);
  damage_record(data_, "train", 0, 3);
  const Result one = train("one", "--set data.max_corrupt=0.001");
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_THAT(one.err, HasSubstr("damaged record 1 of at most 1"));
  damage_record(data_, "train", 0, 7);
  EXPECT_EQ(train("two", "--set data.max_corrupt=0.001").code, 1);
}

TEST_F(ShardsCliTest, ADamagedRecordInEvaluationEndsTheRunAfterItsCheckpointWasWritten) {
  ASSERT_EQ(owt("prepare stats " + data_).code, 0);
  ASSERT_EQ(train("whole").code, 0);
  const std::string tar = read_file(data_ + "/val/000000.tar");
  damage_record(data_, "val", 0, 4);
  for (const std::string workers : {"1", "2"}) {
    const Result result = train("run" + workers, "--workers " + workers);
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.err, AllOf(HasSubstr("val/000000.tar: record 4"), HasSubstr("prepare the data set again")));
    EXPECT_EQ(read_file(folder_.file("run" + workers) + "/checkpoints/latest"), "step-00000005\n");
  }
  write_bytes(data_ + "/val/000000.tar", tar);
  ASSERT_EQ(train("run1", "--resume auto").code, 0);
  EXPECT_EQ(curve("run1"), curve("whole"));
  const std::string last = "/checkpoints/step-00000010/";
  for (const std::string name : {"weights.safetensors", "state.json"})
    EXPECT_EQ(read_file(folder_.file("run1") + last + name), read_file(folder_.file("whole") + last + name)) << name;
}

TEST_F(ShardsCliTest, ADataSetWithoutTrainingImagesOrOfAnotherFormatIsNamed) {
  const std::string sheet = " --sheet " + folder_.file("sheet.png"),
                    cifar = OWT_SOURCE_DIR "/configs/cifar10_26pct.toml";
  const Result other = owt("inspect " + data_ + sheet + " --recipe " + cifar);
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err,
              AllOf(HasSubstr("cifar10_26pct.toml is a recipe for data of format cifar10"), HasSubstr(data_)));
  std::filesystem::remove_all(data_ + "/train");
  for (const std::string& words : {"inspect " + data_ + sheet, "prepare stats " + data_}) {
    const Result result = owt(words);
    EXPECT_EQ(result.code, 1) << words;
    EXPECT_THAT(result.err, AllOf(HasSubstr("has no training images"), HasSubstr("--split train"))) << words;
  }
}

TEST_F(ShardsCliTest, FewerClassesThanTheDataIsAnError) {
  const Result result = train("run", "--set model.classes=2 --set model.layer='[{type=\"dense\",name=\"fc\",out=2}]'");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("has 3 classes, but model"));
}

TEST_F(ShardsCliTest, EvaluationWantsNothingButItsSplitAndTheRunFolder) {
  ASSERT_EQ(owt("prepare stats " + data_).code, 0);
  ASSERT_EQ(train("run").code, 0);
  const std::string run = folder_.file("run"), weights = run + "/checkpoints/step-00000010/weights.safetensors";
  const std::string of_data = " --threads 1 --data " + data_, of_recipe = recipe_ + " --weights " + weights + of_data;
  const auto away = [&](const std::string& part) {
    std::filesystem::rename(data_ + "/" + part, folder_.file(part + ".away"));
  };
  const Result test = owt("eval " + of_recipe), training = owt("eval " + run + of_data + " --split train");
  ASSERT_EQ(test.code, 0) << test.err;
  ASSERT_EQ(training.code, 0) << training.err;

  away("train");
  const Result val_only = owt("eval " + run + of_data);
  EXPECT_EQ(val_only.out, test.out) << val_only.err;
  const std::string copy = folder_.file("copy.safetensors");  // its run is unknown
  std::filesystem::copy_file(weights, copy);
  const Result no_means = owt("eval " + recipe_ + " --weights " + copy + of_data);
  EXPECT_EQ(no_means.code, 1);
  EXPECT_THAT(no_means.err, AllOf(HasSubstr("has no training images"), HasSubstr("give the run folder")));
  const Result extracted = owt("extract " + run + of_data + " --layer fc --out " + folder_.file("x.npy"));
  EXPECT_EQ(extracted.code, 0) << extracted.err;

  std::filesystem::rename(folder_.file("train.away"), data_ + "/train");
  away("val");
  const Result train_only = owt("eval " + run + of_data + " --split train");
  EXPECT_EQ(train_only.out, training.out) << train_only.err;
  const Result no_val = owt("eval " + run + of_data);
  EXPECT_EQ(no_val.code, 1);
  EXPECT_THAT(no_val.err, HasSubstr("/val"));
}

}  // namespace
}  // namespace owt::shards_test
