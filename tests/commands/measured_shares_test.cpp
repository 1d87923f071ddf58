#include "src/commands/measured_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/runs.h"

namespace owt::measured_shares_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::IsEmpty;
using ::testing::Le;

std::vector<double> from(std::vector<double> seconds) { return shares_from(seconds); }

TEST(MeasuredShares, AreInProportionToSpeeds) {
  EXPECT_THAT(from({0.2, 0.1, 0.4}), ElementsAre(0.5, 1, 0.25));
  EXPECT_THAT(from({0.3, 0.1}), ElementsAre(0.333, 1));
  EXPECT_THAT(from({1e-9, 1}), ElementsAre(1, 0.001));
  EXPECT_EQ(shares_text(from({1, 1.9})), "worker 0 1.000, worker 1 0.526");
}

TEST(MeasuredShares, OfNearlyTheSameSpeedAreEqual) {
  EXPECT_THAT(from({1, 1.049}), ElementsAre(1, 1));
  EXPECT_THAT(from({1, 1.051}), ElementsAre(1, 0.951));
  EXPECT_THAT(from({3}), ElementsAre(1));
}

std::string settled(Settings& settings, const std::vector<double>& kept = {}) {
  return settle_shares(settings, Session(settings, 1), kept);
}

TEST(MeasuredShares, AreFoundByTimingAllWorkers) {
  Settings settings = small_settings(kSmallRecipe, {{"parallel.workers", "2"}, {"parallel.shares", "measured"}});
  EXPECT_THAT(settled(settings), testing::StartsWith("shares: worker 0 "));
  EXPECT_THAT(settings.parallel.shares, ElementsAre(AllOf(Gt(0), Le(1)), AllOf(Gt(0), Le(1))));
  EXPECT_EQ(settings.parallel.speeds, settings.parallel.shares);
}

TEST(MeasuredShares, OfACheckpointWithAsManyWorkersAreTaken) {
  Settings settings = small_settings(kSmallRecipe, {{"parallel.workers", "2"}, {"parallel.shares", "measured"}});
  EXPECT_EQ(settled(settings, {0.25, 1}), "shares: worker 0 0.250, worker 1 1.000, as in the checkpoint");
  EXPECT_THAT(settings.parallel.shares, ElementsAre(0.25, 1));
}

TEST(MeasuredShares, AreLeftAloneWhereTheRecipeDoesNotAsk) {
  Settings given = small_settings(kSmallRecipe, {{"parallel.workers", "2"}, {"parallel.shares", "[2, 1]"}});
  EXPECT_EQ(settled(given, {0.25, 1}), "");
  EXPECT_THAT(given.parallel.shares, ElementsAre(2, 1));
  Settings none = small_settings(kSmallRecipe, {{"parallel.workers", "2"}});
  EXPECT_EQ(settled(none, {0.25, 1}), "");
  EXPECT_THAT(none.parallel.shares, IsEmpty());
}

}  // namespace
}  // namespace owt::measured_shares_test
