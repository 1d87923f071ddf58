// Groups of consecutive rows of a step. A layer processes a group together (batch_norm's `rows`), and groups are dealt
// whole to ranks and rounds. The groups depend on the number of rows only, so all ranks find the same ones. Each part
// begins at the first row of a group and ends with a group or with the step. The groups of a part are therefore groups
// of the step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "src/core/shape.h"
#include "src/system/check.h"

namespace owt {

constexpr int64_t kMostGroupRows = 1 << 24;

// The least number of rows that consists of whole groups of both sizes.
inline int64_t common_group(int64_t a, int64_t b) {
  const int64_t common = std::lcm(a, b);
  if (common > kMostGroupRows)
    fail("groups of ", a, " and of ", b, " rows (batch_norm's 'rows') begin together every ", common,
         " rows only, and ", kMostGroupRows, " is the most; give these layers the same number, or multiples of one");
  return common;
}

// Groups of `size` rows. Rows that are left over form a group if they are at least half of one. Otherwise they belong
// to the group before them, if there is one, because statistics over a few rows are of little use.
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
  // Rows of the largest group.
  int64_t most() const { return rows == 0 ? 0 : std::max(of(0).size(), of(count() - 1).size()); }
  // The rows of part `index` of `parts` if the groups are dealt by split().
  Slice part(int parts, int index) const { return of(split(count(), parts, index)); }

 private:
  int64_t first_of(int64_t group) const { return group < count() ? group * size : rows; }
};

}  // namespace owt
