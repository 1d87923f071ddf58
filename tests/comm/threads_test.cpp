#include "src/comm/threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "src/comm/profiled.h"
#include "src/core/bf16.h"
#include "src/core/gpus.h"
#include "tests/support/harness.h"

namespace owt::threads_test {
namespace {

using RunRanks = DeviceTest;
INSTANTIATE_TEST_SUITE_P(Devices, RunRanks, testing::ValuesIn(devices()), device_name);

TEST_P(RunRanks, OneRankThatFailsEndsAllAndItsErrorComesOut) {
  std::atomic<int> aborted{0};
  try {
    run_ranks(
        4, 1,
        [&](Communicator& comm) {
          Tensor t = upload({1}, {1}, device());
          try {
            comm.all_reduce(t, {}).wait();
            if (comm.rank() == 2) fail("rank two has had enough");
            comm.all_reduce(t, {}).wait();  // rank 2 never calls it
          } catch (const Aborted&) {
            ++aborted;
            throw;
          }
        },
        device());
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "rank two has had enough");
  }
  EXPECT_EQ(aborted, 3);
}

TEST_P(RunRanks, ARankThatFailsLaterThanItsPartnersWaitStillEndsThem) {
  EXPECT_THROW(run_ranks(
                   3, 1,
                   [&](Communicator& comm) {
                     if (comm.rank() == 0) {
                       std::this_thread::sleep_for(std::chrono::milliseconds(30));
                       throw std::runtime_error("late");
                     }
                     Tensor t = upload({1}, {1}, device());
                     comm.all_reduce(t, {}).wait();
                   },
                   device()),
               std::runtime_error);
}

TEST_P(RunRanks, ARankThatFailsEndsThoseThatWaitInOtherGroups) {
  std::atomic<int> aborted{0};
  try {
    run_ranks(
        4, 1,
        [&](Communicator& comm) {
          std::unique_ptr<Communicator> group, nested;
          Tensor t = upload({1}, {1}, device());
          try {  // the first groups may still be parting when rank 3 fails
            group = comm.split(comm.rank() / 2), nested = group->split(0);
            nested->all_reduce(t, {}).wait();
            if (comm.rank() == 3) fail("rank three has had enough");
            if (comm.rank() == 2) nested->all_reduce(t, {}).wait();  // for rank 3, which never calls it
            if (comm.rank() == 2) FAIL() << "nobody came";
            comm.all_reduce(t, {}).wait();  // for rank 2
          } catch (const Aborted&) {
            ++aborted;
            throw;
          }
        },
        device());
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "rank three has had enough");
  }
  EXPECT_EQ(aborted, 3);
}

TEST_P(RunRanks, SumsOfIntegersAreRefused) {
  EXPECT_THROW(run_ranks(
                   2, 1,
                   [&](Communicator& comm) {
                     Tensor t({1}, DType::kI32, device());
                     comm.all_reduce(t, {}).wait();
                   },
                   device()),
               Error);
}

TEST_P(RunRanks, OnlyALoneRankMayBeRecordedIntoAGraph) {
  run_ranks(
      1, 1, [](Communicator& comm) { EXPECT_TRUE(comm.records()); }, device());
  run_ranks(
      2, 1, [](Communicator& comm) { EXPECT_FALSE(comm.records()); }, device());
}

}  // namespace
}  // namespace owt::threads_test
