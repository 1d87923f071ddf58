#include "src/core/row_groups.h"
#include "tests/support/message_of.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace owt::row_groups_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<int64_t> sizes(int64_t rows, int64_t size) {
  const RowGroups groups{rows, size};
  std::vector<int64_t> all;
  for (int64_t group = 0; group < groups.count(); ++group) all.push_back(groups.of(group).size());
  return all;
}

TEST(RowGroups, WhatIsLeftOverIsAGroupFromHalfOfOneOnAndElseJoinsTheLast) {
  EXPECT_THAT(sizes(128, 32), ElementsAre(32, 32, 32, 32));
  EXPECT_THAT(sizes(80, 32), ElementsAre(32, 32, 16));
  EXPECT_THAT(sizes(79, 32), ElementsAre(32, 47));
  EXPECT_THAT(sizes(7, 3), ElementsAre(3, 4));
  EXPECT_THAT(sizes(8, 3), ElementsAre(3, 3, 2));
  EXPECT_THAT(sizes(3, 32), ElementsAre(3));
  EXPECT_THAT(sizes(3, 1), ElementsAre(1, 1, 1));
  EXPECT_THAT(sizes(0, 32), IsEmpty());
  EXPECT_EQ((RowGroups{79, 32}.most()), 47);
  EXPECT_EQ((RowGroups{80, 32}.most()), 32);
}

// So that a layer that is shown some of the rows finds the groups that it finds in all of them.
TEST(RowGroups, OfAPartThatConsistsOfWholeGroupsAreThoseOfTheWhole) {
  for (const int64_t size : {1, 2, 3, 5, 8})
    for (int64_t rows = 1; rows < 60; ++rows)
      for (const int64_t unit : {size, 2 * size, 3 * size})  // parts consist of this many rows
        for (int parts = 1; parts < 6; ++parts) {
          std::vector<int64_t> all;
          for (int part = 0; part < parts; ++part)
            for (const int64_t group : sizes(RowGroups{rows, unit}.part(parts, part).size(), size))
              all.push_back(group);
          ASSERT_EQ(all, sizes(rows, size)) << rows << " rows in " << parts << " parts of groups of " << unit;
        }
}

TEST(RowGroups, OfTwoSizesBeginTogetherAtCommonMultiples) {
  EXPECT_EQ(common_group(32, 1), 32);
  EXPECT_EQ(common_group(24, 32), 96);
  EXPECT_THAT(message_of([] { common_group(1 << 23, (1 << 23) - 1); }), HasSubstr("multiples of one"));
}

}  // namespace
}  // namespace owt::row_groups_test
