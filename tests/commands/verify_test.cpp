#include "src/commands/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "data/synthetic.h"
#include "src/files/verification_record.h"
#include "src/system/files.h"
#include "tests/support/harness.h"
#include "tests/support/made_photos.h"
#include "tests/support/message_of.h"
#include "tests/support/whole_runs.h"

namespace owt::verify_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ImagePairLists, NameFilesBesideTheListOrNumbers) {
  const TempFolder folder;
  write_bytes(folder.file("pairs.txt"), "b.png a.png 1\r\n\n  a.png\tsub/c d.png\t0\n/x/e.png b.png 0");
  const ImagePairs files = read_pairs(folder.file("pairs.txt"));
  EXPECT_THAT(files.files, ElementsAre(folder.file("b.png"), folder.file("a.png"), folder.file("  a.png"),
                                       folder.file("sub/c d.png"), "/x/e.png"));
  ASSERT_EQ(files.pairs.size(), 3u);
  EXPECT_EQ(files.pairs[1].a, 2);
  EXPECT_EQ(files.pairs[1].b, 3);
  EXPECT_EQ(files.pairs[2].b, 0);
  EXPECT_TRUE(files.pairs[0].same);
  EXPECT_FALSE(files.pairs[1].same);

  write_bytes(folder.file("numbers.txt"), "17 3 0\n3 3 1\n4 17 0\n");
  const ImagePairs numbers = read_pairs(folder.file("numbers.txt"));
  EXPECT_THAT(numbers.numbers, ElementsAre(3, 4, 17));
  EXPECT_EQ(numbers.pairs[0].a, 2);
  EXPECT_EQ(numbers.pairs[0].b, 0);
  EXPECT_EQ(numbers.pairs[2].a, 1);
  EXPECT_EQ(numbers.images(), 3);
}

TEST(ImagePairLists, AWrongLineIsNamed) {
  const TempFolder folder;
  const std::string path = folder.file("pairs.txt");
  const auto error = [&](const std::string& text) {
    write_bytes(path, text);
    return message_of([&] { read_pairs(path); });
  };
  for (const char* line : {"a b", "a b 1 c", "a b 2", "a b 01", "a 1", "a\tb 1", "1 2 -1"})
    EXPECT_THAT(error(concat("a b 1\n", line)), HasSubstr(concat(path, ":2: wanted two images and 1"))) << line;
  for (const char* line : {"a 2 1", "1 2.5 1", "-1 2 1", "1 99999999999999999999 0"})
    EXPECT_THAT(error(concat("\n1 2 0\n", line)), HasSubstr(concat(path, ":3: wanted numbers of images"))) << line;
  EXPECT_THAT(error("\n \n"), HasSubstr("has no pairs"));
  EXPECT_THAT(message_of([&] { read_pairs(folder.path()); }), HasSubstr("is a folder"));
  EXPECT_THAT(message_of([&] { read_pairs(folder.file("none.txt")); }), HasSubstr("No such file"));
}

// Pairs of 24 of 50 test images, more than one batch.
class VerifyTest : public WholeRuns, public DeviceTest {
 protected:
  void SetUp() override {
    run("run", {{"schedule.epochs", "1"}});
    settings_ = small_settings(kSmallRecipe, {{"run.device", name_of(device())}, {"data.batch", "16"}});
    options_.source.weights = weights_of("run");
    options_.source.threads = 1;
    options_.fars = {0.1, 0.5};
    options_.similarities = path("s.csv");
    for (int64_t i = 0; i < 12; ++i) pairs_.push_back({2 * i + 1, 49 - 2 * i, i % 3 == 0});
  }

  // The list with image(number) for each image.
  ImagePairs listed(const std::function<std::string(int64_t number)>& image) {
    std::string text;
    for (const auto& [a, b, same] : pairs_) text += format("{}\t{}\t{}\n", image(a), image(b), same ? 1 : 0);
    write_bytes(path("pairs.txt"), text);
    return read_pairs(path("pairs.txt"));
  }
  ImagePairs numbered() {
    return listed([](int64_t number) { return std::to_string(number); });
  }
  std::vector<double> similarities() const {
    std::vector<double> all;
    for (const std::string& line : text_lines(options_.similarities))
      if (std::isdigit(line.front())) all.push_back(std::stod(line.substr(line.rfind(',') + 1)));
    return all;
  }

  // From the layer's outputs for each image, the sum over these views.
  std::vector<double> expected(const std::string& layer, const std::vector<int>& views) {
    const SyntheticDataset test({.size = 50, .side = 16, .split = Split::kTest}), train({.size = 100, .side = 16});
    const Augmenter augmenter(settings_.data.augment, {16, 16, 3}, compute_statistics(train));
    Inference network(for_one_rank(settings_), options_.source.weights, layer);
    const auto embedding = [&](int64_t image) {
      std::vector<uint8_t> pixels(16 * 16 * 3);
      test.read(image, View{}, pixels.data());
      std::vector<double> sum(static_cast<size_t>(network.out().elements()));
      for (const int view : views) {
        Tensor x({1, 12, 12, 3});
        augmenter.make(View{.number = view}, image, pixels.data(), x.data());
        const Tensor y = network.run(x);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += y.data()[i];
      }
      return sum;
    };
    std::vector<double> all;
    for (const ImagePair& pair : pairs_) {
      const std::vector<double> a = embedding(pair.a), b = embedding(pair.b);
      double ab = 0, aa = 0, bb = 0;
      for (size_t i = 0; i < a.size(); ++i) ab += a[i] * b[i], aa += a[i] * a[i], bb += b[i] * b[i];
      all.push_back(ab / std::sqrt(aa * bb));
    }
    return all;
  }
  void expect_similarities(const std::vector<double>& wanted) const {
    const std::vector<double> found = similarities();
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-5) << i;
  }

  Settings settings_;
  VerifyOptions options_;
  std::vector<ImagePair> pairs_;  // with the numbers of test images
};
INSTANTIATE_TEST_SUITE_P(Devices, VerifyTest, ::testing::ValuesIn(devices()), device_name);

