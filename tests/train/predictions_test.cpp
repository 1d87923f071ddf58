#include "src/train/predictions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "data/memory_dataset.h"
#include "data/synthetic.h"
#include "src/comm/solo.h"
#include "src/comm/threads.h"
#include "src/core/memory.h"
#include "src/core/philox.h"
#include "src/files/safetensors.h"
#include "src/train/evaluate.h"
#include "src/train/inference.h"
#include "tests/support/csv.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"
#include "tests/support/target_tables.h"
#include "tests/support/whole_runs.h"

namespace owt::predictions_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

MeanProbabilities mean_of(int label, const std::vector<std::vector<float>>& views, LossType type = LossType::kSoftmax) {
  MeanProbabilities mean(label, {}, type);
  for (const std::vector<float>& logits : views) mean.add(logits);
  return mean;
}

TEST(MeanProbabilities, AreTheMeanOfTheSoftmaxOfEveryView) {
  const auto log = [](double p) { return static_cast<float>(std::log(p)); };
  const MeanProbabilities mean = mean_of(1, {{log(0.5), log(0.25), log(0.25)}, {log(0.125), log(0.75), log(0.125)}});
  const std::vector<RankedClass> top = mean.top(2);
  ASSERT_EQ(top.size(), 2u);
  EXPECT_EQ(top[0].index, 1);
  EXPECT_NEAR(top[0].probability, 0.5, 1e-7);
  EXPECT_EQ(top[1].index, 0);
  EXPECT_NEAR(top[1].probability, 0.3125, 1e-7);
  EXPECT_NEAR(mean.loss(), -std::log(0.5), 1e-7);
  EXPECT_EQ(mean.ranked_label(), top[0].probability);
}

TEST(MeanProbabilities, OfViewsWhoseLogitsAreAveragedAreTheSoftmaxOfTheWeightedMean) {
  const std::vector<std::vector<float>> logits{{1, 2}, {3, 1}, {0, 5}, {2, 2}, {8, 1}, {-3, 0}};
  MeanProbabilities two(0, Views::mirror()), six(0, Views::shift());
  for (size_t view = 0; view < 2; ++view) two.add(logits[view]);
  for (const auto& view : logits) six.add(view);
  const auto loss = [](double a, double b) { return std::log(1 + std::exp(b - a)); };
  EXPECT_NEAR(two.loss(), loss((1 + 3) / 2.0, (2 + 1) / 2.0), 1e-12);
  // Half of the image's pair, a quarter of each shifted pair.
  const double a = 0.5 * (1 + 3) / 2.0 + 0.25 * (0 + 2) / 2.0 + 0.25 * (8 - 3) / 2.0,
               b = 0.5 * (2 + 1) / 2.0 + 0.25 * (5 + 2) / 2.0 + 0.25 * (1 + 0) / 2.0;
  EXPECT_NEAR(six.loss(), loss(a, b), 1e-12);
  EXPECT_NEAR(six.top(1).front().probability, 1 / (1 + std::exp(-std::abs(a - b))), 1e-12);
  EXPECT_NEAR(six.ranked_label(), 1 / (1 + std::exp(b - a)), 1e-12);
}

TEST(MeanProbabilities, OfScaledLogitsAreThoseOfTheProduct) {
  const std::vector<std::vector<float>> cosines{{0.5f, -0.25f}, {0.125f, 0.75f}};
  for (const Views& views : {Views{}, Views::mirror()}) {
    MeanProbabilities found(0, views, LossType::kSoftmax, 8), wanted(0, views);
    for (const std::vector<float>& view : cosines) {
      found.add(view);
      wanted.add(std::vector<float>{8 * view[0], 8 * view[1]});
    }
    EXPECT_NEAR(found.loss(), wanted.loss(), 1e-12);
    EXPECT_NEAR(found.of_label(), wanted.of_label(), 1e-12);
  }
}

TEST(MeanProbabilities, OfEqualClassesTheLowerIndexComesFirst) {
  const MeanProbabilities mean = mean_of(2, {{1, 3, 1, 3}});
  std::vector<int> order;
  for (const RankedClass& ranked : mean.top(9)) order.push_back(ranked.index);
  EXPECT_THAT(order, ElementsAre(1, 3, 0, 2));
}

TEST(MeanProbabilities, LossStaysFiniteWhereTheProbabilityIsTooSmallForANumber) {
  EXPECT_NEAR(mean_of(0, {{-2000, 0}}).loss(), 2000, 1e-9);
  EXPECT_NEAR(mean_of(0, {{-2000, 0}, {-1000, 0}}).loss(), 1000 + std::log(2), 1e-9);
  EXPECT_EQ(mean_of(0, {{-HUGE_VALF, 0}, {-HUGE_VALF, 0}}).loss(), HUGE_VAL);
}

