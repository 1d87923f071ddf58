#include "src/comm/stuck.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/system/check.h"

namespace owt::stuck_test {
namespace {

using testing::HasSubstr;

using Standings = std::vector<std::optional<Standing>>;

constexpr double kTimeout = 20, kStall = 600;

Standing in(const std::string& collective, int64_t number, double still_s) {
  return {WaitsFor::kOthers, still_s, number, collective};
}
Standing computing(double still_s) { return {WaitsFor::kNothing, still_s, 7, "all_reduce"}; }
Standing without_data(double still_s) { return {WaitsFor::kData, still_s, 7, "all_reduce"}; }

std::optional<Stuck> stuck(const Standings& standings) { return find_stuck(standings, kTimeout, kStall); }

TEST(FindStuck, NobodyIsAccusedWhileAnyRankShowsSignsOfWork) {
  EXPECT_FALSE(stuck({in("all_reduce", 8, 100), in("all_reduce", 8, 100), computing(0.5)}));
  EXPECT_FALSE(stuck({in("all_reduce", 8, 100), in("all_gather", 8, 19)}));
  EXPECT_FALSE(stuck({in("all_reduce", 8, 100), without_data(5)}));
}

TEST(FindStuck, ALongLayerIsNoHangUntilTheLimitOfItsOwn) {
  EXPECT_FALSE(stuck({in("all_reduce", 8, 599), computing(599)}));
  const auto found = stuck({in("all_reduce", 8, 600), computing(601)});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_THAT(found->how, HasSubstr("no sign of work for 601 s"));
}

TEST(FindStuck, RanksThatAllComputeWaitForNobody) { EXPECT_FALSE(stuck({computing(1e6), computing(1e6)})); }

TEST(FindStuck, WhoWaitsForDataIsNamed) {
  const auto found = stuck({in("all_reduce", 8, 21), in("all_reduce", 8, 22), without_data(25)});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2);
  EXPECT_THAT(found->how, HasSubstr("waited for data for 25 s"));
}

TEST(FindStuck, TheRankAtTheEarlierCollectiveIsNamedWithBothCollectives) {
  const auto found = stuck({in("all_reduce of 'gradients'", 9, 21), in("broadcast of 'fc1 input'", 8, 22)});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->how,
            "it has been in broadcast of 'fc1 input' (its collective 8) for 21 s, while rank 0 waits in all_reduce of "
            "'gradients' (its collective 9)");
}

Standing waiting_for(int peer, double still_s) {
  return {WaitsFor::kOthers, still_s, 8, concat("receive from rank ", peer), peer};
}

TEST(FindStuck, WhoIsAtTheEndOfAChainOfMessagesIsNamed) {
  const auto found = stuck({in("all_reduce", 8, 30), waiting_for(2, 21), waiting_for(0, 22)});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 0);
  EXPECT_EQ(found->how,
            "it has been in all_reduce (its collective 8) for 21 s, while rank 2 waits in receive from rank 0");
}

TEST(FindStuck, OfRanksThatWaitForOneAnothersMessagesOneIsNamed) {
  const auto found = stuck({waiting_for(1, 21), waiting_for(2, 21), waiting_for(1, 21)});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->how, "it has been in receive from rank 2 for 21 s, while rank 2 waits in receive from rank 1");
}

TEST(FindStuck, WhoWaitsForARankThatHasEndedIsNamed) {
  const auto found = stuck({waiting_for(1, 21), std::nullopt});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 0);
  EXPECT_EQ(found->how, "it has been in receive from rank 1 for 21 s, but rank 1 has come to its end");
}

TEST(FindStuck, AMessageThatMayStillComeAccusesNobody) {
  EXPECT_FALSE(stuck({waiting_for(1, 100), computing(5)}));
  EXPECT_FALSE(stuck({waiting_for(1, 100), waiting_for(2, 100), in("all_gather", 8, 19)}));
}

TEST(FindStuck, WhoIsInAnotherCollectiveThanTheFirstIsNamed) {
  const auto found = stuck({in("all_reduce", 9, 21), in("all_reduce", 9, 21), in("all_gather", 9, 22)});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2);
}

TEST(FindStuck, WhereAllAreInTheSameTheNetworkIsToBlame) {
  const auto found = stuck({in("all_reduce", 9, 21), in("all_reduce", 9, 21)});
  ASSERT_TRUE(found);
  EXPECT_THAT(found->how, HasSubstr("no message moves"));
}

TEST(FindStuck, ThoseThatHaveLeftAreNotWaitedFor) {
  EXPECT_FALSE(stuck({std::nullopt, computing(1e6)}));
  EXPECT_TRUE(stuck({in("the end", 9, 21), std::nullopt}));
}

TEST(FindStuck, AGpuMayWorkAsLongAsAComputingRank) {
  const Standing gpu{WaitsFor::kDevice, 599, 3, ""}, lost{WaitsFor::kDevice, 601, 3, ""};
  EXPECT_FALSE(stuck({gpu, lost}));
  EXPECT_TRUE(stuck({lost, lost}));
}

TEST(Standing, ComesBackFromItsText) {
  const Standing standing = in("all_gather of 'a: b'", 12, 3.5);
  EXPECT_EQ(Standing::from(standing.text()), standing);
}

}  // namespace
}  // namespace owt::stuck_test
