#include "src/parallel/sharded_softmax_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "layers/base/linear_params.h"
#include "src/core/bf16.h"
#include "src/core/threads.h"
#include "src/system/check.h"
#include "tests/support/check_layer.h"
#include "tests/support/losses.h"
#include "tests/support/message_of.h"

namespace owt::sharded_softmax_loss_test {
namespace {

using testing::DoubleNear;
using testing::Each;
using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;
using testing::IsNan;
using testing::Pointwise;

using Widths = std::vector<int64_t>;  // classes of each rank

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

MATCHER_P(NearOrSame, tolerance, "") {
  const auto [found, wanted] = arg;
  return found == wanted || (std::isnan(found) && std::isnan(wanted)) || std::abs(found - wanted) <= tolerance;
}

std::vector<Slice> parts_of(const Widths& widths) {
  std::vector<Slice> parts;
  int64_t begin = 0;
  for (const int64_t width : widths) {
    parts.push_back({begin, begin + width});
    begin += width;
  }
  return parts;
}

// 1 to 5 ranks, as evenly as can be; and some ranks with few classes or none.
std::vector<Widths> splits(int64_t classes) {
  std::vector<Widths> all;
  for (int ranks = 1; ranks <= 5; ++ranks) {
    Widths& even = all.emplace_back();
    for (int r = 0; r < ranks; ++r) even.push_back(split(classes, ranks, r).size());
  }
  all.push_back({0, classes});
  all.push_back({classes, 0, 0});
  all.push_back({0, 1, 0, classes - 1, 0});
  all.push_back({classes - 1, 0, 1});
  return all;
}

std::vector<float> columns_of(const LossCase& of, const Slice& part) {
  std::vector<float> columns;
  for (int64_t row = 0; row < of.rows(); ++row) {
    const auto first = of.logits.begin() + row * of.classes();
    columns.insert(columns.end(), first + part.begin, first + part.end);
  }
  return columns;
}

// Runs the ranks one after the other, with NaN in the memory that they must write.
class Ranks {
 public:
  Ranks(const LossCase& of, const Widths& widths, const Compute& on)
      : on_(on),
        parts_(parts_of(widths)),
        pass_(on.device, of.rows()),
        labels_(of.labels_on(on.device)),
        all_stats_({ranks(), of.rows(), loss_stats(of.settings)}, DType::kF32, on.device) {
    of.give_to(pass_.pass());
    fill(all_stats_, kNaN);
    for (int r = 0; r < ranks(); ++r) {
      losses_.push_back(make_sharded_softmax_loss(on, parts_, r, of.rows() + 1, of.settings));
      logits_.push_back(upload(columns_of(of, part(r)), {of.rows(), part(r).size()}, on.device, dtype()));
      const int64_t numbers = loss_stats(of.settings);
      Tensor mine = all_stats_.part(r * of.rows() * numbers, {of.rows(), numbers});
      dlogits_.emplace_back(logits_.back().shape(), dtype(), on.device);
      fill(dlogits_.back(), kNaN);
      losses_.back()->summarize(pass_.pass(), logits_.back(), labels_, &dlogits_.back(), mine);
    }
    pass_.stream().synchronize();
  }

  int ranks() const { return static_cast<int>(parts_.size()); }
  const Slice& part(int rank) const { return parts_[static_cast<size_t>(rank)]; }
  std::vector<float> stats() const { return download(all_stats_); }

  // Adds the results of `rank` to the sums; returns the gradient of its columns.
  std::vector<float> finish(int rank, Tensor* sums) {
    const auto r = static_cast<size_t>(rank);
    losses_[r]->finish(pass_.pass(), logits_[r], labels_, all_stats_, &dlogits_[r], sums);
    pass_.stream().synchronize();
    return download(dlogits_[r]);
  }
  std::vector<float> gradient(int rank) const { return download(dlogits_[static_cast<size_t>(rank)]); }
  LossSums evaluate(int rank) {
    Tensor sums = no_sums(on_.device);
    losses_[static_cast<size_t>(rank)]->finish(pass_.pass(), logits_[static_cast<size_t>(rank)], labels_, all_stats_,
                                               nullptr, &sums);
    pass_.stream().synchronize();
    return read_sums(sums);
  }

