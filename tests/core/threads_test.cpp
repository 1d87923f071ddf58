#include "src/core/threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

#include "src/system/check.h"

namespace owt::threads_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Restores the team of this host thread.
class Team : public ::testing::Test {
 protected:
  Team() : before_(team_size()) {}
  void SetUp() override {
    if (omp_get_thread_limit() < 8) GTEST_SKIP() << "OMP_THREAD_LIMIT";
  }
  ~Team() override { set_team_size(before_); }

  // The parts parallel_for makes, in order of their begin.
  std::vector<std::pair<int64_t, int64_t>> parts(int64_t items, int64_t grain) {
    std::mutex mutex;
    std::vector<std::pair<int64_t, int64_t>> found;
    parallel_for(items, grain, [&](int64_t begin, int64_t end) {
      const std::lock_guard lock(mutex);
      found.emplace_back(begin, end);
    });
    std::sort(found.begin(), found.end());
    return found;
  }

 private:
  int before_;
};

TEST_F(Team, ParallelForCoversEveryIndexOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    set_team_size(threads);
    for (const int64_t items : {0, 1, 2, 7, 8, 1000})
      for (const int64_t grain : {0, 1, 3, 5000}) {
        std::vector<int> visits(static_cast<size_t>(items), 0);
        for (const auto& [begin, end] : parts(items, grain))
          for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
        EXPECT_THAT(visits, Each(1)) << threads << " threads, " << items << " items, grain " << grain;
      }
  }
}

TEST_F(Team, PartsAreEqualAndOnePerThread) {
  using Part = std::pair<int64_t, int64_t>;
  set_team_size(3);
  EXPECT_THAT(parts(10, 1), ElementsAre(Part(0, 4), Part(4, 7), Part(7, 10)));
}

TEST_F(Team, FewerThreadsWorkWhereAPartWouldBeSmallerThanTheGrain) {
  using Part = std::pair<int64_t, int64_t>;
  set_team_size(4);
  EXPECT_THAT(parts(10, 5), ElementsAre(Part(0, 5), Part(5, 10)));
  EXPECT_THAT(parts(10, 6), ElementsAre(Part(0, 10)));
  EXPECT_THAT(parts(0, 6), IsEmpty());
}

TEST_F(Team, EachOfItsThreadsMayWorkAlone) {
  set_team_size(3);
  std::mutex mutex;
  std::vector<int> calls(10);
  for_each_alone(10, [&](int64_t item, int thread) {
    const std::lock_guard lock(mutex);
    ++calls[static_cast<size_t>(item)];
    EXPECT_EQ(thread, item % 3);
    EXPECT_EQ(team_size(), 1);
    EXPECT_EQ(omp_get_thread_num(), 0);
  });
  EXPECT_THAT(calls, Each(1));
  EXPECT_EQ(team_size(), 3);
}

TEST_F(Team, BelongsToTheHostThreadThatSetIt) {
  set_team_size(3);
  std::thread([] {
    set_team_size(5);
    EXPECT_EQ(team_size(), 5);
  }).join();
  EXPECT_EQ(team_size(), 3);
}

TEST_F(Team, OfNobodyIsAnError) { EXPECT_THROW(set_team_size(0), Error); }

TEST_F(Team, ThereIsACore) { EXPECT_GE(hardware_cores(), 1); }

}  // namespace
}  // namespace owt::threads_test
