#include "data/steps.h"

#include <gtest/gtest.h>

#include "src/core/check.h"

namespace owt {
namespace {

TEST(Steps, CountTheLastStepOfAnEpochInFull) {
  EXPECT_EQ(steps_per_epoch(10, 5), 2);
  EXPECT_EQ(steps_per_epoch(11, 5), 3);
  EXPECT_EQ(Steps(11, 5, {}, 0, 0).batches_per_epoch(), 3);
}

TEST(Steps, FollowEachOtherOverTheEndOfAnEpoch) {
  const Steps steps(10, 4, {}, 2, 1);
  const Steps::Rows last = steps.step(1), next = steps.step(2);
  EXPECT_EQ(last.epoch, 2);
  EXPECT_EQ(last.step_in_epoch, 2);
  EXPECT_EQ(last.step_rows, 2);
  EXPECT_EQ(last.places, (Slice{8, 10}));
  EXPECT_EQ(next.epoch, 3);
  EXPECT_EQ(next.step_in_epoch, 0);
  EXPECT_EQ(next.places, (Slice{0, 4}));
}

TEST(Steps, BehindAnEpochsLastStartTheNextEpoch) {
  const Steps::Rows step = Steps(10, 4, {}, 2, 3).step(0);
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

TEST(Steps, RejectAnEmptyDataSetAndRowsOutsideTheStep) {
  EXPECT_THROW(Steps(0, 4, {}, 0, 0), Error);
  EXPECT_THROW(Steps(10, 4, {}, 0, 4), Error);
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
}  // namespace owt
