// Data sets with classes of very different size, or without images, through the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "data/photos/photo.h"
#include "tests/support/program.h"
#include "tests/support/shards.h"

namespace owt::uneven_classes_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kRecipe = R"(
[data]
format = "shards"
batch = 12
sampling = "balanced"
augment = { short_side = 40, area = [0.3, 1.0], mirror = true, scale = 0.01 }
[model]
name = "small"
input = [3, 24, 24]
classes = 4
[[model.layer]]
name = "conv"
type = "conv"
out = 4
kernel = 5
stride = 3
[[model.layer]]
name = "tanh"
type = "activation"
kind = "tanh"
[[model.layer]]
name = "fc"
type = "dense"
out = 4
[optimizer]
learning_rate = 0.05
[schedule]
epochs = 2
[run]
device = "cpu"
conv_algorithm = "direct"  # the measured choice may differ in the last bits
log_every = 1
)";

class UnevenClasses : public ProgramTest {
 protected:
  // Training images: 47 of 'many', 1 of 'one' and 2 of 'two'. Test images: also of 'unseen'.
  UnevenClasses() {
    write("classes.txt", "many\none\ntwo\nunseen\n");
    write_images("train/many", 47);
    write_images("train/one", 1);
    write_images("train/two", 2);
    for (const char* name : {"many", "one", "two", "unseen"}) write_images(std::string("val/") + name, 3);
    write("small.toml", kRecipe);
  }
  void write_images(const std::string& folder, int count) {
    fs::create_directories(file(folder));
    for (int i = 0; i < count; ++i)
      write(folder + "/" + std::to_string(i) + ".jpg", jpeg_of(made_photo(number_++, 40, 40 + i % 9), {}));
  }
  Result prepare(const std::string& from, const std::string& more) const {
    return owt("prepare folder " + file(from) + " " + file("data") + " " + more);
  }
  void prepare_both() const {
    ASSERT_EQ(prepare("train", "--classes " + file("classes.txt")).code, 0);
    ASSERT_EQ(prepare("val", "--split val").code, 0);
  }
  Result train(const std::string& run, const std::string& more = "") const {
    return owt("train " + file("small.toml") + " --data " + file("data") + " --out " + file(run) + " " + more);
  }
  std::vector<double> losses(const std::string& run) const {
    std::istringstream lines(read_file(file(run + "/metrics.jsonl")));
    std::vector<double> losses;
    for (std::string line; std::getline(lines, line);)
      if (const size_t at = line.find("\"loss\":"); line.find("\"kind\":\"train\"") != std::string::npos)
        losses.push_back(std::stod(line.substr(at + 7)));
    return losses;
  }

  int64_t number_ = 0;
};

TEST_F(UnevenClasses, BalancedTrainingIsTheSameForEveryNumberOfWorkersAndResumesInAnEpoch) {
  prepare_both();
  ASSERT_EQ(train("1").code, 0);
  const std::vector<double> one = losses("1");
  ASSERT_EQ(one.size(), 10u);  // 5 steps of 50 images in each epoch
  const auto as_one = testing::Pointwise(testing::DoubleNear(2e-5), one);
  for (const std::string workers : {"2", "3", "4"}) {
    ASSERT_EQ(train(workers, "--workers " + workers).code, 0);
    EXPECT_THAT(losses(workers), as_one) << workers;
  }
  ASSERT_EQ(train("resumed", "--workers 4 --steps 3").code, 0);
  const Result rest = train("resumed", "--workers 3 --resume auto");
  ASSERT_EQ(rest.code, 0) << rest.err;
  EXPECT_THAT(losses("resumed"), as_one);
  ASSERT_EQ(train("uniform", "--set data.sampling=uniform").code, 0);
  EXPECT_THAT(losses("uniform"), Not(testing::Pointwise(testing::DoubleNear(2e-2), one)));
}

TEST_F(UnevenClasses, TheStartSaysHowOftenImagesComeAndWhichClassesHaveNone) {
  prepare_both();
  const std::string untrained = "1 of 4 classes has no training images: 'unseen'; 3 of 12 test images are of these",
                    shows =
                        "every class 17 times in an epoch: an image of 'one' (1 image) 17 times, one of 'many' (47 "
                        "images) 0.35 times";
  const Result balanced = train("balanced", "--steps 1");
  EXPECT_THAT(balanced.err, AllOf(HasSubstr(untrained), HasSubstr("balanced sampling shows " + shows)));
  const Result uniform = train("uniform", "--steps 1 --set data.sampling=uniform");
  EXPECT_THAT(uniform.err, AllOf(HasSubstr(untrained), Not(HasSubstr("balanced"))));
  EXPECT_THAT(owt("inspect " + file("data")).out, HasSubstr("sampling = \"balanced\" would show " + shows));

  const Result in_order = train("in_order", "--set data.shuffle=false");
  EXPECT_EQ(in_order.code, 1);
  EXPECT_THAT(in_order.err, AllOf(HasSubstr("small.toml"), HasSubstr("'shuffle' is false; leave one of them out")));
}

TEST_F(UnevenClasses, AClassThatCannotBeReadIsNamedWhenTheSetIsPrepared) {
  fs::create_directories(file("train/lost"));
  for (const char* name : {"a", "b"}) write(std::string("train/lost/") + name + ".jpg", "");
  for (const char* name : {"7", "8", "9"}) write(std::string("train/many/") + name + ".jpg", "");
  const Result strict = prepare("train", "");
  EXPECT_EQ(strict.code, 1);
  EXPECT_THAT(strict.err, AllOf(HasSubstr("5 of 52 images cannot be used, more than --max-skipped allows (0): "),
                                HasSubstr("lost/a.jpg empty file"), HasSubstr("many/9.jpg empty file")));
  for (const char* out : {"data", "new"}) {  // the shard of the failed command, and a new one
    const Result result = owt("prepare folder " + file("train") + " " + file(out) + " --max-skipped 10");
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.out, AllOf(HasSubstr("47 images of 4 classes"), HasSubstr("5 skipped")));
    EXPECT_THAT(result.err, AllOf(HasSubstr("not one image can be read of 'lost'\n"), Not(HasSubstr("many"))));
  }
}

TEST_F(UnevenClasses, ClassesThatOnlyTheTestImagesHaveAreNamedWithTheirCount) {
  write_images("val/other", 2);
  ASSERT_EQ(prepare("train", "").code, 0);
  const Result result = prepare("val", "--split val");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("the classes 'other', 'unseen' (5 images) are not in " + file("data")),
                                HasSubstr("name the classes of both splits in a file for --classes")));
  EXPECT_FALSE(fs::exists(file("data/val")));
}

}  // namespace
}  // namespace owt::uneven_classes_test