TEST(MeanProbabilities, OfLogisticUnitsAreThoseOfEachByItself) {
  const auto logit = [](double p) { return static_cast<float>(std::log(p / (1 - p))); };
  const MeanProbabilities mean =
      mean_of(0, {{logit(0.9), logit(0.8), logit(0.1)}, {logit(0.5), logit(0.9), logit(0.2)}}, LossType::kLogistic);
  const std::vector<RankedClass> top = mean.top(3);
  EXPECT_EQ(top[0].index, 1);
  EXPECT_NEAR(top[0].probability, 0.85, 1e-7);
  EXPECT_NEAR(top[1].probability, 0.7, 1e-7);
  EXPECT_NEAR(top[2].probability, 0.15, 1e-7);
  EXPECT_NEAR(mean.of_label(), 0.7, 1e-7);
  EXPECT_NEAR(mean.loss(), -std::log(0.7) - std::log(0.15) - std::log(0.85), 1e-6);
  EXPECT_EQ(mean.ranked_label(), top[1].probability);
  MeanProbabilities of_mean_logits(0, Views::mirror(), LossType::kLogistic);
  of_mean_logits.add(std::vector<float>{1, -3});
  of_mean_logits.add(std::vector<float>{3, 1});
  EXPECT_NEAR(of_mean_logits.top(1).front().probability, 1 / (1 + std::exp(-2.0)), 1e-12);
  EXPECT_NEAR(of_mean_logits.loss(), std::log1p(std::exp(-2.0)) + std::log1p(std::exp(-1.0)), 1e-12);
}

// The cross-entropies with targets of the mean probabilities of two views.
TEST(MeanProbabilities, TheLossOfTargetsCountsEveryClassByItsTarget) {
  const std::vector<float> targets{0.5f, 0.25f, 0.25f}, first{1, 0, -2}, second{0.5f, 3, 0};
  for (const LossType type : {LossType::kSoftmax, LossType::kLogistic}) {
    MeanProbabilities mean(0, {}, type, 1, targets);
    mean.add(first);
    mean.add(second);
    const std::vector<double> all = mean.all();
    double wanted = 0;
    for (size_t c = 0; c < 3; ++c) {
      wanted -= double{targets[c]} * std::log(all[c]);
      if (type == LossType::kLogistic) wanted -= (1 - double{targets[c]}) * std::log(1 - all[c]);
    }
    EXPECT_NEAR(mean.loss(), wanted, 1e-12);
  }
  MeanProbabilities certain(0, {}, LossType::kLogistic, 1, {1, 0});
  certain.add(std::vector<float>{-800, 800});
  EXPECT_NEAR(certain.loss(), 1600, 1e-9);
}

// scikit-learn 1.9.1: average_precision_score([1, 0, 1, 1, 0, 0, 1, 0], scores) of distinct and of equal scores.
TEST(AveragePrecision, IsThatOfScikitLearn) {
  const auto precision = [](const std::vector<double>& scores) {
    const bool positive[] = {true, false, true, true, false, false, true, false};
    std::vector<std::pair<double, bool>> all;
    for (size_t i = 0; i < scores.size(); ++i) all.emplace_back(scores[i], positive[i]);
    return average_precision(all);
  };
  EXPECT_NEAR(precision({0.9, 0.8, 0.7, 0.2, 0.6, 0.3, 0.5, 0.1}), 0.7095238095238094, 1e-12);
  EXPECT_NEAR(precision({0.5, 0.8, 0.5, 0.2, 0.5, 0.5, 0.9, 0.2}), 0.625, 1e-12);
  EXPECT_NEAR(precision({1, 1, 1, 1, 1, 1, 1, 1}), 0.5, 1e-12);
  EXPECT_TRUE(std::isnan(average_precision({{0.5, false}, {0.6, false}})));
}

TEST(MeanProbabilities, TheLossOfLogisticUnitsStaysFiniteWhereTheyAreTooSmallForNumbers) {
  EXPECT_NEAR(mean_of(0, {{-2000, 1000}}, LossType::kLogistic).loss(), 3000, 1e-9);
  EXPECT_NEAR(mean_of(0, {{-2000, -1000}, {-1000, -HUGE_VALF}}, LossType::kLogistic).loss(), 1000 + std::log(2), 1e-9);
  EXPECT_EQ(mean_of(0, {{HUGE_VALF, -HUGE_VALF}}, LossType::kLogistic).loss(), 0);
}

// Whole evaluations of the small network after an epoch, of 50 test images in steps of 24, 24 and 2.
class PredictionsTest : public WholeRuns, public DeviceTest {
 protected:
  static std::string classes50() {
    std::string recipe = kSmallRecipe;
    recipe.replace(recipe.find("classes = 10"), 12, "classes = 50");
    return recipe.replace(recipe.find("out = 10\n"), 9, "out = 50\n");
  }
  void train_epoch(const std::string& recipe = kSmallRecipe) {
    TrainOptions options;
    options.out = path("run");
    options.threads = 1;
    train(small_settings(recipe, {{"schedule.epochs", "1"}}), options);
  }
  Evaluation evaluate_run(const EvaluationRequest& request, Overrides changes = {},
                          const std::string& recipe = kSmallRecipe) {
    changes.emplace_back("run.device", name_of(device()));
    return evaluate_file(small_settings(recipe, changes), {weights_of("run"), "", 1, request});
  }
  std::string csv() const { return path("predictions.csv"); }
};
INSTANTIATE_TEST_SUITE_P(Devices, PredictionsTest, ::testing::ValuesIn(devices()), device_name);

