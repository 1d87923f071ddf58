// Photos through a network with random weights, against its logits on the same pixels.
#include "src/commands/predict_photos.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "data/photos/photo.h"
#include "src/commands/extract.h"
#include "tests/support/message_of.h"
#include "tests/support/saved_net.h"
#include "tests/support/shards.h"

namespace owt::predict_photos_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kImage = 10, kCrop = 8;  // sides

class ClassifierTest : public ::testing::Test {
 protected:
  ClassifierTest() {
    settings_.data.image = {kImage, kImage, 3};
    settings_.data.augment.crop = kCrop;
    settings_.data.augment.scale = 0.01;
    settings_.data.batch = 4;
    settings_.run.device = "cpu";
  }

  std::string photo(int64_t number) const {
    write_png(net_.file(format("{}.png", number)), made_photo(number, kImage, kImage));
    return net_.file(format("{}.png", number));
  }
  ClassifyOptions options(const Views& views = {}, int top = 7) const {
    return {.weights = net_.weights(), .run_folder = "", .data = "", .threads = 1, .views = views, .top = top};
  }
  // By the definition: the crops are the centre and the corners in reading order, then the same mirrored.
  std::vector<double> probabilities(int64_t number, int views) {
    const Photo whole = made_photo(number, kImage, kImage);
    constexpr int64_t kEnd = kImage - kCrop;
    const int64_t tops[] = {kEnd / 2, 0, 0, kEnd, kEnd}, lefts[] = {kEnd / 2, 0, kEnd, 0, kEnd};
    std::vector<double> means(7, 0.0);
    for (int view = 0; view < views; ++view) {
      Tensor image({1, kCrop, kCrop, 3});
      for (int64_t y = 0; y < kCrop; ++y)
        for (int64_t x = 0; x < kCrop; ++x)
          for (int64_t c = 0; c < 3; ++c) {
            const int64_t from = lefts[view % 5] + (view >= 5 ? kCrop - 1 - x : x);
            image.data()[(y * kCrop + x) * 3 + c] =
                0.01f * whole.pixels[static_cast<size_t>(((tops[view % 5] + y) * kImage + from) * 3 + c)];
          }
      const std::vector<float> logits = net_.logits(image);
      double sum = 0;
      for (const float logit : logits) sum += std::exp(logit);
      const bool units = settings_.loss.type == LossType::kLogistic;
      for (size_t c = 0; c < 7; ++c)
        means[c] += (units ? 1 / (1 + std::exp(-logits[c])) : std::exp(logits[c]) / sum) / views;
    }
    return means;
  }

  Settings settings_ =
      settings_of_layers({"type='conv' out=5 kernel=3", "type='relu'", "type='dense' out=7"}, "[3, 8, 8]", 7);
  SavedNet net_{settings_};
};

TEST_F(ClassifierTest, ProbabilitiesAreTheMeanOverTheViews) {
  for (const auto& [views, type] : {std::pair{1, LossType::kSoftmax},
                                    {2, LossType::kSoftmax},
                                    {5, LossType::kSoftmax},
                                    {10, LossType::kSoftmax},
                                    {1, LossType::kLogistic},
                                    {10, LossType::kLogistic}}) {
    settings_.loss.type = type;
    Classifier classifier(settings_, options(views));
    const std::vector<std::string> files{photo(1), photo(2), photo(3)};
    const std::vector<PhotoPrediction> answers = classifier.classify(files);
    ASSERT_EQ(answers.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(answers[i].file, files[i]);
      ASSERT_EQ(answers[i].top.size(), 7u);
      const std::vector<double> expected = probabilities(static_cast<int64_t>(i) + 1, views);
      for (size_t t = 0; t < 7; ++t) {
        EXPECT_NEAR(answers[i].top[t].probability, expected[static_cast<size_t>(answers[i].top[t].index)], 1e-5)
            << views << " views of photo " << i;
        if (t > 0) {
          EXPECT_LE(answers[i].top[t].probability, answers[i].top[t - 1].probability);
        }
      }
    }
  }
}

TEST_F(ClassifierTest, MirrorAveragesLogits) {
  Classifier classifier(settings_, options(Views::mirror()));
  const std::vector<std::string> files{photo(1)};
  const Photo whole = made_photo(1, kImage, kImage);
  constexpr int64_t kBegin = (kImage - kCrop) / 2;
  Tensor image({2, kCrop, kCrop, 3});
  for (int64_t y = 0; y < kCrop; ++y)
    for (int64_t x = 0; x < kCrop; ++x)
      for (int64_t c = 0; c < 3; ++c) {
        const float value = 0.01f * whole.pixels[static_cast<size_t>(((kBegin + y) * kImage + kBegin + x) * 3 + c)];
        image.data()[(y * kCrop + x) * 3 + c] = value;
        image.data()[((kCrop + y) * kCrop + kCrop - 1 - x) * 3 + c] = value;
      }
  const std::vector<float> logits = net_.logits(image);
  std::vector<double> expected(7);
  double sum = 0;
  for (size_t c = 0; c < 7; ++c) sum += expected[c] = std::exp((logits[c] + logits[7 + c]) / 2.0);
  const std::vector<PhotoPrediction> answers = classifier.classify(files);
  ASSERT_EQ(answers.at(0).top.size(), 7u);
  for (const RankedClass& ranked : answers[0].top)
    EXPECT_NEAR(ranked.probability, expected[static_cast<size_t>(ranked.index)] / sum, 1e-5);
}

