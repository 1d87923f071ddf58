// Outputs of a trained network through the program: owt eval, owt predict, owt extract.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/cifar.h"
#include "data/photos/photo.h"
#include "src/system/log.h"
#include "tests/support/csv.h"
#include "tests/support/program.h"

namespace owt::answers_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

// A run on made-up images in CIFAR's format, all of which the folder img holds as PNG files.
class AnswersTest : public ProgramTest {
 protected:
  static constexpr int64_t kImages = 35;

  // The first test of a process makes data and run, which the others get at the same place.
  void SetUp() override {
    static const TempFolder made;
    if (fs::is_empty(made.path())) {
      ASSERT_EQ(owt("prepare synthetic " + file("data") + " --train 100 --test " + std::to_string(kImages)).code, 0);
      const Result trained = owt("train " + config("cifar10_quick.toml") + " --data " + file("data") + " --out " +
                                 file("run") + " --steps 4 --device cpu --set data.batch=25");
      ASSERT_EQ(trained.code, 0) << trained.err;
      fs::copy(file("."), made.path(), fs::copy_options::recursive);
    } else {
      for (const auto& entry : fs::directory_iterator(file("."))) fs::remove_all(entry);
      fs::copy(made.path(), file("."), fs::copy_options::recursive);
    }
  }
  static std::string file(const std::string& name) {
    static const TempFolder place;
    return place.file(name);
  }
  static std::string write(const std::string& name, const std::string& text) {
    write_bytes(file(name), text);
    return file(name);
  }
  // Moves the data away: the run folder has everything that the network needs.
  void move_data_away() { fs::rename(file("data"), file("elsewhere")); }

  std::string image_files() {
    fs::create_directory(file("img"));
    const auto test = read_cifar(file("data"), CifarKind::k10, Split::kTest);
    for (int64_t i = 0; i < kImages; ++i) {
      Photo photo{32, 32, std::vector<uint8_t>(32 * 32 * 3)};
      test->read(i, View{}, photo.pixels.data());
      write_png(image_file(i), photo);
    }
    return file("img") + "/*.png";
  }
  std::string image_file(int64_t i) const { return file("img/") + std::to_string(100 + i) + ".png"; }
};

TEST_F(AnswersTest, PredictSaysOfImageFilesWhatEvalSaysOfTheDataSet) {
  const Result eval = owt("eval " + file("run") + " --views 10 --predictions " + file("p.csv"));
  ASSERT_EQ(eval.code, 0) << eval.err;
  EXPECT_THAT(eval.err, HasSubstr("with the weights of " + file("run") + "/checkpoints/step-00000004"));
  EXPECT_THAT(eval.out, AllOf(HasSubstr("top-1 "), HasSubstr("(35 test images, 10 views)")));
  const std::string files = image_files();
  move_data_away();
  const Result predicted = owt("predict " + file("run") + " " + files + " --views 10 --json");
  ASSERT_EQ(predicted.code, 0) << predicted.err;
  const Json answers = Json::parse(predicted.out);
  const std::vector<PredictedLine> expected = read_predictions(file("p.csv"));
  ASSERT_EQ(answers.size(), 35u);
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i]["file"], image_file(static_cast<int64_t>(i)));
    const Json& top = answers[i]["top"];
    ASSERT_EQ(top.size(), 5u);
    for (size_t t = 0; t < 5; ++t) {
      EXPECT_NEAR(top[t]["probability"].get<double>(), expected[i].top[t].probability, 1e-5);
      if (t == 0) {
        EXPECT_EQ(top[t]["class"], expected[i].top[t].index);
        EXPECT_EQ(top[t]["name"], expected[i].top[t].name);
      }
    }
  }
}

TEST_F(AnswersTest, ADamagedCheckpointIsSkippedUnlessItIsNamed) {
  const Result trained = owt("train " + file("run") + " --out " + file("two") +
                             " --set run.checkpoint_every_steps=2 --set run.keep_checkpoints=2");
  ASSERT_EQ(trained.code, 0) << trained.err;
  image_files();
  const std::string older = file("two/checkpoints/step-00000002"), newer = file("two/checkpoints/step-00000004");
  write_bytes(newer + "/weights.safetensors", read_file(newer + "/weights.safetensors") + "more");
  for (std::string words :
       std::vector<std::string>{"eval RUN", "predict RUN " + image_file(0), "export RUN --onnx " + file("net.onnx"),
                                "extract RUN --layer fc1 --out " + file("fc1.npy")}) {
    const std::string line = words.replace(words.find("RUN"), 3, file("two"));
    const Result of_run = owt(line), of_newer = owt(line + " --weights " + newer);
    if (of_run.err.find("built without ONNX") != std::string::npos) continue;
    EXPECT_EQ(of_run.code, 0) << of_run.err;
    EXPECT_THAT(of_run.err, AllOf(HasSubstr("the checkpoint " + newer + " is passed over: "),
                                  HasSubstr("with the weights of " + older)));
    EXPECT_EQ(of_newer.code, 1) << line;
    EXPECT_THAT(of_newer.err, HasSubstr("is damaged: its checksum is "));
    EXPECT_THAT(of_newer.err, HasSubstr("take another checkpoint: " + older));
  }
}

