#include "data/steps.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "data/dataset.h"
#include "src/system/check.h"

namespace owt::steps_test {
namespace {

TEST(Steps, CountTheLastStepOfAnEpochInFull) {
  EXPECT_EQ(steps_per_epoch(10, 5), 2);
  EXPECT_EQ(steps_per_epoch(11, 5), 3);
  EXPECT_EQ(Steps(11, 5, {}, 0, 0).batches_per_epoch(), 3);
}

TEST(Steps, FollowEachOtherOverTheEndOfAnEpoch) {
  const Steps steps(10, 4, {}, 2, 4);
  const Steps::RankStep last = steps.step(1), next = steps.step(2);
  EXPECT_EQ(last.epoch, 2);
  EXPECT_EQ(last.step_in_epoch, 2);
  EXPECT_EQ(last.step_rows, 2);
  EXPECT_EQ(last.places, (Slice{8, 10}));
  EXPECT_EQ(next.epoch, 3);
  EXPECT_EQ(next.step_in_epoch, 0);
  EXPECT_EQ(next.places, (Slice{0, 4}));
}

TEST(Steps, AfterAnEpochsLastStartTheNextEpoch) {
  const Steps::RankStep step = Steps(10, 4, {}, 2, 10).step(0);
  EXPECT_EQ(step.epoch, 3);
  EXPECT_EQ(step.step_in_epoch, 0);
}

TEST(Steps, GiveARankItsPlacesInTheOrder) {
  const Steps steps(
      10, 4, [](int64_t rows) { return split(rows, 3, 0); }, 0, 0);
  EXPECT_EQ(steps.most_rows(), 2);
  EXPECT_EQ(steps.step(1).places, (Slice{4, 6}));
  EXPECT_EQ(steps.step(2).places, (Slice{8, 9}));
  EXPECT_EQ(steps.step(2).count(), 1);
  EXPECT_EQ(steps.step(2).step_rows, 2) << "of all ranks";
}

// One epoch after the other, counted by hand: sizes and batches of all kinds, ranks with no rows, views, any start.
TEST(Steps, AreThoseOfAWalkThroughTheEpochs) {
  for (const int64_t size : {1, 5, 8, 9, 23})
    for (const int64_t batch : {1, 3, 8, 50})
      for (const int ranks : {1, 2, 5})
        for (const Views& views : {Views(1), Views(3), Views::mirror()})
          for (int64_t start = 0; start <= size; ++start) {
            const int rank = ranks / 2;
            const Steps steps(
                size, batch, [&](int64_t rows) { return split(rows, ranks, rank); }, 2, start, views);
            int64_t epoch = 2, first = start, most = 0;
            for (int64_t number = 0; number < 40;) {
              if (first == size) ++epoch, first = 0;
              const int64_t rows = std::min(batch, size - first);
              for (int view = views.first; view < views.first + views.count; ++view, ++number) {
                const Steps::RankStep found = steps.step(number);
                EXPECT_EQ(found.epoch, epoch);
                EXPECT_EQ(found.step_in_epoch, first / batch);
                EXPECT_EQ(found.first, first);
                EXPECT_EQ(found.step_rows, rows);
                EXPECT_EQ(found.view, view);
                const Slice mine = split(rows, ranks, rank);
                EXPECT_EQ(found.places, (Slice{first + mine.begin, first + mine.end}));
                most = std::max(most, found.count());
              }
              first += rows;
            }
            EXPECT_GE(steps.most_rows(), most);
            EXPECT_LE(steps.most_rows(), split(std::min(batch, size), ranks, rank).size());
            EXPECT_EQ(steps.batches_per_epoch(), views.count * ((size + batch - 1) / batch));
            ASSERT_FALSE(testing::Test::HasFailure())
                << size << " images, steps of " << batch << ", " << ranks << " ranks, from image " << start;
          }
}

TEST(Steps, HaveOneToTenViewsAndBeginNowhereBelowZero) {
  for (const int views : {0, kMostViews + 1}) EXPECT_THROW(Steps(10, 4, {}, 0, 0, views), Error);
  EXPECT_NO_THROW(Steps(10, 4, {}, 0, 0, kMostViews));
  EXPECT_THROW(Steps(10, 0, {}, 0, 0), Error);
  EXPECT_THROW(Steps(10, 4, {}, -1, 0), Error);
  EXPECT_THROW(Steps(10, 4, {}, 0, -1), Error);
}

TEST(Steps, RejectAnEmptyDataSetAndRowsOutsideTheStep) {
  EXPECT_THROW(Steps(0, 4, {}, 0, 0), Error);
  EXPECT_THROW(Steps(10, 4, {}, 0, 11), Error);
  const Steps steps(
      10, 4,
      [](int64_t) {
        return Slice{0, 3};
      },
      0, 0);
  EXPECT_EQ(steps.step(0).count(), 3);
  EXPECT_THROW(steps.step(2), Error) << "has 2 rows";
}

}  // namespace
}  // namespace owt::steps_test
