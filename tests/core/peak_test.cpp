#include "src/core/peak.h"

#include <gtest/gtest.h>

#include "src/core/threads.h"
#include "tests/support/temp_folder.h"

namespace owt::peak_test {
namespace {

TEST(Peak, IsReachedByProductsOrByMemoryWhicheverTakesLonger) {
  const Peak peak{.flops_per_s = 100, .bytes_per_s = 10};
  EXPECT_DOUBLE_EQ(peak.seconds(300, 20), 3);
  EXPECT_TRUE(peak.computes(300, 20));
  EXPECT_DOUBLE_EQ(peak.seconds(100, 20), 2);
  EXPECT_FALSE(peak.computes(100, 20));
  EXPECT_FALSE(Peak().known());
}

TEST(Peak, IsKnownOnceItIsMeasured) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const TempFolder folder;  // for each: a processor without bf16 has one peak for both
    PlanCache cache(folder.path());
    EXPECT_FALSE(known_peak(precision, 1, cache));
    int met = 0;
    const Peak measured = measure_peak(
        precision, 1, [&] { ++met; }, cache);
    EXPECT_EQ(met, 2);
    EXPECT_GT(measured.flops_per_s, 0);
    EXPECT_GT(measured.bytes_per_s, 0);
    PlanCache later(folder.path());
    const auto known = known_peak(precision, 1, later);
    ASSERT_TRUE(known);
    EXPECT_EQ(known->flops_per_s, measured.flops_per_s);
    EXPECT_EQ(known->bytes_per_s, measured.bytes_per_s);
  }
}

TEST(Peak, OfTheCacheIsTakenUnlessItMakesNoSense) {
  PlanCache cache("");
  cache.store(peak_key(Precision::kFp32, 1), "3e9 2e9");
  EXPECT_EQ(known_peak(Precision::kFp32, 1, cache)->flops_per_s, 3e9);
  EXPECT_EQ(known_peak(Precision::kFp32, 1, cache)->bytes_per_s, 2e9);
  for (const char* text : {"", "fast", "3e9", "-1 2e9", "3e9 nan"}) {
    cache.store(peak_key(Precision::kFp32, 1), text);
    EXPECT_FALSE(known_peak(Precision::kFp32, 1, cache)) << text;
  }
}

TEST(Peak, HasAKeyForEachNumberOfThreadsAndOfTeams) {
  const int team = team_size();
  set_team_size(1);
  const std::string one = peak_key(Precision::kFp32, 1);
  EXPECT_NE(peak_key(Precision::kFp32, 2), one);
  set_team_size(2);
  EXPECT_NE(peak_key(Precision::kFp32, 1), one);
  set_team_size(team);
}

}  // namespace
}  // namespace owt::peak_test