TEST_F(AnswersTest, APhotoOfAnySizeIsResizedToTheImagesOfTheDataSet) {
  image_files();
  // Twice as large, with grey stripes left and right that a square in the centre does not show.
  const Photo small = read_photo(read_file(image_file(3)));
  Photo large{64, 84, std::vector<uint8_t>(64 * 84 * 3, 128)};
  for (size_t y = 0; y < 64; ++y)
    for (size_t x = 0; x < 64; ++x)
      for (size_t c = 0; c < 3; ++c)
        large.pixels[(y * 84 + x + 10) * 3 + c] = small.pixels[(y / 2 * 32 + x / 2) * 3 + c];
  write_png(file("large.png"), large);
  const Result result = owt("predict " + file("run") + " --json " + image_file(3) + " " + file("large.png"));
  ASSERT_EQ(result.code, 0) << result.err;
  const Json answers = Json::parse(result.out);
  for (size_t t = 0; t < 5; ++t)
    EXPECT_NEAR(answers[0]["top"][t]["probability"].get<double>(), answers[1]["top"][t]["probability"].get<double>(),
                1e-6);
}

TEST_F(AnswersTest, AnUnreadableImageIsReportedAndTheOthersAreClassified) {
  image_files();
  write("bad.jpg", "no photo");
  const std::string words = "predict " + file("run") + " " + image_file(0) + " " + file("bad.jpg") + " " +
                            file("none.png") + " " + image_file(1) + " --top 2";
  const Result text = owt(words);
  EXPECT_EQ(text.code, 1);
  EXPECT_THAT(text.out, AllOf(HasSubstr(image_file(0)), HasSubstr(image_file(1)), Not(HasSubstr("bad.jpg"))));
  EXPECT_EQ(std::count(text.out.begin(), text.out.end(), '%'), 4);
  EXPECT_THAT(text.err, AllOf(HasSubstr("owt: error: " + file("bad.jpg")), HasSubstr("none.png: No such file")));
  const Result json = owt(words + " --json");
  EXPECT_EQ(json.code, 1);
  const Json answers = Json::parse(json.out);
  ASSERT_EQ(answers.size(), 4u);
  EXPECT_TRUE(answers[1].contains("error") && answers[2].contains("error"));
  EXPECT_FALSE(answers[1].contains("top"));
  EXPECT_EQ(answers[3]["top"].size(), 2u);
}

TEST_F(AnswersTest, MeansAreThoseOfTheRunThatTheWeightsAreOfAndOnlyWithoutOneThoseOfTheData) {
  image_files();
  const std::string weights = file("run") + "/checkpoints/step-00000004/weights.safetensors",
                    words = "predict " + config("cifar10_quick.toml") + " " + image_file(0) + " --weights ",
                    of_run = owt("predict " + file("run") + " " + image_file(0)).out;
  ASSERT_EQ(owt("prepare synthetic " + file("other") + " --train 60 --test 5 --seed 7").code, 0);
  EXPECT_EQ(owt(words + weights).out, of_run);
  EXPECT_EQ(owt(words + file("run")).out, of_run);
  const Result given = owt("predict " + file("run") + " " + image_file(0) + " --data " + file("other"));
  EXPECT_EQ(given.out, of_run);
  EXPECT_THAT(given.err, AllOf(HasSubstr("--data " + file("other") + " is not used"), HasSubstr("has different ones")));
  const Result other =
      owt("eval " + config("cifar10_quick.toml") + " --weights " + file("run") + " --data " + file("other"));
  EXPECT_EQ(other.out, owt("eval " + file("run") + " --data " + file("other")).out);
  EXPECT_THAT(other.err, HasSubstr("using the means and deviations of " + file("run")));

  fs::copy_file(weights, file("loose.safetensors"));
  const Result without = owt(words + file("loose.safetensors"));
  EXPECT_EQ(without.code, 1);
  EXPECT_THAT(without.err, HasSubstr("--data DIR"));
  EXPECT_EQ(owt(words + file("loose.safetensors") + " --data " + file("data")).out, of_run);
  const Result no_weights = owt("predict " + config("cifar10_quick.toml") + " " + image_file(0));
  EXPECT_EQ(no_weights.code, 2);
  EXPECT_THAT(no_weights.err, HasSubstr("--weights FILE is missing"));
}