TEST_P(PredictionsTest, EveryTestImageHasOneLineInOrder) {
  train_epoch();
  const Evaluation e = evaluate_run({.predictions = csv()});
  const std::vector<PredictedLine> lines = read_predictions(csv());
  const SyntheticDataset images({.size = 50, .side = 16, .split = Split::kTest});
  ASSERT_EQ(lines.size(), 50u);
  int top1 = 0, top5 = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const PredictedLine& line = lines[i];
    EXPECT_EQ(line.index, static_cast<int64_t>(i));
    EXPECT_EQ(line.label, images.label(line.index));
    EXPECT_EQ(line.label_name, images.class_names()[static_cast<size_t>(line.label)]);
    ASSERT_EQ(line.top.size(), 5u);
    for (size_t t = 0; t < 5; ++t) {
      EXPECT_EQ(line.top[t].name, images.class_names()[static_cast<size_t>(line.top[t].index)]);
      if (t > 0) {
        EXPECT_LE(line.top[t].probability, line.top[t - 1].probability);
      }
      top1 += t == 0 && line.top[t].index == line.label;
      top5 += line.top[t].index == line.label;
    }
  }
  EXPECT_EQ(e.images, 50);
  EXPECT_NEAR(e.top1, top1 / 50.0, 1e-12);
  EXPECT_NEAR(e.top5, top5 / 50.0, 1e-12);
}

TEST_P(PredictionsTest, OneViewGivesTheAccuracyOfAPlainEvaluation) {
  train_epoch();
  for (const auto& [precision, loss] : {std::pair{"fp32", "softmax"}, {"bf16", "softmax"}, {"fp32", "logistic"}})
    for (const Split split : {Split::kTest, Split::kTrain}) {
      const Overrides changes{{"run.precision", precision}, {"loss.type", loss}};
      const Evaluation plain = evaluate_run({.split = split}, changes),
                       detailed = evaluate_run({.split = split, .predictions = csv()}, changes);
      EXPECT_EQ(plain.images, split == Split::kTest ? 50 : 100);
      EXPECT_EQ(detailed.images, plain.images);
      EXPECT_EQ(detailed.top1, plain.top1);
      EXPECT_EQ(detailed.top5, plain.top5);
      EXPECT_NEAR(detailed.loss, plain.loss, 1e-5);
    }
}

TEST_P(PredictionsTest, TenViewsAreTheMeanOfTenCropsMadeByHand) {
  train_epoch();
  const Overrides changes{{"data.augment", "{ crop = 12, mirror = true, scale = 0.02, mean = [100, 110, 120] }"}};
  const Evaluation e = evaluate_run({.views = 10, .predictions = csv()}, changes);
  const std::vector<PredictedLine> lines = read_predictions(csv());
  ASSERT_EQ(lines.size(), 50u);

  Inference network(for_one_rank(small_settings(kSmallRecipe, changes)), weights_of("run"));
  const SyntheticDataset images({.size = 50, .side = 16, .split = Split::kTest});
  const int tops[] = {2, 0, 0, 4, 4}, lefts[] = {2, 0, 4, 0, 4};
  double loss = 0;
  for (int64_t i = 0; i < 50; ++i) {
    std::vector<uint8_t> pixels(16 * 16 * 3);
    images.read(i, View{}, pixels.data());
    Tensor crops({10, 12, 12, 3});
    for (int64_t view = 0; view < 10; ++view)
      for (int64_t y = 0; y < 12; ++y)
        for (int64_t x = 0; x < 12; ++x)
          for (int64_t c = 0; c < 3; ++c) {
            const int64_t row = tops[view % 5] + y, column = lefts[view % 5] + (view < 5 ? x : 11 - x);
            const float pixel = pixels[static_cast<size_t>((row * 16 + column) * 3 + c)];
            crops.data()[((view * 12 + y) * 12 + x) * 3 + c] = (pixel - static_cast<float>(100 + 10 * c)) * 0.02f;
          }
    const Tensor logits = network.run(crops);
    std::vector<double> mean(10);
    for (int64_t view = 0; view < 10; ++view) {
      double sum = 0;
      for (int64_t c = 0; c < 10; ++c) sum += std::exp(static_cast<double>(logits.data()[view * 10 + c]));
      for (int64_t c = 0; c < 10; ++c)
        mean[static_cast<size_t>(c)] += std::exp(static_cast<double>(logits.data()[view * 10 + c])) / sum / 10;
    }
    const PredictedLine& line = lines[static_cast<size_t>(i)];
    for (const auto& top : line.top) EXPECT_NEAR(top.probability, mean[static_cast<size_t>(top.index)], 1e-6);
    EXPECT_NEAR(line.top[0].probability, *std::max_element(mean.begin(), mean.end()), 1e-6);
    loss -= std::log(mean[static_cast<size_t>(line.label)]) / 50;
  }
  EXPECT_NEAR(e.loss, loss, 1e-6);
}