 private:
  DType dtype() const { return activation_type(on_.precision); }

  Compute on_;
  std::vector<Slice> parts_;
  DevicePass pass_;
  Tensor labels_, all_stats_;
  std::vector<std::unique_ptr<ShardedSoftmaxLoss>> losses_;
  std::vector<Tensor> logits_, dlogits_;
};

// All ranks must get the same sums; concatenates their gradients.
LossResult run_sharded(const LossCase& of, const Widths& widths, const Compute& on) {
  Ranks ranks(of, widths, on);
  LossResult result;
  result.dlogits.resize(of.logits.size());
  for (int r = 0; r < ranks.ranks(); ++r) {
    Tensor sums = no_sums(on.device);
    const std::vector<float> mine = ranks.finish(r, &sums);
    const LossSums found = read_sums(sums);
    if (r > 0) {
      EXPECT_TRUE(found.loss == result.sums.loss || (std::isnan(found.loss) && std::isnan(result.sums.loss)));
      EXPECT_EQ(found.top1, result.sums.top1);
      EXPECT_EQ(found.top5, result.sums.top5);
    }
    result.sums = found;
    const int64_t width = ranks.part(r).size();
    for (int64_t row = 0; row < of.rows(); ++row)
      std::copy(mine.begin() + row * width, mine.begin() + (row + 1) * width,
                result.dlogits.begin() + row * of.classes() + ranks.part(r).begin);
  }
  return result;
}

void expect_whole(const LossCase& of, const Widths& widths, const Compute& on) {
  SCOPED_TRACE(testing::Message() << "ranks with " << testing::PrintToString(widths) << " classes, smoothing "
                                  << of.settings.label_smoothing << ", " << name_of(of.settings.type) << ", "
                                  << name_of(on.precision));
  const LossResult found = run_sharded(of, widths, on), wanted = run_loss(of, on);
  EXPECT_THAT((std::vector<double>{found.sums.loss}),
              Pointwise(NearOrSame(1e-6 * std::abs(wanted.sums.loss)), {wanted.sums.loss}));
  EXPECT_EQ(found.sums.top1, wanted.sums.top1);
  EXPECT_EQ(found.sums.top5, wanted.sums.top5);
  EXPECT_EQ(found.sums.rows, wanted.sums.rows);
  // A gradient in bf16 may be rounded to the other side of a step, 2^-8 of up to 1.
  const float tolerance = on.precision == Precision::kBf16 ? 0x1p-8f : 1e-6f;
  EXPECT_THAT(found.dlogits, Pointwise(NearOrSame(tolerance), wanted.dlogits));
}

std::vector<Precision> precisions(Device device) {
  if (device == Device::kCpu) return {Precision::kFp32};
  return {Precision::kFp32, Precision::kBf16};
}

std::vector<float> rounded(std::vector<float> values) {
  for (float& value : values) value = from_bf16(to_bf16(value));
  return values;
}

class ShardedSoftmaxLossTest : public DeviceTest {
 protected:
  // Whatever the smoothing and the precision. The logits must be bf16.
  void expect_whole_always(LossCase of, const std::vector<Widths>& splits) const {
    for (const Precision precision : precisions(device()))
      for (const LossType type : {LossType::kSoftmax, LossType::kLogistic})
        for (const double smoothing : {0.0, 0.1}) {
          of.settings.type = type;
          of.settings.label_smoothing = smoothing;
          for (const Widths& widths : splits) expect_whole(of, widths, {device(), precision});
        }
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, ShardedSoftmaxLossTest, testing::ValuesIn(devices()), device_name);

TEST_P(ShardedSoftmaxLossTest, StatisticsAreTheLargestTheSumTheMeanAndWhatIsKnownOfTheLabel) {
  const float ln2 = std::log(2.0f);
  Ranks ranks({{0, ln2, 0, ln2, 0, 0, 0, 7}, {6}}, {7, 0, 1}, device());
  EXPECT_THAT(ranks.stats(),
              Pointwise(FloatNear(1e-6f), {ln2,        ln2,        0.0f,         0.0f,       0.0f,        //
                                           4.5f,       0.0f,       -5 * ln2 / 7, 0.0f,       5.0f,        //
                                           -kInfinity, -kInfinity, -kInfinity,   -kInfinity, -kInfinity,  //
                                           0.0f,       0.0f,       0.0f,         -kInfinity, 0.0f,        //
                                           7.0f,       -kInfinity, -kInfinity,   -kInfinity, -kInfinity,  //
                                           1.0f,       0.0f,       0.0f,         -kInfinity, 0.0f}));
}

TEST_P(ShardedSoftmaxLossTest, TwoRanksShareARowOfEqualLogits) {
  const LossResult result = run_sharded({{2, 2, 2, 2}, {3}, {}, Mode::kTrain, 2}, {1, 3}, device());
  EXPECT_NEAR(result.sums.loss, std::log(4.0), 1e-6);
  EXPECT_THAT(result.dlogits, Pointwise(FloatNear(1e-7f), {0.125f, 0.125f, 0.125f, -0.375f}));
}

TEST_P(ShardedSoftmaxLossTest, IsTheWholeLossWhateverTheSplit) {
  for (const int32_t classes : {1, 2, 7, 23, 333}) {
    SCOPED_TRACE(classes);
    LossCase of{rounded(distinct_values(6 * classes, 5, 7)),
                {0, classes / 2, classes - 1, classes / 3, 0, classes / 5}};
    expect_whole_always(of, splits(classes));
    of.mode = Mode::kEval;
    expect_whole_always(of, {{0, classes}, {classes / 2, classes - classes / 2}});
  }
}

// More classes than a block has threads, and a number that is no multiple of any block size.
TEST_P(ShardedSoftmaxLossTest, ManyClassesGiveTheLossOfTheDefinition) {
  constexpr int64_t kClasses = 9001;
  const LossCase of{distinct_values(2 * kClasses, 4, 5), {9000, 17}, {0.1}};
  double wanted = 0;
  for (size_t row = 0; row < 2; ++row) {
    const auto first = of.logits.begin() + static_cast<std::ptrdiff_t>(row) * kClasses;
    wanted += loss_of_row({first, first + kClasses}, of.label(row), {0.1});
  }
  for (const Widths& widths : {Widths{kClasses}, {4501, 4500}, {8999, 2}}) {
    EXPECT_NEAR(run_sharded(of, widths, device()).sums.loss, wanted, 1e-6 * wanted);
    expect_whole(of, widths, device());
  }
}

// One margin puts the label's logit below the largest others, the other one above all of them.
TEST_P(ShardedSoftmaxLossTest, AMarginAmongManyClassesGivesTheLossOfTheDefinition) {
  constexpr int64_t kClasses = 9001;
  for (const LossMargin& margin : {LossMargin{.scale = 16, .angle = 0.5}, {.scale = 16, .factor = 0.5}}) {
    LossCase of{distinct_values(4 * kClasses, 0.9, 5), {9000, 17, 4700, 600}, {.margin = margin}};
    double wanted = 0;
    for (size_t row = 0; row < 4; ++row) {
      const auto first = of.logits.begin() + static_cast<std::ptrdiff_t>(row) * kClasses;
      first[of.labels[row]] = 0.85f;
      wanted += loss_of_row({first, first + kClasses}, of.label(row), of.settings);
    }
    for (const Widths& widths : {Widths{kClasses}, {4501, 4500}, {8999, 2}}) {
      const LossSums found = run_sharded(of, widths, device()).sums;
      EXPECT_NEAR(found.loss, wanted, 1e-6 * wanted);
      EXPECT_EQ(found.top1, margin.factor < 1 ? 4 : 0);
      EXPECT_EQ(found.top5, margin.factor < 1 ? 4 : 0);
      expect_whole(of, widths, device());
    }
  }
}

// All cosines are near -1, and half the angle puts the label's logit further above the others than exp() reaches.
TEST_P(ShardedSoftmaxLossTest, ALogitThatItsMarginPutsFarAboveTheOthersHasNoLoss) {
  LossCase of{std::vector<float>(130, -0.9f), {129}, {.margin = {.scale = 128, .factor = 0.5}}};
  of.logits[129] = -0.95f;
  for (const Widths& widths : {Widths{130}, {64, 66}}) {
    EXPECT_EQ(run_sharded(of, widths, device()).sums.loss, 0);
    expect_whole(of, widths, device());
  }
}

TEST_P(ShardedSoftmaxLossTest, GradientIsThatOfDifferences) {
  for (const double smoothing : {0.0, 0.1}) {
    const LossCase of{distinct_values(3 * 8, 4, 1), {0, 7, 3}, {smoothing}, Mode::kTrain, 5};
    for (const Widths& widths : {Widths{4, 4}, {3, 0, 4, 1}})
      EXPECT_THAT(run_sharded(of, widths, device()).dlogits, Pointwise(DoubleNear(1e-6), gradient_by_differences(of)));
  }
}

// The label's logit, which its owner changes, is below and above others of its rank and of other ranks.
TEST_P(ShardedSoftmaxLossTest, AMarginOfCosinesIsThatOfTheWholeRow) {
  for (const LossMargin& margin : {LossMargin{.scale = 4, .angle = 0.5},
                                   {.scale = 4, .cosine = 0.3},
                                   {.scale = 4, .factor = 0.9, .angle = 0.4, .cosine = 0.15}})
    for (const Mode mode : {Mode::kTrain, Mode::kEval})
      for (const Precision precision : precisions(device())) {
        LossCase of{rounded(distinct_values(9 * 23, 0.9, 7)), {0, 22, 11, 7, 3, 5, 17, 1, 13}};
        for (size_t row = 0; row < 9; ++row)
          of.logits[row * 23 + static_cast<size_t>(of.labels[row])] = 0.2f * static_cast<float>(row) - 0.875f;
        of.logits = rounded(of.logits);
        of.settings.margin = margin;
        of.mode = mode;
        for (const Widths& widths : splits(23)) expect_whole(of, widths, {device(), precision});
        if (mode == Mode::kTrain && precision == Precision::kFp32) {
          EXPECT_THAT(run_sharded(of, {9, 0, 13, 1}, device()).dlogits,
                      Pointwise(DoubleNear(1e-6), gradient_by_differences(of)));
        }
      }
}

TEST_P(ShardedSoftmaxLossTest, LowerIndexGoesFirstAmongEqualLogitsOfDifferentRanks) {
  const std::vector<float> equal(12, 0.0f);
  const auto counts = [&](int32_t label) { return run_sharded({equal, {label}}, {4, 4, 4}, device()).sums; };
  EXPECT_EQ(counts(0).top1, 1);
  EXPECT_EQ(counts(1).top1, 0);
  EXPECT_EQ(counts(4).top5, 1);
  EXPECT_EQ(counts(5).top5, 0);
  EXPECT_EQ(counts(11).top5, 0);
}

// Few different logits, so that most rows have ties, within ranks and across them.
TEST_P(ShardedSoftmaxLossTest, EveryLabelOfARowWithTiesRanksAsInTheWholeRow) {
  constexpr int32_t kClasses = 14;
  for (const uint64_t seed : {1, 2, 3}) {
    std::vector<float> logits = distinct_values(kClasses, 1.9, seed);
    for (float& logit : logits) logit = std::trunc(logit);
    for (int32_t label = 0; label < kClasses; ++label) {
      const LossSums wanted = run_loss({logits, {label}}, device()).sums;
      for (const Widths& widths : {Widths{7, 7}, {1, 6, 0, 7}, {3, 3, 3, 3, 2}, {13, 1}}) {
        const LossSums found = run_sharded({logits, {label}}, widths, device()).sums;
        EXPECT_EQ(found.top1, wanted.top1) << "label " << label << " of " << testing::PrintToString(logits);
        EXPECT_EQ(found.top5, wanted.top5) << "label " << label << " of " << testing::PrintToString(logits);
      }
    }
  }
}

TEST_P(ShardedSoftmaxLossTest, HugeLogitsStayFinite) {
  const LossCase of{{10000, 0, -10000, 10000, 0, -10000}, {0, 2}};
  for (const Widths& widths : {Widths{1, 1, 1}, {2, 1}, {1, 2}}) {
    const LossResult result = run_sharded(of, widths, device());
    EXPECT_DOUBLE_EQ(result.sums.loss, 20000);
    EXPECT_THAT(result.dlogits, Pointwise(FloatNear(1e-6f), {0.0f, 0.0f, 0.0f, 0.5f, 0.0f, -0.5f}));
  }
  expect_whole_always({rounded(distinct_values(60, 10000, 3)), {3, 11, 17}}, splits(20));
}

TEST_P(ShardedSoftmaxLossTest, ASmallLossKeepsItsDigits) {
  const LossCase of{{20, 0, 1, 2, 3, 4}, {0}};
  const double wanted =
      std::log1p((1 + std::exp(1.0) + std::exp(2.0) + std::exp(3.0) + std::exp(4.0)) / std::exp(20.0));
  for (const Widths& widths : {Widths{6}, {3, 3}, {1, 5}})
    EXPECT_NEAR(run_sharded(of, widths, device()).sums.loss, wanted, 1e-6 * wanted);
}

TEST_P(ShardedSoftmaxLossTest, ALargeOffsetOfAllLogitsDoesNotShowInASmoothedLoss) {
  LossCase of{{0, 1, 2, 3, 4, 5}, {2}, {0.1}};
  const double wanted = loss_of_row({0, 1, 2, 3, 4, 5}, {2, 2, 1}, {0.1});
  for (float& logit : of.logits) logit += 1 << 20;
  EXPECT_NEAR(run_sharded(of, {3, 3}, device()).sums.loss, wanted, 1e-6);
}

TEST_P(ShardedSoftmaxLossTest, ClassesWithoutAnyProbabilityCountAsInTheWholeRow) {
  const float none = -kInfinity;
  for (const std::vector<float>& logits : {std::vector<float>{none, 0, 1, none, none, 2, 3, 4},
                                           {none, none, none, none, none, 0, 1, none},
                                           {0, none, none, none, none, none, none, none},
                                           std::vector<float>(8, none)})
    for (int32_t label = 0; label < 8; ++label) expect_whole_always({logits, {label}}, {{8}, {3, 0, 5}, {0, 1, 6, 1}});
}

TEST_P(ShardedSoftmaxLossTest, ALogitThatIsNotFiniteSpoilsItsRowOnAllRanks) {
  for (const float bad : {kNaN, kInfinity})
    for (size_t c = 0; c < 6; ++c) {
      LossCase of{{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5}, {4, 5}};
      of.logits[c] = bad;
      expect_whole_always(of, {{6}, {0, 5, 1}, {2, 2, 2}});
      const LossResult result = run_sharded(of, {2, 0, 4}, device());
      EXPECT_TRUE(std::isnan(result.sums.loss));
      EXPECT_EQ(result.sums.top1, 1);
      EXPECT_EQ(result.sums.top5, 1);
      EXPECT_THAT(std::vector<float>(result.dlogits.begin(), result.dlogits.begin() + 6), Each(IsNan()));
      EXPECT_THAT(std::vector<float>(result.dlogits.begin() + 6, result.dlogits.end()), Each(FloatNear(0, 1)));
    }
}

TEST_P(ShardedSoftmaxLossTest, ALabelOutOfRangeIsAnErrorOrGivesANaNLoss) {
  for (const int32_t label : {4, -1, std::numeric_limits<int32_t>::min()}) {
    const LossCase of{{0, 1, 0, 0, 0, 1, 0, 0}, {1, label}};
    if (device() == Device::kCpu) {
      EXPECT_THAT(message_of([&] {
                    run_sharded(of, {2, 2}, device());
                  }),
                  HasSubstr(concat("the label of row 1 is ", label, ", wanted 0 to 3")));
      continue;
    }
    const LossResult result = run_sharded(of, {2, 0, 2}, device());
    EXPECT_TRUE(std::isnan(result.sums.loss)) << label;
    EXPECT_EQ(result.sums.top1, 1) << label;
    EXPECT_THAT(std::vector<float>(result.dlogits.begin() + 4, result.dlogits.end()), Each(IsNan()));
    EXPECT_THAT(std::vector<float>(result.dlogits.begin(), result.dlogits.begin() + 4), Each(FloatNear(0, 1)));
  }
}

TEST_P(ShardedSoftmaxLossTest, OfMixedLabelsIsThatOfWholeRows) {
  constexpr int32_t kUnits = RowLabel::kShareUnits;
  LossCase of{rounded(distinct_values(5 * 20, 3, 3)),
              {3, 17, kUnits / 8 * 5, 11, 12, kUnits / 2, 0, 0, kUnits, 19, 4, kUnits, 7, 7, kUnits / 4 * 3}};
  of.settings.mixed_labels = true;
  expect_whole_always(of, splits(20));
  of.logits[17] = -kInfinity;          // a label's: the loss is infinite
  of.logits[3 * 20 + 4] = -kInfinity;  // a class without share
  expect_whole_always(of, {{20}, {10, 0, 10}, {4, 1, 15}});
}

TEST_P(ShardedSoftmaxLossTest, NoRowsGiveNoLoss) {
  const auto loss = make_sharded_softmax_loss(device(), parts_of({3, 3}), 1, 4);
  DevicePass pass(device(), 0);
  const Tensor logits({0, 3}, DType::kF32, device()), labels({0}, DType::kI32, device());
  Tensor stats({0, kLossStats}, DType::kF32, device()), all({2, 0, kLossStats}, DType::kF32, device()),
      dlogits({0, 3}, DType::kF32, device()), sums = no_sums(device());
  loss->summarize(pass.pass(), logits, labels, &dlogits, stats);
  loss->finish(pass.pass(), logits, labels, all, &dlogits, &sums);
  pass.stream().synchronize();
  EXPECT_EQ(read_sums(sums).loss, 0);
  EXPECT_EQ(read_sums(sums).rows, 0);
}

TEST_P(ShardedSoftmaxLossTest, AddsToTheSumsOfEarlierBatches) {
  Tensor sums = no_sums(device());
  Ranks({{2, 2, 2, 2}, {0}}, {2, 2}, device()).finish(1, &sums);
  Ranks({{1, 1, 1, 1, 0, 0}, {0, 1, 0}}, {1, 1}, device()).finish(0, &sums);
  EXPECT_NEAR(read_sums(sums).loss, std::log(4.0) + 3 * std::log(2.0), 1e-6);
  EXPECT_EQ(read_sums(sums).top1, 3);
  EXPECT_EQ(read_sums(sums).top5, 4);
  EXPECT_EQ(read_sums(sums).rows, 4);
}

TEST_P(ShardedSoftmaxLossTest, GivesTheGradientWithoutSumsAndSumsWithoutTheGradient) {
  const LossCase of{distinct_values(4 * 9, 3, 2), {0, 4, 5, 8}};
  Ranks ranks(of, {5, 4}, device());
  Tensor sums = no_sums(device());
  EXPECT_EQ(Ranks(of, {5, 4}, device()).finish(1, nullptr), ranks.finish(1, &sums));
  EXPECT_EQ(ranks.evaluate(1).loss, read_sums(sums).loss);
  EXPECT_EQ(ranks.evaluate(0).loss, read_sums(sums).loss);
}

TEST_P(ShardedSoftmaxLossTest, LogisticUnitsHaveTheirGradientBeforeAnyStatisticsCome) {
  const LossCase of{distinct_values(4 * 9, 3, 2), {0, 4, 5, 8}, {0.1, false, LossType::kLogistic}, Mode::kTrain, 7};
  const std::vector<float> whole = run_loss(of, device()).dlogits;
  Ranks ranks(of, {5, 4}, device());
  const std::vector<float> mine = ranks.gradient(1);
  for (size_t row = 0; row < 4; ++row)
    for (size_t c = 0; c < 4; ++c) EXPECT_EQ(mine[row * 4 + c], whole[row * 9 + 5 + c]);
}

TEST_P(ShardedSoftmaxLossTest, ResultsDoNotDependOnTheThreads) {
  std::vector<int> labels(64);
  std::iota(labels.begin(), labels.end(), 0);
  const LossCase of{distinct_values(64 * 100, 3, 3), labels, {0.1}};
  const int before = team_size();
  set_team_size(1);
  const LossResult one = run_sharded(of, {40, 60}, device());
  set_team_size(3);
  const LossResult three = run_sharded(of, {40, 60}, device());
  set_team_size(before);
  EXPECT_EQ(one.sums.loss, three.sums.loss);
  EXPECT_EQ(one.dlogits, three.dlogits);
}

TEST_P(ShardedSoftmaxLossTest, PartsThatDoNotFitAreAnError) {
  const auto make = [&](std::vector<Slice> parts, int rank) {
    return [=, this] { make_sharded_softmax_loss(device(), parts, rank, 1); };
  };
  EXPECT_THAT(message_of(make({{0, 3}, {4, 6}}, 0)), HasSubstr("begin where those of the rank before end"));
  EXPECT_THAT(message_of(make({{0, 3}, {3, 2}}, 0)), HasSubstr("classes 3 to 2"));
  EXPECT_THAT(message_of(make({{0, 3}, {3, 6}}, 2)), HasSubstr("rank 2 of 2"));
  EXPECT_THAT(message_of(make({}, 0)), HasSubstr("rank 0 of 0"));
  EXPECT_THAT(message_of(make({{0, 0}, {0, 0}}, 0)), HasSubstr("a loss over 0 classes"));
  EXPECT_THAT(message_of([&] {
                make_sharded_softmax_loss(device(), parts_of({3, 3}), 0, 1, {1.0});
              }),
              HasSubstr("label_smoothing is 1"));
}

TEST_P(ShardedSoftmaxLossTest, StatisticsOfOtherRowsOrRanksAreAnError) {
  const auto loss = make_sharded_softmax_loss(device(), parts_of({3, 3}), 0, 2);
  DevicePass pass(device(), 2);
  const Tensor logits({2, 3}, DType::kF32, device()), labels = upload_labels({0, 0}, device());
  Tensor stats({1, kLossStats}, DType::kF32, device()), all({3, 2, kLossStats}, DType::kF32, device());
  EXPECT_THAT(message_of([&] { loss->summarize(pass.pass(), logits, labels, nullptr, stats); }),
              HasSubstr("a row of statistics for each row"));
  EXPECT_THAT(message_of([&] { loss->finish(pass.pass(), logits, labels, all, nullptr, nullptr); }),
              HasSubstr("the statistics of all ranks"));
}

// The last eight of the most classes that a model can have. The statistics of the others are made by hand: all their
// logits are 0.
TEST_P(ShardedSoftmaxLossTest, FindsALabelAmongTheLastOfTwoBillionClasses) {
  constexpr int64_t kClasses = kMostOutputs, kHere = 8, kOthers = kClasses - kHere;
  const Compute on{device()};
  DevicePass pass(device(), 2);
  const auto loss = make_sharded_softmax_loss(on, {{0, kOthers}, {kOthers, kClasses}}, 1, 2);
  const Tensor logits = upload({1, 0, 0, 30, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 25}, {2, kHere}, device());
  const Tensor labels =
      upload_labels({static_cast<int32_t>(kOthers + 3), static_cast<int32_t>(kClasses - 1)}, device());
  Tensor stats({2, kLossStats}, DType::kF32, device()), dlogits({2, kHere}, DType::kF32, device()),
      sums = no_sums(device());
  loss->summarize(pass.pass(), logits, labels, &dlogits, stats);
  pass.stream().synchronize();
  const float all = kOthers;  // rounded
  std::vector<float> of_others{0, 0,          0, 0, 0, all, static_cast<float>(kOthers - static_cast<int64_t>(all)),
                               0, -kInfinity, 0};
  of_others.insert(of_others.end(), of_others.begin(), of_others.end());
  std::vector<float> of_all = of_others;
  for (const float one : download(stats)) of_all.push_back(one);
  loss->finish(pass.pass(), logits, labels, upload(of_all, {2, 2, kLossStats}, device()), &dlogits, &sums);
  pass.stream().synchronize();
  const LossSums found = read_sums(sums);
  const double rest = static_cast<double>(kOthers);
  const double sum_0 = rest + 5 + std::exp(1.0) + std::exp(30.0) + std::exp(2.0), sum_1 = rest + 7 + std::exp(25.0);
  EXPECT_NEAR(found.loss, std::log(sum_0) - 30 + std::log(sum_1) - 25, 1e-6);
  EXPECT_EQ(found.top1, 2);
  const std::vector<float> gradient = download(dlogits);
  EXPECT_NEAR(gradient[3], (std::exp(30.0) / sum_0 - 1) / 2, 1e-6);
  EXPECT_NEAR(gradient[15], (std::exp(25.0) / sum_1 - 1) / 2, 1e-6);
  EXPECT_NEAR(gradient[7], std::exp(2.0) / sum_0 / 2, 1e-12);
}

}  // namespace
}  // namespace owt::sharded_softmax_loss_test
