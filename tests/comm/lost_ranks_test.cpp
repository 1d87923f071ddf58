#include "src/comm/lost_ranks.h"

#include <gtest/gtest.h>

#include "src/core/profiler.h"

namespace owt::lost_ranks_test {
namespace {

TEST(LostRanks, NameTheCollectiveAndTheStep) {
  LostRanks lost;
  lost.check("all_reduce");
  lost.set_lost(2, "rank 2 was lost");
  EXPECT_EQ(lost.text("all_reduce"), "rank 2 was lost; during all_reduce");
  note_step(12);
  EXPECT_EQ(lost.text("after all_gather"), "rank 2 was lost; after all_gather, step 12");
  EXPECT_EQ(lost.text(""), "rank 2 was lost; step 12");
  note_step(-1);
  EXPECT_THROW(lost.check("reduce"), RankLost);
}

TEST(LostRanks, TheFirstFailureIsTheCauseAndStaysSo) {
  LostRanks lost;
  lost.set_lost(2, "rank 2 was lost");
  lost.set_failed("rank 1 failed");
  lost.set_lost(0, "rank 0 was lost");
  EXPECT_EQ(lost.text(""), "rank 2 was lost");
  EXPECT_THROW(lost.check("reduce"), RankLost);
}

TEST(LostRanks, OneThatIsToleratedEndsOnlyWhatIsExchangedWithIt) {
  LostRanks lost;
  lost.tolerate({1, 2});
  lost.check_peer(2, "send");
  lost.check_group({0, 1, 2}, "all_reduce");
  lost.set_lost(2, "rank 2 was lost");
  lost.set_lost(2, "rank 2 has not answered");
  EXPECT_FALSE(lost.any());
  EXPECT_EQ(lost.gone(), 1);
  EXPECT_EQ(lost.what_is_gone(), std::vector<std::string>{"rank 2 was lost"});
  lost.check("all_reduce");
  lost.check_peer(1, "send");
  lost.check_group({0, 1}, "all_reduce");
  EXPECT_THROW(lost.check_peer(2, "send"), PeerGone);
  EXPECT_THROW(lost.check_group({0, 2}, "all_reduce"), RankLost);
  lost.set_lost(0, "rank 0 was lost");
  EXPECT_TRUE(lost.any());
  EXPECT_THROW(lost.check("send"), RankLost);
}

TEST(NotedPlace, IsTheMessageThatIsWaitedForOrTheLastCollective) {
  note_collective("all_reduce", /*under_way=*/true);
  EXPECT_EQ(noted_place(), "all_reduce");
  {
    const WaitsForMessage waits("receive from rank 1", 1);
    EXPECT_EQ(noted_place(), "receive from rank 1");
  }
  EXPECT_EQ(noted_place(), "all_reduce");
  note_end_of_collective();
  EXPECT_EQ(noted_place(), "after all_reduce");
  note_collective("broadcast", /*under_way=*/false);
  EXPECT_EQ(noted_place(), "after broadcast");
}

TEST(Described, CallsNameTheirTransferAndTheOtherEndOfAMessage) {
  EXPECT_EQ(described(Collective::kAllGather), "all_gather");
  EXPECT_EQ(described(Collective::kReceive, 2), "receive from rank 2");
  const Profiler::Scope scope(nullptr, "fc1 input", Phase::kTransfer);
  EXPECT_EQ(described(Collective::kAllGather), "all_gather of 'fc1 input'");
  EXPECT_EQ(described(Collective::kSend, 0), "send of 'fc1 input' to rank 0");
}

TEST(LostRanks, OfARankThatFailedAreItsOwnWords) {
  LostRanks lost;
  lost.set_failed("rank 1 failed: disk full");
  try {
    lost.check("reduce");
    FAIL() << "no error";
  } catch (const RankLost&) {
    FAIL() << "it was not lost";
  } catch (const Aborted& e) {
    EXPECT_STREQ(e.what(), "rank 1 failed: disk full");
  }
}

}  // namespace
}  // namespace owt::lost_ranks_test
