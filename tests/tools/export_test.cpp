// Export of networks to other programs: owt export.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/program.h"

namespace owt::export_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ExportTest : public ProgramTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(owt("prepare synthetic " + file("data") + " --train 100 --test 20").code, 0);
    const Result trained = owt("train " + config("cifar10_quick.toml") + " --data " + file("data") + " --out " +
                               file("run") + " --steps 2 --device cpu --set data.batch=25");
    ASSERT_EQ(trained.code, 0) << trained.err;
    const Result tried = owt("export " + file("run") + " --onnx " + file("tried.onnx"));
    if (tried.err.find("built without ONNX") != std::string::npos) GTEST_SKIP() << tried.err;
  }
  std::string onnx() const { return file("net.onnx"); }
};

// The run folder has the weights, the per-pixel means and the names of the classes.
TEST_F(ExportTest, ARunFolderIsAllItNeeds) {
  fs::remove_all(file("data"));
  const Result plain = owt("export " + file("run") + " --onnx " + onnx());
  ASSERT_EQ(plain.code, 0) << plain.err;
  const std::string bytes = read_file(onnx());
  EXPECT_THAT(bytes, AllOf(HasSubstr("conv1.weight"), HasSubstr("logits"), HasSubstr("owt.classes"),
                           HasSubstr("of each pixel"), Not(HasSubstr("pixel.mean"))));
  const Result raw = owt("export " + file("run") + " --onnx " + onnx() + " --raw --softmax --batch 2 --opset 11");
  ASSERT_EQ(raw.code, 0) << raw.err;
  EXPECT_THAT(read_file(onnx()), AllOf(HasSubstr("pixel.mean"), HasSubstr("probabilities")));
}

TEST_F(ExportTest, IntegersTakeAQuarterOfTheBytesAndNeedTrainingImages) {
  const auto megabytes = [&](const std::string& words) {
    const Result result = owt("export " + file("run") + " --data " + file("data") + " --onnx " + onnx() + words);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("--int8"))) << words;
    return static_cast<double>(fs::file_size(onnx()));
  };
  EXPECT_LT(megabytes(" --int8 --calibrate 20"), 0.3 * megabytes(""));
  fs::remove_all(file("data"));
  const Result without = owt("export " + file("run") + " --data " + file("data") + " --onnx " + onnx() + " --int8");
  EXPECT_EQ(without.code, 1);
  EXPECT_THAT(without.err, HasSubstr(file("data")));
}

TEST_F(ExportTest, MeansOfOtherDataAreNotTaken) {
  ASSERT_EQ(owt("prepare synthetic " + file("other") + " --train 60 --test 5 --seed 7").code, 0);
  ASSERT_EQ(owt("export " + file("run") + " --raw --onnx " + onnx()).code, 0);
  const Result other = owt("export " + file("run") + " --raw --onnx " + file("b.onnx") + " --data " + file("other"));
  ASSERT_EQ(other.code, 0) << other.err;
  EXPECT_THAT(other.err, HasSubstr("--data " + file("other") + " is not used"));
  EXPECT_TRUE(read_file(onnx()) == read_file(file("b.onnx")));
}

// A run with averages of the weights exports these; the plain weights must be named.
TEST_F(ExportTest, ARunWithAveragesGivesThoseToEverybody) {
  const std::string run = file("averaged"), checkpoint = run + "/checkpoints/step-00000003";
  const Result trained = owt("train " + config("cifar10_quick.toml") + " --data " + file("data") + " --out " + run +
                             " --steps 3 --device cpu --set data.batch=25 --set optimizer.ema=0.9999");
  ASSERT_EQ(trained.code, 0) << trained.err;
  const auto exported = [&](const std::string& of) {
    const Result result = owt("export " + of + " --onnx " + onnx());
    EXPECT_EQ(result.code, 0) << result.err;
    return read_file(onnx());
  };
  const std::string averaged = exported(run);
  EXPECT_EQ(exported(run + " --weights " + checkpoint + "/ema.safetensors"), averaged);
  EXPECT_EQ(exported(run + " --weights " + checkpoint), averaged);
  EXPECT_EQ(exported(run + " --weights " + run), averaged);
  EXPECT_NE(exported(run + " --weights " + checkpoint + "/weights.safetensors"), averaged);
  const Result evaluated = owt("eval " + run);
  EXPECT_THAT(evaluated.err, HasSubstr("with the averaged weights of " + checkpoint));
  EXPECT_THAT(trained.out, HasSubstr("test accuracy: " + evaluated.out.substr(0, evaluated.out.find(" ("))));
  EXPECT_THAT(owt("inspect " + run).out, HasSubstr("with averages of the weights up to step 3, ema.safetensors"));
  const Result tuned = owt("train " + run + "/config.toml --out " + file("tuned") + " --steps 1 --weights " + run);
  EXPECT_THAT(tuned.err, HasSubstr("tensors taken from " + checkpoint + "/ema.safetensors"));
  const Result none = owt("eval " + run + " --weights " + file("data"));
  EXPECT_THAT(none.err, HasSubstr("--weights " + file("data") + ": the folder is no checkpoint and no run with one"));
}

TEST_F(ExportTest, WrongCommandLinesExitWithTwoAndWriteNothing) {
  const std::string command = "export " + file("run") + " ";
  EXPECT_THAT(owt(command).err, HasSubstr("--onnx FILE is missing"));
  EXPECT_EQ(owt(command).code, 2);
  EXPECT_EQ(owt(command + "--onnx " + onnx() + " --opset 10").code, 2);
  EXPECT_EQ(owt(command + "--onnx " + onnx() + " --batch 0").code, 2);
  EXPECT_THAT(owt(command + "--onnx " + onnx() + " --int8 --opset 12").err, HasSubstr("--int8 needs --opset 13"));
  EXPECT_EQ(owt(command + "--onnx " + onnx() + " --int8 --opset 12").code, 2);
  EXPECT_THAT(owt(command + "--onnx " + onnx() + " --int8 --calibration mean").err,
              HasSubstr("wanted minmax, percentile or kl"));
  EXPECT_THAT(owt(command + "--onnx " + onnx() + " --calibrate 9").err, HasSubstr("--calibrate is for --int8"));
  EXPECT_EQ(owt(command + "--onnx " + onnx() + " --batch some").code, 2);
  EXPECT_FALSE(fs::exists(onnx()));
}

TEST_F(ExportTest, AFileThatCannotBeWrittenIsOneError) {
  const Result failed = owt("export " + file("run") + " --onnx " + file("no/folder/net.onnx"));
  EXPECT_EQ(failed.code, 1);
  EXPECT_THAT(failed.err, AllOf(HasSubstr("owt: error: "), HasSubstr("no/folder/net.onnx")));
}

}  // namespace
}  // namespace owt::export_test
