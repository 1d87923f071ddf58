#include "src/mirror/region.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/support/harness.h"

namespace owt::region_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Region, IsARangeOfElementsOrColumnsOfRows) {
  EXPECT_THAT(Region::of({3, 9}).within({0, 100}), ElementsAre(Slice{3, 9}));
  EXPECT_THAT(Region::of({3, 9}).within({5, 7}), ElementsAre(Slice{5, 7}));
  EXPECT_THAT(Region::of({3, 9}).within({9, 12}), IsEmpty());
  const Region columns = Region::of({1, 4}, {2, 5}, 10);
  EXPECT_EQ(columns.elements(), 9);
  EXPECT_THAT(columns.within({0, 100}), ElementsAre(Slice{12, 15}, Slice{22, 25}, Slice{32, 35}));
  EXPECT_THAT(columns.within({14, 33}), ElementsAre(Slice{14, 15}, Slice{22, 25}, Slice{32, 33}));
  EXPECT_EQ(columns.offset_of(12), 0);
  EXPECT_EQ(columns.offset_of(24), 5);
  EXPECT_EQ(Region::of({1, 4}, {0, 10}, 10), Region::of({10, 40}));
  EXPECT_THAT(Region::of({2, 2}, {0, 4}, 10).within({0, 100}), IsEmpty());
  EXPECT_THAT(Region().within({0, 100}), IsEmpty());
}

TEST(Region, CommonAndOtherElements) {
  const ElementRanges a{{0, 10}, {20, 30}}, b{{5, 22}, {25, 26}, {30, 40}};
  EXPECT_THAT(common_part(a, b), ElementsAre(Slice{5, 10}, Slice{20, 22}, Slice{25, 26}));
  EXPECT_THAT(without(a, b), ElementsAre(Slice{0, 5}, Slice{22, 25}, Slice{26, 30}));
  EXPECT_THAT(without(a, a), IsEmpty());
  EXPECT_EQ(count_of(a), 20);
}

std::vector<bool> members(const ElementRanges& ranges, size_t size) {
  std::vector<bool> in(size);
  for (const Slice& range : ranges)
    for (int64_t i = range.begin; i < range.end; ++i) in[static_cast<size_t>(i)] = true;
  return in;
}

Region some_region(std::mt19937& random, int64_t rows, int64_t width) {
  const auto part = [&](int64_t of) {
    const int64_t begin = static_cast<int64_t>(random()) % (of + 1);
    return Slice{begin, begin + static_cast<int64_t>(random()) % (of - begin + 1)};
  };
  return random() % 2 ? Region::of(part(rows * width)) : Region::of(part(rows), part(width), width);
}

TEST(Region, AgreesWithSetsOfElements) {
  std::mt19937 random(1);
  const int64_t rows = 7, width = 9;
  const size_t size = static_cast<size_t>(rows * width);
  for (int trial = 0; trial < 500; ++trial) {
    const Region a = some_region(random, rows, width), b = some_region(random, rows, width);
    const ElementRanges in_a = a.within({0, rows * width}), in_b = b.within({0, rows * width});
    EXPECT_EQ(count_of(in_a), a.elements());
    int64_t next = 0;
    for (const Slice& range : in_a)
      for (int64_t i = range.begin; i < range.end; ++i) EXPECT_EQ(a.offset_of(i), next++);
    std::vector<bool> both = members(in_a, size), only_a = both;
    const std::vector<bool> also = members(in_b, size);
    for (size_t i = 0; i < size; ++i) only_a[i] = both[i] && !also[i], both[i] = both[i] && also[i];
    EXPECT_EQ(members(common_part(in_a, in_b), size), both);
    EXPECT_EQ(members(without(in_a, in_b), size), only_a);
  }
}

}  // namespace
}  // namespace owt::region_test