TEST_F(AnswersTest, ExtractWritesTheSameFeaturesOfFilesAsOfTheDataSet) {
  const std::string files = image_files();
  const Result of_data =
      owt("extract " + file("run") + " --layer conv2 --out " + file("a.npy") + " --labels " + file("l.npy"));
  ASSERT_EQ(of_data.code, 0) << of_data.err;
  EXPECT_THAT(of_data.out, HasSubstr("35x32x16x16"));
  move_data_away();
  ASSERT_EQ(owt("extract " + file("run") + " --layer conv2 --out " + file("b.npy") + " " + files).code, 0);
  const std::string a = read_file(file("a.npy")), b = read_file(file("b.npy"));
  ASSERT_EQ(a.size(), 128u + 35 * 32 * 16 * 16 * 4);
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(a.substr(0, 128), b.substr(0, 128));
  for (size_t at = 128; at < a.size(); at += 4) {
    float x = 0, y = 0;
    std::memcpy(&x, a.data() + at, 4);
    std::memcpy(&y, b.data() + at, 4);
    ASSERT_NEAR(x, y, 1e-4);
  }
  EXPECT_EQ(read_file(file("l.npy")).size(), 128u + 35 * 8);
}

TEST_F(AnswersTest, ExtractRefusesWhatItCannotDo) {
  image_files();
  write("bad.jpg", "no photo");
  const std::string words = "extract " + file("run") + " --out " + file("x.npy");
  EXPECT_EQ(owt(words).code, 2);
  EXPECT_THAT(owt(words + " --layer fc3").err, HasSubstr("did you mean 'fc"));
  EXPECT_EQ(owt(words + " --layer fc1 --split val").code, 2);
  EXPECT_EQ(owt(words + " --layer fc1 --split vla").code, 2);
  EXPECT_EQ(owt(words + " --layer fc1 --labels l.npy " + image_file(0)).code, 2);
  const Result bad = owt(words + " --layer fc1 " + image_file(0) + " " + file("bad.jpg"));
  EXPECT_EQ(bad.code, 1);
  EXPECT_THAT(bad.err, HasSubstr("bad.jpg: "));
  EXPECT_FALSE(fs::exists(file("x.npy")) || fs::exists(file("x.npy.tmp")));
}

TEST_F(AnswersTest, OutputsAreCheckedBeforeTheWork) {
  write("x.npy", "kept");
  const std::string extract = "extract " + file("run") + " --layer fc1 --weights none.safetensors --out ";
  const Result same = owt(extract + file("x.npy") + " --labels " + file("./x.npy"));
  EXPECT_EQ(same.code, 2);
  EXPECT_THAT(same.err, HasSubstr("--out and --labels name the same file"));
  EXPECT_EQ(read_file(file("x.npy")), "kept");
  EXPECT_EQ(owt("eval " + file("run") + " --predictions " + file("p") + " --confusion " + file("p")).code, 2);
  EXPECT_FALSE(fs::exists(file("p")));
  EXPECT_THAT(owt("import net.onnx --out " + file("x.safetensors")).err, HasSubstr("would be one file"));
  // Before the missing weights are.
  EXPECT_THAT(owt("export " + file("run") + " --weights none.safetensors --onnx " + file("none/net.onnx")).err,
              HasSubstr("none/net.onnx: "));
  EXPECT_THAT(owt(extract + file(".")).err, HasSubstr("it is a folder; name a file"));
  EXPECT_THAT(owt(extract + file("none/x.npy")).err, HasSubstr("none/x.npy: "));
  EXPECT_THAT(owt("eval " + file("run") + " --confusion /dev/null").err, HasSubstr("a device"));
}