// Like airbench's infer_mirror_translate(), except for zeros (after normalisation) beyond the border.
TEST_P(PredictionsTest, ShiftedViewsAreTheMeanLogitsOfSixImagesMadeByHand) {
  train_epoch();
  for (const char* augment : {"{ crop = 12, scale = 0.02 }", "{ crop = 12, pad = 1, scale = 0.02 }"}) {
    const Overrides changes{{"data.augment", augment}};
    const Evaluation e = evaluate_run({.views = Views::shift()}, changes);
    Inference network(for_one_rank(small_settings(kSmallRecipe, changes)), weights_of("run"));
    const SyntheticDataset images({.size = 50, .side = 16, .split = Split::kTest});
    double loss = 0;
    int64_t top1 = 0;
    for (int64_t i = 0; i < 50; ++i) {
      std::vector<uint8_t> pixels(16 * 16 * 3);
      images.read(i, View{}, pixels.data());
      Tensor crops({6, 12, 12, 3});
      for (int64_t view = 0; view < 6; ++view)
        for (int64_t y = 0; y < 12; ++y)
          for (int64_t x = 0; x < 12; ++x)
            for (int64_t c = 0; c < 3; ++c) {
              const int64_t by = view < 2 ? 0 : view < 4 ? -1 : 1;
              const int64_t row = 2 + by + y, column = 2 + by + (view % 2 == 0 ? x : 11 - x);
              crops.data()[((view * 12 + y) * 12 + x) * 3 + c] =
                  0.02f * pixels[static_cast<size_t>((row * 16 + column) * 3 + c)];
            }
      const Tensor logits = network.run(crops);
      std::vector<double> mean(10);
      double sum = 0;
      for (size_t c = 0; c < 10; ++c) {
        for (size_t view = 0; view < 6; ++view)
          mean[c] += (view < 2 ? 0.25 : 0.125) * static_cast<double>(logits.data()[view * 10 + c]);
        sum += std::exp(mean[c]);
      }
      const auto label = static_cast<size_t>(images.label(i));
      loss -= (mean[label] - std::log(sum)) / 50;
      top1 += std::max_element(mean.begin(), mean.end()) - mean.begin() == std::ptrdiff_t(label);
    }
    EXPECT_NEAR(e.loss, loss, 1e-5);
    EXPECT_NEAR(e.top1, static_cast<double>(top1) / 50, 1e-12);
  }
}

TEST_P(PredictionsTest, RanksUnderEveryStrategySayWhatOneRankSays) {
  for (const std::string& recipe : {std::string(kSmallRecipe), classes50()}) {  // 50 classes: else the loss is sharded
    std::filesystem::remove_all(path("run"));
    train_epoch(recipe);
    const Evaluation one = evaluate_run({.views = 3, .predictions = csv()}, {}, recipe),
                     shifted = evaluate_run({.views = Views::shift()}, {}, recipe);
    const std::vector<PredictedLine> expected = read_predictions(csv());
    struct Case {
      const char *strategy, *workers, *model_ranks;
    };
    std::vector<Case> cases{{"dp", "3", "0"}, {"owt-c", "2", "0"}, {"owt-a", "4", "2"}};
    if (device() == Device::kCpu)  // a simulated GPU is slow
      for (const char* strategy : {"dp-zero", "dp-star", "ps", "owt-a", "owt-b", "owt-c", "owt-d", "mp"})
        for (const char* workers : {"2", "3", "5"}) cases.push_back({strategy, workers, "0"});
    for (const Case& c : cases) {
      if (device() != Device::kCpu && recipe != kSmallRecipe && c.strategy == std::string("dp")) continue;
      SCOPED_TRACE(concat(c.strategy, " ", c.workers, " ", c.model_ranks));
      const Overrides changes{{"parallel.strategy", c.strategy},
                              {"parallel.workers", c.workers},
                              {"parallel.model_ranks", c.model_ranks},
                              {"data.batch", c.workers == std::string("3") ? "21" : "20"}};  // uneven at the end
      EXPECT_NEAR(evaluate_run({.views = Views::shift()}, changes, recipe).loss, shifted.loss, 1e-5);
      const Evaluation many = evaluate_run({.views = 3, .predictions = csv()}, changes, recipe);
      EXPECT_EQ(many.images, 50);
      EXPECT_NEAR(many.loss, one.loss, 1e-5);
      const std::vector<PredictedLine> found = read_predictions(csv());
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].index, expected[i].index);
        EXPECT_EQ(found[i].label, expected[i].label);
        for (size_t t = 0; t < 5; ++t)
          EXPECT_NEAR(found[i].top[t].probability, expected[i].top[t].probability, 1e-5) << "image " << i;
      }
    }
  }
}

