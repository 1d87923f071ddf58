// Which failure run_ranks() reports if several ranks fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "src/comm/threads.h"
#include "src/core/threads.h"
#include "tests/support/few_threads.h"
#include "tests/support/message_of.h"

namespace owt::run_ranks_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::StrEq;

// Until the failure of another rank is known.
void wait_for_the_end(Communicator& comm) {
  try {
    Tensor sum({1});
    sum.zero();
    while (true) comm.all_reduce(sum, {}).wait();
  } catch (const Aborted&) {
  }
}

TEST(FailureOfRanks, TheFirstOneIsThrown) {
  const auto body = [](Communicator& comm) {
    if (comm.rank() == 1) fail("the first");
    wait_for_the_end(comm);
    fail("a later one");
  };
  EXPECT_THAT(message_of([&] { run_ranks(3, 1, body); }), StrEq("the first"));
}

// Rank 0 hears of the end before the rank that is the cause has said why.
TEST(FailureOfRanks, TheCauseIsThrownThoughAConsequenceCameBefore) {
  const auto body = [](Communicator& comm) {
    if (comm.rank() == 0) throw Aborted("a consequence");
    wait_for_the_end(comm);
    fail("the cause");
  };
  EXPECT_THAT(message_of([&] { run_ranks(2, 1, body); }), StrEq("the cause"));
}

TEST(FailureOfRanks, WithoutACauseTheFirstConsequenceIsThrown) {
  const auto body = [](Communicator& comm) {
    if (comm.rank() == 0) throw Aborted("the first");
    wait_for_the_end(comm);
    throw Aborted("a later one");
  };
  EXPECT_THAT(message_of<Aborted>([&] { run_ranks(2, 1, body); }), StrEq("the first"));
}

TEST(RunRanks, ThreadsThatCannotBeStartedAreAnErrorAndNobodyWaitsForThem) {
  const FewThreads few(3);
  EXPECT_THAT(message_of([] { run_ranks(64, 1, wait_for_the_end); }),
              AllOf(StartsWith("cannot start worker "), HasSubstr("use fewer --workers")));
  if (omp_get_thread_limit() < 16) return;
  EXPECT_THAT(message_of([] { run_ranks(2, 16, wait_for_the_end); }), StartsWith("cannot start compute thread "));
}

}  // namespace
}  // namespace owt::run_ranks_test