TEST_F(AnswersTest, EvalTakesTrainingImagesAndRefusesWrongOptions) {
  const Result train = owt("eval " + file("run") + " --split train --confusion " + file("c.csv"));
  ASSERT_EQ(train.code, 0) << train.err;
  EXPECT_THAT(train.out, HasSubstr("(100 training images)"));
  EXPECT_EQ(owt("eval " + file("run") + " --views 11").code, 2);
  EXPECT_THAT(owt("eval " + file("run") + " --views shifted").err, HasSubstr("wanted 1 to 10, mirror or shift"));
  EXPECT_THAT(owt("eval " + file("run") + " --views mirror").out, HasSubstr("(35 test images, mirror views)"));
  EXPECT_THAT(owt("eval " + file("run") + " --views shift --set data.batch=24 --workers 2 --parallel owt-c").out,
              HasSubstr("(35 test images, shift views)"));
  const Result none_held_out = owt("eval " + file("run") + " --split val");
  EXPECT_EQ(none_held_out.code, 2);
  EXPECT_THAT(none_held_out.err, AllOf(HasSubstr("holds no validation images out"), HasSubstr("data.validation=0.1")));
  EXPECT_THAT(owt("eval " + file("run") + " --split valid").err, HasSubstr("wanted test, val or train"));
  const Result nowhere = owt("eval " + file("run") + " --predictions " + file("none/p.csv"));
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_THAT(nowhere.err, HasSubstr("none/p.csv"));
  EXPECT_EQ(owt("eval " + file("data") + " --weights x").code, 1);  // no run folder
}

TEST_F(AnswersTest, EvalTakesAnyNumberOfWorkersWhateverTheRecipeSaysForItsOwn) {
  const auto loss_in = [](const Result& eval) {
    const size_t at = eval.out.find("loss ");
    EXPECT_NE(at, std::string::npos) << eval.err;
    return at == std::string::npos ? 0 : std::stod(eval.out.substr(at + 5));
  };
  const double wanted = loss_in(owt("eval " + file("run")));
  EXPECT_NEAR(loss_in(owt("eval " + file("run") + " --workers 3 --parallel dp")), wanted, 1e-3);  // 25 rows a step
  for (const auto& [more, workers] :
       {std::pair("[parallel]\nworkers = 4\nstrategy = 'owt-d'\nmodel_ranks = 2\nshares = [1, 2, 1, 1]\n", "3"),
        {"[parallel]\nworkers = 3\nstrategy = 'ps'\n[ps]\nservers = 2\ntolerate_loss = true\n", "2"},
        {"[parallel]\nworkers = 2\nstrategy = 'pipeline'\n[pipeline]\nstages = ['conv2']\n", "17"}}) {
    const std::string recipe = write("other.toml", read_file(file("run/config.toml")) + more);
    const Result eval = owt("eval " + recipe + " --weights " + file("run") + " --workers " + workers);
    EXPECT_NEAR(loss_in(eval), wanted, 1e-3) << more;
    EXPECT_THAT(eval.err, HasSubstr("because no result depends on it: ")) << more;
  }
}

TEST_F(AnswersTest, EvalPrintsATableOfTheClasses) {
  const Result result = owt("eval " + file("run") + " --per-class");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("(35 test images)\nclass "), HasSubstr("most frequent wrong class\n")));
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 13);  // ten classes
}

TEST_F(AnswersTest, EvalWritesItsFiguresAsJson) {
  const Result printed = owt("eval " + file("run") + " --views mirror --per-class --json -");
  ASSERT_EQ(printed.code, 0) << printed.err;
  const Json figures = Json::parse(printed.out);
  const Result text = owt("eval " + file("run") + " --views mirror --json " + file("e.json"));
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr(format("top-1 {:.2f} %, top-5 {:.2f} %, loss {:.4f} (35 test images, mirror views)\n",
                                         100 * figures["top1"].get<double>(), 100 * figures["top5"].get<double>(),
                                         figures["loss"].get<double>())));
  Json written = Json::parse(read_file(file("e.json")));
  EXPECT_FALSE(written.contains("classes") || written.contains("mean_top1_of_classes"));
  EXPECT_THAT(written["weights"].get<std::string>(), HasSubstr("checkpoints/step-00000004"));
  EXPECT_EQ(written["split"], "test");
  EXPECT_EQ(written["views"], "mirror");
  for (const char* same : {"format", "weights", "split", "views", "images", "loss", "top1", "top5"})
    EXPECT_EQ(written[same], figures[same]) << same;
  EXPECT_EQ(Json::parse(owt("eval " + file("run") + " --views 2 --json -").out)["views"], 2);
  EXPECT_NEAR(written["images_per_second"].get<double>() * written["seconds"].get<double>(), 35, 1e-6);
  ASSERT_EQ(figures["classes"].size(), 10u);
  int64_t images = 0;
  double right = 0, mean_of_classes = 0;
  for (const Json& of : figures["classes"]) {
    mean_of_classes += of["top1"].get<double>();
    images += of["images"].get<int64_t>();
    right += of["top1"].get<double>() * of["images"].get<double>();
    EXPECT_EQ(of["class"].get<size_t>(), static_cast<size_t>(&of - &figures["classes"][0]));
  }
  EXPECT_EQ(images, 35);
  EXPECT_NEAR(figures["mean_top1_of_classes"].get<double>(), mean_of_classes / 10, 1e-12);
  EXPECT_NEAR(right, 35 * figures["top1"].get<double>(), 1e-6);
  EXPECT_EQ(owt("eval " + file("run") + " --json " + file("e.json") + " --confusion " + file("e.json")).code, 2);
  EXPECT_THAT(owt("eval " + file("run") + " --json " + file("none/e.json")).err, HasSubstr("none/e.json: "));
}