// The accuracy, and with several views the loss, from logits; all ranks together find what one finds.
TEST_P(PredictionsTest, TargetsGiveTheLossOfAPlainEvaluationAndTheSamePrecisionForAllRanks) {
  train_epoch();
  for (const char* loss : {"softmax", "logistic"}) {
    const TempFolder folder;
    const bool soft = loss == std::string("softmax");
    write_target_table(folder.path(), Split::kTest, SyntheticDataset({.size = 50, .side = 16, .split = Split::kTest}),
                       soft);
    Overrides changes{{"data.targets", "true"}, {"data.dir", folder.path()}, {"loss.type", loss}};
    const Evaluation plain = evaluate_run({}, changes), one = evaluate_run({.average_precision = true}, changes),
                     views = evaluate_run({.views = Views::shift()}, changes);
    EXPECT_NEAR(one.loss, plain.loss, 1e-5);
    EXPECT_EQ(one.top1, plain.top1);
    EXPECT_EQ(one.average_precision.has_value(), !soft);
    changes.insert(changes.end(), {{"parallel.workers", "3"}, {"data.batch", "21"}});
    for (const char* strategy : {"dp", "owt-c", "mp"}) {
      const Overrides of_three = merged(changes, {{"parallel.strategy", strategy}});
      const Evaluation many = evaluate_run({.average_precision = true}, of_three);
      EXPECT_NEAR(many.loss, one.loss, 1e-5);
      EXPECT_NEAR(evaluate_run({.views = Views::shift()}, of_three).loss, views.loss, 1e-5);
      EXPECT_NEAR(many.average_precision.value_or(0), one.average_precision.value_or(0), 1e-9) << strategy;
    }
  }
}

TEST_P(PredictionsTest, ConfusionsCountEveryImageOnceWhateverTheRanks) {
  train_epoch();
  for (const char* workers : {"1", "2"}) {
    const Evaluation e =
        evaluate_run({.predictions = csv(), .confusion = path("confusion.csv")}, {{"parallel.workers", workers}});
    std::map<std::pair<int, int>, int64_t> wanted;
    for (const PredictedLine& line : read_predictions(csv())) ++wanted[{line.label, line.top[0].index}];
    const SyntheticDataset images({.size = 50, .side = 16, .split = Split::kTest});
    const std::vector<CsvLine> lines = read_csv(path("confusion.csv"));
    EXPECT_THAT(lines[0], ElementsAre("label", "label_name", "predicted", "predicted_name", "count"));
    ASSERT_EQ(lines.size(), wanted.size() + 1);
    int64_t right = 0;
    auto pair = wanted.begin();
    for (size_t i = 1; i < lines.size(); ++i, ++pair) {
      const auto [label, predicted] = pair->first;
      EXPECT_THAT(lines[i], ElementsAre(std::to_string(label), images.class_names()[static_cast<size_t>(label)],
                                        std::to_string(predicted), images.class_names()[static_cast<size_t>(predicted)],
                                        std::to_string(pair->second)));
      right += label == predicted ? pair->second : 0;
    }
    EXPECT_NEAR(static_cast<double>(right) / 50, e.top1, 1e-12);
  }
}

TEST_P(PredictionsTest, ClassesHaveTheCountsOfTheirImagesWhateverTheRanks) {
  train_epoch();
  for (const char* workers : {"1", "2"}) {
    const Evaluation e = evaluate_run({.predictions = csv(), .per_class = true}, {{"parallel.workers", workers}});
    std::vector<ClassAccuracy> wanted(10);
    std::map<int, std::map<std::string, int64_t>> others;
    for (const PredictedLine& line : read_predictions(csv())) {
      ClassAccuracy& own = wanted[static_cast<size_t>(line.label)];
      own.name = line.label_name;
      ++own.images;
      own.top1 += line.top[0].index == line.label;
      own.top5 += std::any_of(line.top.begin(), line.top.end(), [&](const auto& t) { return t.index == line.label; });
      if (line.top[0].index != line.label) ++others[line.label][line.top[0].name];
    }
    ASSERT_EQ(e.classes.size(), 10u);
    for (size_t c = 0; c < 10; ++c) {
      const ClassAccuracy& found = e.classes[c];
      EXPECT_EQ(found.name, wanted[c].name);
      EXPECT_EQ(found.images, 5);
      EXPECT_EQ(found.top1, wanted[c].top1);
      EXPECT_EQ(found.top5, wanted[c].top5);
      int64_t most = 0;
      for (const auto& [name, times] : others[static_cast<int>(c)]) most = std::max(most, times);
      EXPECT_EQ(found.times, most);
      EXPECT_EQ(found.taken_for.empty(), most == 0);
      if (most > 0) {
        EXPECT_EQ(others[static_cast<int>(c)][found.taken_for], most);
      }
    }
  }
  EXPECT_TRUE(evaluate_run({}).classes.empty());
}

// What Predictions give for made-up logits of 23 classes, of which each rank has a part. Image 0 has the largest logit
// in two parts.
struct FromParts {
  std::vector<PredictedLine> lines;
  std::vector<double> of_label;
  Evaluation evaluation;
};

