// The elements of a tensor that a rank has, and what two ranks have in common.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "src/core/shape.h"

namespace owt {

// Ranges of a tensor's elements in memory order: sorted, not empty, not overlapping.
using ElementRanges = std::vector<Slice>;

ElementRanges common_part(const ElementRanges& a, const ElementRanges& b);
ElementRanges without(const ElementRanges& from, const ElementRanges& taken);  // the elements of `from` not in `taken`
int64_t count_of(const ElementRanges& ranges);                                 // elements

// `times` runs of `length` elements, whose beginnings are `stride` elements apart. A rank stores the runs one after the
// other.
struct Region {
  int64_t first = 0, length = 0, times = 1;
  int64_t stride = 0;  // at least `length`; 0 if there is one run

  static Region of(const Slice& elements);
  // Columns of some rows of a tensor with `width` elements per row.
  static Region of(const Slice& rows, const Slice& columns, int64_t width);

  int64_t elements() const { return length * times; }
  ElementRanges within(const Slice& elements) const;  // its part of these elements of the tensor
  int64_t offset_of(int64_t element) const;           // the place of an element of the tensor among the stored ones
  auto operator<=>(const Region&) const = default;
};

}  // namespace owt
