#include "tests/support/margins.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace owt::margins_test {
namespace {

using testing::DoubleNear;
using testing::Each;
using testing::ElementsAre;
using testing::MatchesRegex;
using testing::Not;
using testing::Pointwise;

// Comparisons are recorded here while it lives.
class Margins : public testing::Test {
 protected:
  ~Margins() override { margins::recorder = before_; }
  // The recorded comparisons, the largest share first; stops recording.
  std::vector<std::string> found() {
    margins::recorder = before_;
    return own_.lines();
  }

 private:
  margins::Recorder own_;
  margins::Recorder* before_ = std::exchange(margins::recorder, &own_);
};

TEST_F(Margins, AreTheLargestShareOfEachPlaceAndTest) {
  for (const double value : {1.25, 1.375, 1.0}) EXPECT_NEAR(value, 1, 0.5);
  std::thread([] { EXPECT_NEAR(4, 3, 8); }).join();
  EXPECT_THAT(found(),
              ElementsAre(MatchesRegex("error 0.7500 0.375 0.5 tests/system/margins_test.cpp:.* Margins.AreThe.*"),
                          MatchesRegex("error 0.1250 1 8 tests/.*")));
}

TEST_F(Margins, OfOrderAreTheSmallerNumberBesideTheLarger) {
  EXPECT_LT(3.0, 4);
  EXPECT_GE(8, 5.0);
  EXPECT_LE(-8.0, -2.0);
  EXPECT_GT(1.0, -1.0);
  EXPECT_LT(2, 3);  // integers are not recorded
  EXPECT_THAT(found(), ElementsAre(MatchesRegex("order 0.7500 3 4 .*"), MatchesRegex("order 0.6250 5 8 .*"),
                                   MatchesRegex("order 0.2500 2 8 .*"), MatchesRegex("order 0.0000 0 1 .*")));
}

TEST_F(Margins, OfEqualNumbersAreUnitsInTheLastPlace) {
  EXPECT_DOUBLE_EQ(1, 1 + 2 * std::numeric_limits<double>::epsilon());
  EXPECT_FLOAT_EQ(1, 1 + std::numeric_limits<float>::epsilon());
  EXPECT_THAT(found(), ElementsAre(MatchesRegex("error 0.5000 2 4 .*"), MatchesRegex("error 0.2500 1 4 .*")));
}

TEST_F(Margins, OfListsAreThoseOfTheirElements) {
  const std::vector<double> list{1, 2.25};
  EXPECT_THAT(list, Pointwise(DoubleNear(0.5), {1, 2}));
  EXPECT_THAT(list, Each(testing::FloatNear(1, 2)));
  EXPECT_THAT(found(), ElementsAre(MatchesRegex("error 0.6250 1.25 2 .*"), MatchesRegex("error 0.5000 0.25 0.5 .*")));
}

TEST_F(Margins, AreNotRecordedOfNaN) {
  margins::record({__FILE__, __LINE__}, std::numeric_limits<double>::quiet_NaN(), 1);
  EXPECT_THAT(found(), testing::IsEmpty());
}

// These matchers replace GoogleTest's and must refuse the same values.
TEST(NearAt, RefusesWhatIsFarOrNoNumber) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(2.0, Not(DoubleNear(1, 0.5)));
  EXPECT_THAT(nan, Not(DoubleNear(nan, 0.5)));
  EXPECT_THAT(inf, DoubleNear(inf, 0.5));
  EXPECT_THAT((std::vector<double>{1, nan}), Not(Pointwise(DoubleNear(0.5), {1.0, nan})));
  EXPECT_THAT((std::vector<double>{1, 2}), Not(Pointwise(DoubleNear(0.5), {1, 1})));
}

}  // namespace
}  // namespace owt::margins_test
