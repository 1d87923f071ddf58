// Rows of a step in groups of consecutive ones: what a layer works on together (batch_norm's `rows`), and what is dealt
// whole to ranks and rounds. A function of the number of rows alone, so that everybody finds the same groups; and since
// what anybody has begins at a group and ends at one or with the step, the groups of that are those of the step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "src/core/check.h"
#include "src/core/shape.h"

namespace owt {

constexpr int64_t kMostGroupRows = 1 << 24;

// What consists of whole groups of both sizes.
inline int64_t common_group(int64_t a, int64_t b) {
  const int64_t common = std::lcm(a, b);
  if (common > kMostGroupRows)
    fail("groups of ", a, " and of ", b, " rows (batch_norm's 'rows') begin together every ", common,
         " rows only, and ", kMostGroupRows, " is the most; give these layers the same number, or multiples of one");
  return common;
}

// Groups of `size` rows. Those that are left over are a group of their own if they are half of one or more, and else
// belong to the group before them, if there is one: statistics over a few rows are worth little.
struct RowGroups {
  int64_t rows, size;

  int64_t count() const {
    if (rows == 0) return 0;
    const int64_t whole = rows / size, left = rows % size;
    return std::max<int64_t>(whole + (2 * left >= size ? 1 : 0), 1);
  }
  // The rows of consecutive groups.
  Slice of(const Slice& groups) const { return {first_of(groups.begin), first_of(groups.end)}; }
  Slice of(int64_t group) const { return of(Slice{group, group + 1}); }
  int64_t most() const { return rows == 0 ? 0 : std::max(of(0).size(), of(count() - 1).size()); }  // of a group
  // What part `index` of `parts` has where the groups are dealt by split().
  Slice part(int parts, int index) const { return of(split(count(), parts, index)); }

 private:
  int64_t first_of(int64_t group) const { return group < count() ? group * size : rows; }
};

}  // namespace owt