TEST_F(AnswersTest, ARunWithHeldOutImagesSaysWhichItsFiguresAreOf) {
  const Result trained = owt("train " + config("cifar10_quick.toml") + " --data " + file("data") + " --out " +
                             file("held") + " --steps 2 --set data.batch=25 --set data.validation=20");
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.out,
              AllOf(HasSubstr("validation accuracy: top-1 "), HasSubstr("(20 images held out of the training images)"),
                    HasSubstr("owt eval " + file("held") + " measures the best checkpoint on the test")));
  const Result held_out = owt("eval " + file("held") + " --split val");
  ASSERT_EQ(held_out.code, 0) << held_out.err;
  EXPECT_THAT(held_out.out, HasSubstr("(20 validation images)"));
  EXPECT_THAT(trained.out, HasSubstr("validation accuracy: " + held_out.out.substr(0, held_out.out.find(", loss"))));
  EXPECT_THAT(owt("eval " + file("held")).out, HasSubstr("(35 test images)"));
  EXPECT_THAT(owt("eval " + file("held") + " --split train").out, HasSubstr("(80 training images)"));
  const Result features =
      owt("extract " + file("held") + " --layer fc1 --split val --out " + file("f.npy") + " --labels " + file("l.npy"));
  ASSERT_EQ(features.code, 0) << features.err;
  EXPECT_THAT(features.out, HasSubstr(": 20x"));
}

TEST_F(AnswersTest, TheMeanOfTheLastCheckpointsIsMeasuredAsAnyWeights) {
  ASSERT_EQ(owt("train " + config("cifar10_quick.toml") + " --data " + file("data") + " --out " + file("kept") +
                " --steps 4 --set data.batch=25 --set run.checkpoint_every_steps=1")
                .code,
            0);
  const Result few = owt("average " + file("kept") + " --last 5");
  EXPECT_EQ(few.code, 1);
  EXPECT_THAT(few.err, AllOf(HasSubstr("--last wants 5; ask for --last "), HasSubstr("run.keep_checkpoints = 5")));
  const Result mean = owt("average " + file("kept") + " --last 3");
  ASSERT_EQ(mean.code, 0) << mean.err;
  const std::string weights = file("kept/average.safetensors");
  EXPECT_THAT(mean.out, AllOf(HasSubstr(weights + ": the mean of 3 checkpoints, steps 2, 3, 4 (0.15 M values)"),
                              HasSubstr("owt eval " + file("kept") + " --weights " + weights)));
  EXPECT_THAT(owt("eval " + file("kept") + " --weights " + weights).out, HasSubstr("(35 test images)"));
  EXPECT_EQ(owt("average " + file("kept") + " --last 3").code, 1);
  EXPECT_EQ(owt("average " + file("kept") + " --last 3 --force").code, 0);
  EXPECT_EQ(owt("average " + file("kept") + " --last 0").code, 2);
  EXPECT_THAT(owt("average " + file("data")).err, HasSubstr("is no run folder"));
}

TEST_F(AnswersTest, WeightsThatAreNotFiniteAreNamedByTheirFile) {
  fs::copy_file(file("run/checkpoints/step-00000004/weights.safetensors"), file("bad.safetensors"));
  const auto size = fs::file_size(file("bad.safetensors"));
  std::string bytes = read_file(file("bad.safetensors"));
  const float nan = std::nanf("");
  std::memcpy(bytes.data() + size - 4, &nan, 4);
  write_bytes(file("bad.safetensors"), bytes);
  const Result result = owt("eval " + file("run") + " --weights " + file("bad.safetensors"));
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("look at the weights in " + file("bad.safetensors")), Not(HasSubstr("learning rate"))));
}

TEST_F(AnswersTest, AnUpperBoundIsShownInFull) {
  EXPECT_THAT(owt("predict " + file("run") + " x.png --top 0").err, HasSubstr("from 1 to 16777216"));
}

}  // namespace
}  // namespace owt::answers_test
