#include "src/predict/bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "src/comm/threads.h"

namespace owt::bench_test {
namespace {

TEST(Bench, BusFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllReduce, 4), 1.5);
  for (const Collective collective : {Collective::kAllGather, Collective::kReduceScatter, Collective::kAllToAll})
    EXPECT_DOUBLE_EQ(bus_factor(collective, 4), 0.75);
  for (const Collective collective : {Collective::kBroadcast, Collective::kReduce, Collective::kSend})
    EXPECT_DOUBLE_EQ(bus_factor(collective, 4), 1);
}

TEST(Bench, EveryRankLearnsTheSameTimes) {
  std::mutex mutex;
  std::vector<std::vector<CollectiveTime>> found;
  run_ranks(3, 1, [&](Communicator& comm) {
    std::vector<CollectiveTime> mine;
    for (const Collective collective : all_collectives())
      mine.push_back(time_collective(comm, collective, 1000, {.most_calls = 5, .seconds = 0.01}));
    const std::lock_guard lock(mutex);
    found.push_back(mine);
  });
  ASSERT_EQ(found.size(), 3u);
  for (size_t c = 0; c < all_collectives().size(); ++c)
    for (const auto& times : found) {
      EXPECT_EQ(times[c].collective, all_collectives()[c]);
      EXPECT_EQ(times[c].bytes, 1008);  // 84 floats for each of three
      EXPECT_GT(times[c].seconds, 0);
      EXPECT_EQ(times[c].seconds, found[0][c].seconds);
      EXPECT_EQ(times[c].calls, found[0][c].calls);
    }
}

// A communicator whose sums finish some time after the call.
class Slow : public Communicator {
 public:
  explicit Slow(Communicator& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int ranks() const override { return inner_.ranks(); }
  std::unique_ptr<Communicator> split(int) override { fail("not wanted here"); }
  Event run(const Call& call) override {
    const Event event = inner_.run(call);
    if (call.collective != Collective::kAllReduce) return event;
    event.wait();
    return Event(std::make_shared<Later>());
  }

 private:
  struct Later : Event::Pending {
    void wait() override { over = true; }
    bool done() const override { return over; }
    bool over = false;
  };

  Communicator& inner_;
};

TEST(Bench, TellsWhetherACallReturnsBeforeItsCollectiveIsOver) {
  run_ranks(2, 1, [](Communicator& comm) {
    Slow slow(comm);
    const BenchLimits limits{.most_calls = 3, .seconds = 0.001};
    EXPECT_TRUE(time_collective(slow, Collective::kAllReduce, 64, limits).overlaps);
    EXPECT_FALSE(time_collective(slow, Collective::kAllGather, 64, limits).overlaps);
  });
}

// Three of the seven timed calls return at once. Before them one call warms up, one shows whether the collective
// overlaps, and one determines how many calls fit.
class MostlySlow : public Slow {
 public:
  using Slow::Slow;
  static constexpr int kMilliseconds = 10;
  Event run(const Call& call) override {
    if (call.collective != Collective::kAllReduce) return Slow::run(call);
    ++calls_;
    if (calls_ > 3 && calls_ % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(kMilliseconds));
    return Slow::run(call);
  }
  int calls() const { return calls_; }

 private:
  int calls_ = 0;
};

TEST(Bench, TellsTheMedianOfTheTimedCalls) {
  run_ranks(2, 1, [](Communicator& comm) {
    MostlySlow slow(comm);
    const CollectiveTime time = time_collective(slow, Collective::kAllReduce, 64,
                                                {.warm_up = 1, .most_calls = 7, .fewest_calls = 7, .seconds = 0.001});
    EXPECT_EQ(time.calls, 7);
    EXPECT_EQ(slow.calls(), 10);
    EXPECT_GE(time.seconds, 1e-3 * MostlySlow::kMilliseconds);
  });
}

TEST(Bench, ThreadsAreOnOneHost) {
  run_ranks(3, 1, [](Communicator& comm) { EXPECT_EQ(count_hosts(comm), 1); });
}

}  // namespace
}  // namespace owt::bench_test