FromParts from_parts(const std::vector<Slice>& parts, const Views& views, LossType type, const std::string& csv) {
  constexpr int kClasses = 23;
  constexpr int64_t kImages = 6, kBatch = 4;
  const MemoryDataset images({1, 1, 1}, kClasses, std::vector<uint8_t>(kImages), {20, 0, 8, 22, 9, 13}, {});
  const auto logit = [](int64_t image, int view, int64_t c) {
    if (image == 0 && (c == 3 || c == 20)) return 9.0f;
    const Philox random(1, RandomStream::kTest, view, "parts");
    return 3 * random.normal(static_cast<uint64_t>(image * kClasses + c));
  };
  FromParts found;
  run_ranks(static_cast<int>(parts.size()), 1, [&](Communicator& comm) {
    const Slice mine = parts[static_cast<size_t>(comm.rank())];
    const bool alone = comm.ranks() == 1;
    Predictions predictions(images, kClasses, views, kBatch, type, alone ? ClassShard{} : ClassShard{mine, &comm});
    for (int64_t step = 0; step < 2; ++step)
      for (int view = views.first; view < views.first + views.count; ++view) {
        Batch batch;
        batch.step_in_epoch = step, batch.view = view;
        std::vector<int64_t> rows{2, 0, 3, 1};
        if (step == 1) rows = {1, 0};
        Tensor logits({std::ssize(rows), mine.size()});
        for (int64_t i = 0; i < std::ssize(rows); ++i)
          for (int64_t c = mine.begin; c < mine.end; ++c)
            logits.data()[i * mine.size() + c - mine.begin] =
                logit(step * kBatch + rows[static_cast<size_t>(i)], view, c);
        predictions.add(batch, rows, logits);
      }
    predictions.gather(comm, Device::kCpu);
    if (comm.rank() != 0) return;
    predictions.write_csv(csv);
    found.evaluation = predictions.evaluation();
  });
  found.lines = read_predictions(csv);
  for (size_t i = 1; i <= found.lines.size(); ++i) found.of_label.push_back(std::stod(read_csv(csv)[i].back()));
  return found;
}

TEST(Predictions, OfClassesInPartsAreThoseOfWholeRows) {
  const TempFolder folder;
  for (const Views& views : {Views(1), Views(3), Views::mirror()})
    for (const LossType type : {LossType::kSoftmax, LossType::kLogistic}) {
      const FromParts whole = from_parts({{0, 23}}, views, type, folder.file("whole.csv"));
      EXPECT_EQ(whole.lines[0].top[0].index, 3);
      EXPECT_EQ(whole.lines[0].top[1].index, 20);
      for (const std::vector<Slice>& parts :
           {std::vector<Slice>{{0, 12}, {12, 23}}, {{0, 9}, {9, 9}, {9, 20}, {20, 23}}}) {
        SCOPED_TRACE(concat(views.name(), " views, ", name_of(type), ", ", parts.size(), " parts"));
        const FromParts found = from_parts(parts, views, type, folder.file("parts.csv"));
        EXPECT_EQ(found.evaluation.images, 6);
        EXPECT_NEAR(found.evaluation.loss, whole.evaluation.loss, 1e-12);
        EXPECT_EQ(found.evaluation.top1, whole.evaluation.top1);
        EXPECT_EQ(found.evaluation.top5, whole.evaluation.top5);
        ASSERT_EQ(found.lines.size(), whole.lines.size());
        for (size_t i = 0; i < found.lines.size(); ++i) {
          EXPECT_NEAR(found.of_label[i], whole.of_label[i], 1e-8);
          for (size_t t = 0; t < 5; ++t) {
            EXPECT_EQ(found.lines[i].top[t].index, whole.lines[i].top[t].index) << "image " << i;
            EXPECT_NEAR(found.lines[i].top[t].probability, whole.lines[i].top[t].probability, 1e-8);
          }
        }
      }
    }
}

class PredictionMemory : public ::testing::Test, protected WholeRuns {};

// All ranks together hold a copy of each logit of a step, as the check of memory says, and no rank a whole row.
TEST_F(PredictionMemory, OfManyClassesIsThatOfEveryLogitOnce) {
  constexpr int64_t kClasses = 20'000;
  std::string recipe = kSmallRecipe;
  recipe.replace(recipe.find("classes = 10"), 12, concat("classes = ", kClasses));
  recipe.replace(recipe.find("out = 10\n"), 9, concat("out = ", kClasses, "\n"));
  const Settings settings =
      small_settings(recipe, {{"parallel.workers", "4"}, {"parallel.strategy", "owt-c"}, {"schedule.max_steps", "1"}});
  TrainOptions options;
  options.out = path("run");
  options.threads = 1;
  train(settings, options);
  const auto allocated = [&](const EvaluationRequest& request) {
    const int64_t before = host_memory().allocated;
    evaluate_file(settings, {weights_of("run"), "", 1, request});
    return host_memory().allocated - before;
  };
  const EvaluationRequest wanted{.predictions = path("predictions.csv")};
  const Plan plan = settings.plan_to_run();
  int64_t planned = 0;
  for (int rank = 0; rank < 4; ++rank)
    planned += prediction_bytes(plan, wanted, *open_split(settings, "", Split::kTest), rank);
  EXPECT_EQ(planned, settings.data.batch * kClasses * 4);
  const int64_t plain = allocated({}), with_logits = allocated(wanted);
  EXPECT_NEAR(static_cast<double>(with_logits - plain), static_cast<double>(planned),
              0.1 * static_cast<double>(planned));
}

