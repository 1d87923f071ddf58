#include "src/comm/threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "src/comm/profiled.h"

namespace owt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor tensor(const std::vector<float>& values) {
  Tensor t({static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), t.data());
  return t;
}

std::vector<float> values(const Tensor& t) { return {t.data(), t.data() + t.elements()}; }

class ThreadRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ThreadRanks, ::testing::Values(1, 2, 3, 4, 7));

TEST_P(ThreadRanks, AllReduceGivesEveryRankTheSameSum) {
  const int ranks = GetParam();
  std::vector<std::vector<float>> sums(static_cast<size_t>(ranks));
  run_ranks(ranks, 1, [&](Communicator& comm) {
    Tensor t({10'007});  // no multiple of the ranks
    for (int64_t i = 0; i < t.elements(); ++i)
      t.data()[i] = std::sin(static_cast<float>(i) * static_cast<float>(comm.rank() + 1));
    comm.all_reduce(t, {}).wait();
    sums[static_cast<size_t>(comm.rank())] = values(t);
  });
  for (int64_t i = 0; i < 10'007; i += 13) {
    double sum = 0;
    for (int r = 0; r < ranks; ++r) sum += std::sin(static_cast<float>(i) * static_cast<float>(r + 1));
    EXPECT_NEAR(sums[0][static_cast<size_t>(i)], sum, 1e-5);
  }
  for (const auto& other : sums) EXPECT_EQ(other, sums[0]);
}

TEST_P(ThreadRanks, AllGatherPutsThePartsInRankOrder) {
  const int ranks = GetParam();
  run_ranks(ranks, 1, [&](Communicator& comm) {
    const float r = static_cast<float>(comm.rank());
    Tensor all({2 * ranks});
    comm.all_gather(tensor({10 * r, 10 * r + 1}), all, {}).wait();
    for (int other = 0; other < ranks; ++other) {
      EXPECT_EQ(all.data()[2 * other], 10.0f * static_cast<float>(other));
      EXPECT_EQ(all.data()[2 * other + 1], 10.0f * static_cast<float>(other) + 1);
    }
  });
}

TEST_P(ThreadRanks, ReduceScatterIsAllReduceCutIntoParts) {
  const int ranks = GetParam();
  run_ranks(ranks, 1, [&](Communicator& comm) {
    Tensor all({3 * ranks}), mine({3});
    for (int64_t i = 0; i < all.elements(); ++i) all.data()[i] = static_cast<float>(i + comm.rank());
    comm.reduce_scatter(all, mine, {}).wait();
    for (int64_t i = 0; i < 3; ++i) {
      const int64_t element = comm.rank() * 3 + i;
      EXPECT_EQ(mine.data()[i], static_cast<float>(ranks * element + ranks * (ranks - 1) / 2));
    }
  });
}

TEST_P(ThreadRanks, BroadcastAndReduceAreMirrorImages) {
  const int ranks = GetParam(), root = ranks - 1;
  run_ranks(ranks, 1, [&](Communicator& comm) {
    Tensor out({2});
    comm.broadcast(comm.rank() == root ? tensor({5, 6}) : Tensor(), out, root, {}).wait();
    EXPECT_THAT(values(out), ElementsAre(5, 6));
    Tensor sum = comm.rank() == root ? Tensor({2}) : Tensor();
    comm.reduce(tensor({1, static_cast<float>(comm.rank())}), sum, root, {}).wait();
    if (comm.rank() == root) {
      EXPECT_THAT(values(sum), ElementsAre(ranks, ranks * (ranks - 1) / 2));
    }
  });
}

TEST_P(ThreadRanks, AllToAllTransposesTheParts) {
  const int ranks = GetParam();
  run_ranks(ranks, 1, [&](Communicator& comm) {
    Tensor mine({ranks}), theirs({ranks});
    for (int i = 0; i < ranks; ++i) mine.data()[i] = static_cast<float>(100 * comm.rank() + i);
    comm.all_to_all(mine, theirs, {}).wait();
    for (int i = 0; i < ranks; ++i) EXPECT_EQ(theirs.data()[i], static_cast<float>(100 * i + comm.rank()));
  });
}

TEST_P(ThreadRanks, ManyCollectivesInARowKeepTheirOrder) {
  run_ranks(GetParam(), 1, [&](Communicator& comm) {
    Tensor t = tensor({1});
    for (int i = 0; i < 2000; ++i) {
      t.data()[0] = static_cast<float>(i);
      comm.all_reduce(t, {}).wait();
      ASSERT_EQ(t.data()[0], static_cast<float>(i * comm.ranks()));
    }
  });
}

TEST(RunRanks, OneRankThatFailsEndsAllAndItsErrorComesOut) {
  std::atomic<int> aborted{0};
  try {
    run_ranks(4, 1, [&](Communicator& comm) {
      Tensor t = tensor({1});
      try {
        comm.all_reduce(t, {}).wait();
        if (comm.rank() == 2) fail("rank two has had enough");
        comm.all_reduce(t, {}).wait();  // rank 2 never comes
      } catch (const Aborted&) {
        ++aborted;
        throw;
      }
    });
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "rank two has had enough");
  }
  EXPECT_EQ(aborted, 3);
}

TEST(RunRanks, ARankThatFailsLaterThanItsPartnersWaitStillEndsThem) {
  EXPECT_THROW(run_ranks(3, 1,
                         [&](Communicator& comm) {
                           if (comm.rank() == 0) {
                             std::this_thread::sleep_for(std::chrono::milliseconds(30));
                             throw std::runtime_error("late");
                           }
                           Tensor t = tensor({1});
                           comm.all_reduce(t, {}).wait();
                         }),
               std::runtime_error);
}

// Formulas of a ring: 2 (K-1)/K S for all_reduce, (K-1)/K S for the others.
TEST(BytesSent, FollowTheRingFormulas) {
  EXPECT_EQ(bytes_sent(Collective::kAllReduce, 1000, 4), 1500);
  EXPECT_EQ(bytes_sent(Collective::kAllGather, 1000, 4), 750);
  EXPECT_EQ(bytes_sent(Collective::kReduceScatter, 1000, 2), 500);
  EXPECT_EQ(bytes_sent(Collective::kBroadcast, 1000, 5), 800);
  EXPECT_EQ(bytes_sent(Collective::kReduce, 1000, 8), 875);
  EXPECT_EQ(bytes_sent(Collective::kAllToAll, 1000, 1), 0);
}

TEST(ProfiledCommunicator, CountsBytesAndReportsThemToTheOpenScope) {
  run_ranks(2, 1, [](Communicator& inner) {
    Profiler profiler;
    profiler.enable(true);
    ProfiledCommunicator comm(inner, &profiler);
    profiler.begin_step();
    Tensor sum({100}), all({50});
    sum.zero();
    {
      const Profiler::Scope scope(&profiler, "sums", Phase::kTransfer);
      comm.all_reduce(sum, {}).wait();
      comm.all_reduce(sum, {}).wait();
    }
    comm.all_gather(sum.rows(0, 25), all, {}).wait();  // counted, but in no scope
    profiler.end_step();
    EXPECT_EQ(comm.bytes(), 2 * 400 + 100);
    ASSERT_EQ(profiler.rows().size(), 1u);
    EXPECT_EQ(profiler.rows()[0].name, "sums");
    EXPECT_EQ(profiler.rows()[0].bytes[0], 800);
    EXPECT_LE(profiler.rows()[0].transfer_ms[0], profiler.rows()[0].ms[0]);
  });
}

// A collective that is under way when its call returns.
class Late : public Event::Pending {
 public:
  void wait() override { done_ = true; }
  bool done() const override { return done_; }

 private:
  bool done_ = false;
};

class LateCommunicator : public Communicator {
 public:
  int rank() const override { return 0; }
  int ranks() const override { return 2; }
  Event all_reduce(Tensor&, const Event&) override { return Event(std::make_shared<Late>()); }
  Event all_gather(const Tensor&, Tensor&, const Event&) override { return {}; }
  Event reduce_scatter(const Tensor&, Tensor&, const Event&) override { return {}; }
  Event broadcast(const Tensor&, Tensor&, int, const Event&) override { return {}; }
  Event reduce(const Tensor&, Tensor&, int, const Event&) override { return {}; }
  Event all_to_all(const Tensor&, Tensor&, const Event&) override { return {}; }
};

TEST(ProfiledCommunicator, CountsATransferUnderWayOnceWhenItIsWaitedFor) {
  LateCommunicator inner;
  Profiler profiler;
  profiler.enable(true);
  ProfiledCommunicator comm(inner, &profiler);
  profiler.begin_step();
  Tensor sum({100});
  Event event;
  {
    const Profiler::Scope scope(&profiler, "sums", Phase::kTransfer);
    event = comm.all_reduce(sum, {});
  }
  EXPECT_FALSE(event.done());
  EXPECT_EQ(profiler.rows()[0].bytes[0], 0);
  {
    const Profiler::Scope scope(&profiler, "sums", Phase::kTransfer);
    event.wait();
    event.wait();
  }
  EXPECT_TRUE(event.done());
  EXPECT_EQ(profiler.rows()[0].bytes[0], 400);
}

}  // namespace
}  // namespace owt