TEST_F(ClassifierTest, WhatIsNoPhotoSaysSoInItsPlace) {
  write_bytes(net_.file("text.png"), "Dear colleagues");
  Classifier classifier(settings_, options(1, 2));
  const std::vector<std::string> files{photo(1), net_.file("text.png"), net_.file("none.png"), photo(2)};
  const std::vector<PhotoPrediction> answers = classifier.classify(files);
  EXPECT_THAT(answers[0].error, IsEmpty());
  EXPECT_THAT(answers[1].error, HasSubstr("no image"));
  EXPECT_THAT(answers[2].error, Not(IsEmpty()));
  EXPECT_THAT(answers[3].error, IsEmpty());
  EXPECT_EQ(answers[0].top.size(), 2u);
  EXPECT_THAT(answers[1].top, IsEmpty());
  const auto alone = classifier.classify(std::span(files).subspan(3));
  EXPECT_EQ(alone[0].top[0].index, answers[3].top[0].index);
  const nlohmann::json json = nlohmann::json::parse(classifier.json(answers));
  ASSERT_EQ(json.size(), 4u);
  EXPECT_EQ(json[0]["file"], files[0]);
  EXPECT_EQ(json[0]["top"].size(), 2u);
  EXPECT_EQ(json[0]["top"][1]["class"], answers[0].top[1].index);
  EXPECT_EQ(json[0]["top"][1]["probability"], answers[0].top[1].probability);
  EXPECT_FALSE(json[0].contains("error"));
  EXPECT_EQ(json[1]["error"], answers[1].error);
  EXPECT_FALSE(json[1].contains("top"));
  EXPECT_THAT(classifier.classify(std::span(files).subspan(1, 2))[0].error, HasSubstr("no image"));
}

TEST_F(ClassifierTest, ClassesAreCalledByTheirNamesAsFarAsThereAreSome) {
  ClassifyOptions named = options();
  const TempFolder run;
  write_bytes(run.file("classes.txt"), "cat\ndog\nowl\n");
  named.run_folder = run.path();
  const Classifier classifier(settings_, named);
  std::vector<std::string> names;
  for (int c = 0; c < 7; ++c) names.push_back(classifier.class_name(c));
  EXPECT_THAT(names, ElementsAre("cat", "dog", "owl", "3", "4", "5", "6"));
}

TEST_F(ClassifierTest, EveryNumberOfWorkersGivesTheSameAnswersInTheOrderOfTheFiles) {
  std::vector<std::string> files;
  for (int64_t i = 0; i < 70; ++i) files.push_back(photo(i));
  write_bytes(net_.file("text.png"), "Dear colleagues");
  files[40] = net_.file("text.png");
  const auto json = [&](int workers) {
    ClassifyOptions given = options();
    given.workers = given.threads = workers;
    Classifier classifier(settings_, given);
    std::vector<PhotoPrediction> answers;
    classifier.each(files, [&](PhotoPrediction& answer) { answers.push_back(answer); });
    for (size_t i = 0; i < files.size(); ++i) EXPECT_EQ(answers.at(i).file, files[i]);
    return classifier.json(answers);
  };
  const std::string alone = json(1);
  for (const int workers : {2, 3, 5}) EXPECT_EQ(json(workers), alone) << workers;
}

// More than are taken at a time.
TEST_F(ClassifierTest, FeaturesOfManyPhotosAreInTheirOrder) {
  ExtractOptions extraction;
  extraction.source.weights = net_.weights();
  extraction.source.threads = 1;
  extraction.source.layer = "layer0";
  const auto features = [&](const std::vector<std::string>& files, const char* name) {
    extraction.source.photos = files;
    extraction.out = net_.file(name);
    EXPECT_EQ(extract(settings_, extraction), (Shape{std::ssize(files), 5, 6, 6}));
    const std::string all = read_file(net_.file(name));
    return all.substr(all.find('\n') + 1);
  };
  std::vector<std::string> files;
  for (int64_t i = 0; i < 35; ++i) files.push_back(photo(i));
  const std::string all = features(files, "all.npy");
  constexpr size_t kBytes = 5 * 6 * 6 * sizeof(float);
  ASSERT_EQ(all.size(), 35 * kBytes);
  for (const size_t i : {0u, 31u, 32u, 34u})
    EXPECT_EQ(features({files[i]}, "one.npy"), all.substr(i * kBytes, kBytes)) << i;
  extraction.source.workers = 3;
  EXPECT_EQ(features(files, "three.npy"), all);
  write_bytes(net_.file("text.png"), "Dear colleagues");
  files[33] = net_.file("text.png");
  for (const int workers : {1, 2}) {
    extraction.source.workers = workers;
    EXPECT_THAT(message_of([&] { features(files, "none.npy"); }), HasSubstr("text.png: "));
    EXPECT_FALSE(std::filesystem::exists(net_.file("none.npy")));
  }
}

}  // namespace
}  // namespace owt::predict_photos_test