// Three images of class 1, of which two are taken for 2 and one for 0, and one of class 2; class 0 has none.
TEST(Predictions, AClassSaysWhatItIsTakenForMostOften) {
  const MemoryDataset images({1, 1, 1}, 3, {0, 0, 0, 0}, {1, 1, 2, 1}, {"cat", "do,g", "cow"});
  Predictions predictions(images, 3, 1, 4);
  Tensor logits({4, 3});
  logits.zero();
  const int64_t rows[] = {0, 1, 2, 3};
  const int taken[] = {2, 0, 2, 2};
  for (int64_t row = 0; row < 4; ++row) logits.data()[row * 3 + taken[row]] = 1;
  predictions.add({}, rows, logits);
  const std::vector<ClassAccuracy> classes = predictions.by_class();
  ASSERT_EQ(classes.size(), 2u);
  EXPECT_EQ(classes[0].name, "do,g");
  EXPECT_EQ(classes[0].images, 3);
  EXPECT_EQ(classes[0].top1, 0);
  EXPECT_EQ(classes[0].top5, 3);
  EXPECT_EQ(classes[0].taken_for, "cow");
  EXPECT_EQ(classes[0].times, 2);
  EXPECT_EQ(classes[1].top1, 1);
  EXPECT_EQ(classes[1].taken_for, "");
}

// The loss is not a number because of one logit in one view: of the label, of another class of its rank, or of another
// rank. Image 3 has good logits.
TEST(Predictions, AnImageWhoseLossIsNotANumberIsWrongAndHasNoClass) {
  constexpr int kClasses = 7;
  const TempFolder folder;
  const MemoryDataset images({1, 1, 1}, kClasses, {0, 0, 0, 0}, {0, 0, 6, 0}, {});
  const int spoilt[] = {0, 4, 5, -1};
  for (const Views& views : {Views(1), Views(2), Views::mirror()})
    for (const LossType type : {LossType::kSoftmax, LossType::kLogistic})
      for (const std::vector<Slice>& parts : {std::vector<Slice>{{0, 7}}, {{0, 3}, {3, 7}}})
        for (int bad_view = 0; bad_view < views.count; ++bad_view) {
          SCOPED_TRACE(concat(views.name(), " views, ", name_of(type), ", ", parts.size(), " parts, view ", bad_view));
          run_ranks(static_cast<int>(parts.size()), 1, [&](Communicator& comm) {
            const Slice mine = parts[static_cast<size_t>(comm.rank())];
            Predictions predictions(images, kClasses, views, 4, type, ClassShard{mine, &comm});
            const int64_t rows[] = {0, 1, 2, 3};
            for (int view = 0; view < views.count; ++view) {
              Tensor logits({4, mine.size()});
              for (int64_t row = 0; row < 4; ++row)
                for (int64_t c = mine.begin; c < mine.end; ++c)
                  logits.data()[row * mine.size() + c - mine.begin] = view == bad_view && c == spoilt[row]
                                                                          ? std::nanf("")
                                                                      : c == images.label(row) ? 9.0f
                                                                                               : 0.0f;
              Batch batch;
              batch.view = views.first + view;
              predictions.add(batch, rows, logits);
            }
            predictions.gather(comm, Device::kCpu);
            if (comm.rank() != 0) return;
            EXPECT_TRUE(std::isnan(predictions.evaluation().loss));
            EXPECT_EQ(predictions.evaluation().top1, 0.25);
            EXPECT_EQ(predictions.evaluation().top5, 0.25);
            const std::vector<ClassAccuracy> classes = predictions.by_class();
            ASSERT_EQ(classes.size(), 2u);
            EXPECT_EQ(classes[0].top1, 1);
            EXPECT_EQ(classes[0].top5, 1);
            EXPECT_EQ(classes[1].top5, 0);
            EXPECT_EQ(classes[0].times + classes[1].times, 0);
            predictions.write_csv(folder.file("all.csv"));
            const auto lines = read_csv(folder.file("all.csv"));
            EXPECT_THAT(std::vector(lines[1].begin() + 2, lines[1].begin() + 6), ElementsAre("0", "0", "", ""));
            EXPECT_EQ(lines[4][4], "0");
            predictions.write_confusion_csv(folder.file("pairs.csv"));
            EXPECT_THAT(read_csv(folder.file("pairs.csv")),
                        ElementsAre(testing::_, ElementsAre("0", "0", "", "", "2"),
                                    ElementsAre("0", "0", "0", "0", "1"), ElementsAre("6", "6", "", "", "1")));
          });
        }
}

