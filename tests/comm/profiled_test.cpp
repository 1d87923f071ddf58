#include "src/comm/profiled.h"

#include <gtest/gtest.h>

#include "src/comm/threads.h"
#include "tests/support/harness.h"

namespace owt::profiled_test {
namespace {

using ProfiledRanks = DeviceTest;
INSTANTIATE_TEST_SUITE_P(Devices, ProfiledRanks, testing::ValuesIn(devices()), device_name);

TEST_P(ProfiledRanks, CountBytesAndReportThemToTheOpenScope) {
  run_ranks(
      2, 1,
      [&](Communicator& inner) {
        const Stream stream(device());
        Profiler profiler;
        profiler.use_stream(stream);
        profiler.enable(true);
        ProfiledCommunicator comm(inner, &profiler);
        Tensor sum({100}, DType::kF32, device()), all({50}, DType::kF32, device());
        sum.zero();
        profiler.begin_step();
        {
          const Profiler::Scope scope(&profiler, "sums", Phase::kTransfer);
          stream.wait(comm.all_reduce(sum, stream.record()));
          stream.wait(comm.all_reduce(sum, stream.record()));
        }
        stream.wait(comm.all_gather(sum.rows(0, 25), all, stream.record()));  // counted, but in no scope
        profiler.end_step();
        EXPECT_EQ(comm.bytes(), 2 * 400 + 100);
        ASSERT_EQ(profiler.rows().size(), 1u);
        EXPECT_EQ(profiler.rows()[0].name, "sums");
        EXPECT_EQ(profiler.rows()[0].bytes[0], 800);
        EXPECT_GT(profiler.rows()[0].transfer_ms[0], 0);
        EXPECT_LE(profiler.rows()[0].transfer_ms[0], profiler.rows()[0].ms[0]);
      },
      device());
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
  std::unique_ptr<Communicator> split(int) override { fail("not wanted here"); }
  Event run(const Call&) override { return Event(std::make_shared<Late>()); }
};

TEST(ProfiledCommunicator, CountsATransferInFlightOnceWhenItIsWaitedFor) {
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
  EXPECT_EQ(profiler.rows()[0].own_ms[0], 0);  // it may have waited for other ranks
}

// With threads, the second rank to arrive copies the message in its call.
TEST(ProfiledCommunicator, WhoCopiesAMessageIsBusyWithIt) {
  run_ranks(2, 1, [&](Communicator& inner) {
    Profiler profiler;
    profiler.enable(true);
    ProfiledCommunicator comm(inner, &profiler);
    Tensor rows({1 << 20}), one({1});
    rows.zero(), one.zero();
    comm.connect({{0, 1, rows.bytes(), 1}});
    profiler.begin_step();
    if (comm.rank() == 0) inner.all_reduce(one, {}).wait();  // until the other one has asked
    {
      const Profiler::Scope scope(&profiler, "rows", Phase::kTransfer);
      const Event event = comm.rank() == 0 ? comm.send(rows, 1, {}) : comm.receive(rows, 0, {});
      if (comm.rank() == 1) inner.all_reduce(one, {}).wait();
      event.wait();
    }
    profiler.end_step();
    const Profiler::Row& row = profiler.rows()[0];
    if (comm.rank() == 0) {
      EXPECT_EQ(row.own_ms[0], row.transfer_ms[0]);
    }
    EXPECT_GT(row.own_ms[0], 0);
    EXPECT_LE(row.own_ms[0], row.ms[0]);
    EXPECT_GT(row.transfer_ms[0], 0);
  });
}

}  // namespace
}  // namespace owt::profiled_test
