#include "src/system/joined_threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <mutex>
#include <set>

#include "src/core/threads.h"
#include "tests/support/few_threads.h"
#include "tests/support/message_of.h"

namespace owt::joined_threads_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(JoinedThreads, EachDoesItsPartOnce) {
  std::mutex mutex;
  std::multiset<int> done;
  JoinedThreads threads;
  EXPECT_TRUE(threads.empty());
  threads.start(
      4, "worker", "",
      [&](int i) {
        const std::lock_guard lock(mutex);
        done.insert(i);
      },
      [] {});
  EXPECT_FALSE(threads.empty());
  threads.join();
  EXPECT_THAT(done, ElementsAre(0, 1, 2, 3));
}

TEST(JoinedThreads, ThoseThatRunEndWhereAnotherCannotBeStarted) {
  std::latch stopped(1);
  std::atomic<int> begun{0}, ended{0};
  const auto work = [&](int) { ++begun, stopped.wait(), ++ended; };
  JoinedThreads threads;
  const FewThreads few(3);
  const std::string message =
      message_of([&] { threads.start(64, "reader", "use fewer --threads", work, [&] { stopped.count_down(); }); });
  EXPECT_THAT(message, AllOf(StartsWith("cannot start reader "), HasSubstr(" of 64: "),
                             HasSubstr("; use fewer --threads, or raise the limit"), HasSubstr("ulimit -u")));
  EXPECT_GT(begun, 0);
  EXPECT_EQ(begun, ended);
  EXPECT_TRUE(threads.empty());
}

TEST(StartThread, SaysWhichOneCannotBeStarted) {
  const FewThreads none(0);
  EXPECT_THAT(message_of([] { start_thread("the thread that listens", "", [] {}); }),
              AllOf(StartsWith("cannot start the thread that listens: "), HasSubstr("; raise the limit")));
}

TEST(CheckTeams, RefusesWhatLibgompWouldEndTheProcessFor) {
  if (omp_get_thread_limit() < 64) GTEST_SKIP() << "OMP_THREAD_LIMIT";
  const FewThreads few(3);
  check_teams(1, 3);
  check_teams(2, 2);
  EXPECT_THAT(message_of([] { check_teams(1, 64); }), StartsWith("cannot start compute thread "));
  EXPECT_THAT(message_of([] { check_teams(16, 2); }), HasSubstr(" of 16: "));
}

}  // namespace
}  // namespace owt::joined_threads_test