TEST(Predictions, ConfusionsOfAHundredThousandClassesTakeNoMoreThanTheirImages) {
  constexpr int kClasses = 100'000;
  const MemoryDataset images({1, 1, 3}, kClasses, {0, 0, 0, 0, 0, 0, 0, 0, 0}, {7, 3, 7}, {});
  Predictions predictions(images, kClasses, 1, 4);
  Tensor logits({3, kClasses});
  logits.zero();
  for (int64_t row = 0; row < 3; ++row) logits.data()[row * kClasses + 99'999] = 1;
  const int64_t rows[] = {0, 1, 2};
  predictions.add({}, rows, logits);
  const TempFolder folder;
  predictions.write_confusion_csv(folder.file("c.csv"));
  EXPECT_EQ(read_file(folder.file("c.csv")),
            "label,label_name,predicted,predicted_name,count\n3,3,99999,99999,1\n7,7,99999,99999,2\n");
}

TEST_P(PredictionsTest, BadWeightsAreAnErrorThatNamesTheLayerAndWriteNothing) {
  train_epoch();
  std::string bytes = read_file(weights_of("run"));
  const float nan = std::nanf("");
  std::memcpy(bytes.data() + bytes.size() - sizeof nan, &nan, sizeof nan);
  write_bytes(path("bad.safetensors"), bytes);
  const auto evaluate_bad = [&] {
    evaluate_file(small_settings(kSmallRecipe, {{"run.device", name_of(device())}, {"parallel.workers", "2"}}),
                  {path("bad.safetensors"), "", 1, {.views = 2, .predictions = csv()}});
  };
  EXPECT_THAT(message_of(evaluate_bad), HasSubstr("the first layer with a value that is not finite is 'fc3'"));
  EXPECT_FALSE(std::filesystem::exists(csv()));
}

TEST_P(PredictionsTest, AFileThatCannotBeWrittenIsAnErrorAtTheStart) {
  const EvalOptions options{path("no weights"), "", 1, {.confusion = path("none/c.csv")}};
  EXPECT_THAT(message_of([&] { evaluate_file(small_settings(kSmallRecipe), options); }), HasSubstr("none/c.csv"));
}

// The file is written in pieces.
TEST(Predictions, OfManyImagesEveryOneHasItsLine) {
  constexpr int kImages = 1500, kClasses = 10;
  const MemoryDataset images({1, 1, 3}, kClasses, std::vector<uint8_t>(3 * kImages), std::vector<uint8_t>(kImages), {});
  Predictions predictions(images, kClasses, 1, kImages);
  Tensor logits({kImages, kClasses});
  logits.zero();
  std::vector<int64_t> rows(kImages);
  std::iota(rows.begin(), rows.end(), 0);
  predictions.add({}, rows, logits);
  const TempFolder folder;
  predictions.write_csv(folder.file("p.csv"));
  const std::vector<PredictedLine> lines = read_predictions(folder.file("p.csv"));
  ASSERT_GT(std::filesystem::file_size(folder.file("p.csv")), 1u << 16) << "one piece";
  ASSERT_EQ(std::ssize(lines), kImages);
  for (int i = 0; i < kImages; ++i) EXPECT_EQ(lines[static_cast<size_t>(i)].index, i);
}

// Names of sources and classes may hold anything.
TEST(Predictions, FieldsWithCommasAndQuotesAreQuoted) {
  class Named : public MemoryDataset {
   public:
    Named() : MemoryDataset({1, 1, 3}, 2, {0, 0, 0}, {1}, {"n01 cat, \"tabby\"", "dog"}) {}
    std::string name(int64_t) const override { return "a,b.jpg"; }
  };
  const Named images;
  Predictions predictions(images, 2, 1, 4);
  Tensor logits({1, 2});
  logits.data()[0] = 20, logits.data()[1] = 20;
  const int64_t row = 0;
  predictions.add({}, {&row, 1}, logits);
  const TempFolder folder;
  predictions.write_csv(folder.file("p.csv"));
  EXPECT_EQ(read_file(folder.file("p.csv")),
            "index,name,label,label_name,top1,top1_name,top1_probability,top2,top2_name,top2_probability,"
            "label_probability\n"
            "0,\"a,b.jpg\",1,dog,0,\"n01 cat, \"\"tabby\"\"\",0.5,1,dog,0.5,0.5\n");
}

// Class names that contain special characters of CSV.
TEST(Predictions, NamesAreQuotedWhereTheyHoldWhatSeparatesFields) {
  const MemoryDataset images({1, 1, 1}, 5, std::vector<uint8_t>(5), {0, 1, 2, 3, 4},
                             {"a,b", "say \"c\"", "two\nlines", "back\rthere", "plain; text"});
  Predictions predictions(images, 6, 1, 5);
  Batch step;
  step.step_rows = 5;
  Tensor logits({5, 6});
  const std::vector<int64_t> rows{0, 1, 2, 3, 4};
  for (int64_t row = 0; row < 5; ++row)
    for (int64_t c = 0; c < 6; ++c) logits.data()[row * 6 + c] = c == row + 1 ? 9.0f : static_cast<float>(-c);
  predictions.add(step, rows, logits);
  const auto solo = make_solo_communicator(Device::kCpu);
  predictions.gather(*solo, Device::kCpu);
  const TempFolder folder;
  predictions.write_confusion_csv(folder.file("confusion.csv"));
  EXPECT_EQ(read_file(folder.file("confusion.csv")),
            "label,label_name,predicted,predicted_name,count\n"
            "0,\"a,b\",1,\"say \"\"c\"\"\",1\n"
            "1,\"say \"\"c\"\"\",2,\"two\nlines\",1\n"
            "2,\"two\nlines\",3,\"back\rthere\",1\n"
            "3,\"back\rthere\",4,plain; text,1\n"
            "4,plain; text,5,5,1\n");
}

}  // namespace
}  // namespace owt::predictions_test
