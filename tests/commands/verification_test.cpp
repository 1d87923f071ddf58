#include "src/commands/verification.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"

namespace owt::verification_test {
namespace {

using Pairs = std::vector<ScoredPair>;

Pairs repeated(const Pairs& some, int times) {
  Pairs all;
  for (int i = 0; i < times; ++i) all.insert(all.end(), some.begin(), some.end());
  return all;
}

// The threshold of all pairs would be 0.705, which refuses the pairs of the first fold rightly.
TEST(FoldAccuracies, AFoldIsJudgedByTheThresholdOfTheOthers) {
  Pairs pairs = repeated({{0.8, true}, {0.2, false}}, kFolds);
  pairs[0] = {0.6, false}, pairs[1] = {0.61, false};
  const std::vector<FoldAccuracy> folds = fold_accuracies(pairs);
  ASSERT_EQ(folds.size(), 10u);
  EXPECT_DOUBLE_EQ(folds[0].threshold, 0.5);
  EXPECT_EQ(folds[0].accuracy, 0);
  for (size_t k = 1; k < folds.size(); ++k) {
    EXPECT_DOUBLE_EQ(folds[k].threshold, 0.705) << k;
    EXPECT_EQ(folds[k].accuracy, 1) << k;
  }
}

TEST(FoldAccuracies, TheHighestOfEquallyAccurateThresholdsIsTaken) {
  for (const FoldAccuracy& fold :
       fold_accuracies(repeated({{0.3, false}, {0.5, true}, {0.7, false}, {0.9, true}}, kFolds))) {
    EXPECT_DOUBLE_EQ(fold.threshold, 0.8);
    EXPECT_EQ(fold.accuracy, 0.75);
  }
}

TEST(FoldAccuracies, NoPairOrEveryPairMayBeAccepted) {
  for (const FoldAccuracy& fold : fold_accuracies(repeated({{0.9, false}}, kFolds)))
    EXPECT_EQ(fold.threshold, kAcceptsNone);
  for (const FoldAccuracy& fold : fold_accuracies(repeated({{-1, true}}, kFolds))) {
    EXPECT_EQ(fold.threshold, kAcceptsAll);
    EXPECT_EQ(fold.accuracy, 1);
  }
}

// 13 pairs are folds of 2, 2, 2, 1, 1 and so on. Pairs 0 and 3 are judged wrongly.
TEST(FoldAccuracies, TheFirstFoldsHaveOnePairMore) {
  Pairs pairs = repeated({{0.8, true}}, 13);
  pairs[0].similarity = 0.1, pairs[0].same = false;
  pairs[3] = {0.1, true};
  const std::vector<FoldAccuracy> folds = fold_accuracies(pairs);
  std::vector<double> accuracies;
  for (const FoldAccuracy& fold : folds) accuracies.push_back(fold.accuracy);
  EXPECT_THAT(accuracies, ::testing::ElementsAre(0.5, 0.5, 1, 1, 1, 1, 1, 1, 1, 1));
}

TEST(FoldAccuracies, TooFewPairsAreRefused) {
  EXPECT_THAT(message_of([&] {
                fold_accuracies(repeated({{0.9, true}}, 9));
              }),
              ::testing::HasSubstr("there are 9 pairs; 10 folds need as many at least"));
}

const Pairs kSeven{{0.6, false}, {0.9, true}, {0.4, true}, {0.4, false}, {0.8, true}, {0.1, false}, {0, false}};

TEST(Rocs, HaveAPointWhereTheCurveBends) {
  const Roc roc = roc_of(kSeven);
  EXPECT_EQ(roc.same, 3);
  EXPECT_EQ(roc.different, 4);
  std::vector<std::vector<double>> points;
  for (const RocPoint& at : roc.points)
    points.push_back({at.threshold, static_cast<double>(at.same), static_cast<double>(at.different)});
  using Points = std::vector<std::vector<double>>;
  EXPECT_EQ(points, (Points{{kAcceptsNone, 0, 0}, {0.8, 2, 0}, {0.6, 2, 1}, {0.4, 3, 2}, {0, 3, 4}}));
}

TEST(Rocs, CountTiesHalfInTheirArea) { EXPECT_DOUBLE_EQ(roc_of(kSeven).area(), 10.5 / 12); }

// The line from FAR 1/4, TAR 2/3 to FAR 1/2, TAR 1 crosses FAR = 1 - TAR at 2/7.
TEST(Rocs, HaveAnEqualErrorRateBetweenTwoPoints) {
  EXPECT_DOUBLE_EQ(roc_of(kSeven).equal_error_rate(), 2.0 / 7);
  EXPECT_EQ(roc_of(Pairs{{0.9, true}, {0.1, false}}).equal_error_rate(), 0);
  EXPECT_EQ(roc_of(Pairs{{0.1, true}, {0.9, false}}).equal_error_rate(), 1);
}

TEST(Rocs, GiveTheHighestTarWithinAFar) {
  const Roc roc = roc_of(kSeven);
  EXPECT_EQ(roc.at_far(0.01).threshold, 0.8);
  EXPECT_EQ(roc.at_far(0.3).threshold, 0.8) << "one more different pair would be accepted for nothing";
  EXPECT_EQ(roc.at_far(0.5).threshold, 0.4);
  EXPECT_EQ(roc.at_far(0.5).different, 2);
  EXPECT_EQ(roc_of(Pairs{{0.1, true}, {0.9, false}}).at_far(0.01).threshold, kAcceptsNone);
}

// 0.29 * 100 is 28.999999999999996.
TEST(Rocs, AllowAWholeNumberOfPairs) {
  Pairs pairs = repeated({{0.9, false}}, 29);
  pairs.push_back({0.5, true});
  const Pairs others = repeated({{0.1, false}}, 71);
  pairs.insert(pairs.end(), others.begin(), others.end());
  EXPECT_EQ(roc_of(pairs).at_far(0.29).same, 1);
  EXPECT_EQ(roc_of(pairs).at_far(0.28).same, 0);
}

// With 100 different pairs FARs from 1/100 to 1, each with the highest TAR within it.
TEST(Rocs, HaveACurveForALogarithmicAxis) {
  Pairs pairs;
  for (int i = 0; i < 100; ++i) pairs.push_back({0.01 * i, false}), pairs.push_back({0.01 * i - 0.095, true});
  const Roc roc = roc_of(pairs);
  const std::vector<AcceptRates> curve = roc.curve();
  ASSERT_EQ(curve.size(), 2u * kPointsPerDecade + 1);
  EXPECT_NEAR(curve.front().far, 0.01, 1e-12);
  EXPECT_NEAR(curve[kPointsPerDecade].far, 0.1, 1e-12);
  EXPECT_EQ(curve.back().far, 1);
  EXPECT_EQ(curve.front().tar, 0) << "one different pair";
  EXPECT_EQ(curve[kPointsPerDecade].tar, 0.01) << "ten different pairs, above 0.89";
  EXPECT_EQ(curve[kPointsPerDecade + 10].tar, 0.12) << "21 different pairs, above 0.78; the FAR is 0.2154";
  EXPECT_EQ(curve.back().tar, 1);
  for (size_t i = 1; i < curve.size(); ++i) EXPECT_GT(curve[i].far, curve[i - 1].far);

  const std::vector<AcceptRates> one = roc_of(Pairs{{0.9, true}, {0.1, false}}).curve();
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].far, 1);
  EXPECT_EQ(one[0].tar, 1);
}

TEST(Rocs, NeedPairsOfBothKinds) {
  EXPECT_THAT(message_of([&] {
                roc_of(Pairs{{0.9, true}, {0.1, true}});
              }),
              ::testing::HasSubstr("all 2 pairs are the same; both kinds are needed"));
  EXPECT_THAT(message_of([&] { roc_of(Pairs{{0.9, false}}); }), ::testing::HasSubstr("all 1 pairs are different"));
}

}  // namespace
}  // namespace owt::verification_test