TEST_P(VerifyTest, SimilaritiesAreCosinesOfTheInputsOfTheLastLayer) {
  const Verification result = verify(settings_, numbered(), options_);
  EXPECT_EQ(result.layer, "relu4");
  EXPECT_EQ(result.images, 24);
  EXPECT_EQ(result.roc.same, 4);
  EXPECT_EQ(result.roc.different, 8);
  expect_similarities(expected("relu4", {0}));
}

TEST_P(VerifyTest, FlippingTakesTheMeanWithTheMirrorImage) {
  options_.source.mirrored = true;
  options_.source.layer = "conv2";
  verify(settings_, numbered(), options_);
  expect_similarities(expected("conv2", {10, 11}));
}

TEST_P(VerifyTest, PhotosGiveTheSameAsTheNumbersOfTheirImages) {
  for (const bool mirrored : {false, true}) {
    options_.source.mirrored = mirrored;
    verify(settings_, numbered(), options_);
    const std::vector<double> wanted = similarities();
    const SyntheticDataset test({.size = 50, .side = 16, .split = Split::kTest});
    verify(settings_, listed([&](int64_t number) {
             Photo photo{.height = 16, .width = 16, .pixels = std::vector<uint8_t>(16 * 16 * 3)};
             test.read(number, View{}, photo.pixels.data());
             const std::string name = format("{}.bmp", number);
             write_bytes(path(name), made_bmp(photo));
             return name;
           }),
           options_);
    expect_similarities(wanted);
  }
}

class VerifyOnHost : public VerifyTest {};
INSTANTIATE_TEST_SUITE_P(Host, VerifyOnHost, ::testing::Values(Device::kCpu), device_name);

TEST_P(VerifyOnHost, TheFilesHoldWhatIsPrinted) {
  options_.roc = path("roc.csv");
  options_.json = path("v.json");
  const Verification result = verify(settings_, numbered(), options_);
  const std::string text = verification_text(result, options_);
  EXPECT_THAT(text, HasSubstr("12 pairs, 4 same and 8 different, of 24 images"));
  EXPECT_THAT(text, HasSubstr(" at FAR 0.5, threshold "));
  EXPECT_THAT(text, HasSubstr(" of 8 different pairs accepted\n"));
  const auto json = nlohmann::json::parse(read_file(options_.json));
  EXPECT_EQ(json["folds"].size(), 10u);
  EXPECT_EQ(json["at_far"][1]["tar"], result.roc.tar(result.roc.at_far(0.5)));
  EXPECT_EQ(json["accuracy"], result.accuracy());
  const std::vector<std::string> lines = text_lines(options_.roc);
  EXPECT_EQ(lines.size(), 1 + result.roc.points.size());
  EXPECT_EQ(lines[1], "2,0,0");
  EXPECT_THAT(lines.back(), ::testing::EndsWith(",1,1"));
}

TEST_P(VerifyOnHost, TheRunGetsAResultForEachList) {
  options_.run = path("run");
  for (const char* list : {"far/a.txt", "b"}) {
    options_.pairs = list;
    options_.json = path("v.json");
    verify(settings_, numbered(), options_);
  }
  std::vector<std::string> wrong;
  const std::vector<VerificationRecord> records = verifications_of(path("run"), wrong);
  EXPECT_THAT(wrong, IsEmpty());
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].name, "a");
  EXPECT_EQ(records[1].name, "b");
  EXPECT_EQ(records[1].same_pairs, 4);
  EXPECT_EQ(records[1].at_far.size(), 2u);
  EXPECT_EQ(records[1].roc.back().far, 1);
  EXPECT_EQ(read_file(path("run") + "/verification/b.json"), read_file(options_.json));
}

TEST_P(VerifyOnHost, ARunThatCannotGetTheResultIsAWarning) {
  options_.run = path("run"), options_.pairs = "a.txt";
  write_bytes(path("run") + "/verification", "a file");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(verify(settings_, numbered(), options_).images, 24);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("the run does not get the result: "));
}

TEST_P(VerifyOnHost, AnImageThatIsNotThereIsNamed) {
  pairs_[3].b = 50;
  EXPECT_THAT(message_of([&] { verify(settings_, numbered(), options_); }),
              HasSubstr("there is no image 50 in split test, which has 50, numbered from 0"));
  EXPECT_THAT(message_of([&] { verify(settings_, listed([](int64_t) { return "none.bmp"; }), options_); }),
              HasSubstr(path("none.bmp") + ": No such file"));
}

}  // namespace
}  // namespace owt::verify_test
