#include "src/mirror/region.h"

#include <algorithm>

namespace owt {

ElementRanges common_part(const ElementRanges& a, const ElementRanges& b) {
  ElementRanges common;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Slice both{std::max(a[i].begin, b[j].begin), std::min(a[i].end, b[j].end)};
    if (both.size() > 0) common.push_back(both);
    a[i].end < b[j].end ? ++i : ++j;
  }
  return common;
}

ElementRanges without(const ElementRanges& from, const ElementRanges& taken) {
  ElementRanges left;
  size_t j = 0;
  for (Slice rest : from) {
    while (j < taken.size() && taken[j].end <= rest.begin) ++j;
    for (size_t k = j; k < taken.size() && taken[k].begin < rest.end; ++k) {
      if (rest.begin < taken[k].begin) left.push_back({rest.begin, taken[k].begin});
      rest.begin = std::min(taken[k].end, rest.end);
    }
    if (rest.size() > 0) left.push_back(rest);
  }
  return left;
}

int64_t count_of(const ElementRanges& ranges) {
  int64_t count = 0;
  for (const Slice& range : ranges) count += range.size();
  return count;
}

Region Region::of(const Slice& elements) { return {elements.begin, elements.size()}; }

Region Region::of(const Slice& rows, const Slice& columns, int64_t width) {
  if (columns.size() == width) return of({rows.begin * width, rows.end * width});
  return {rows.begin * width + columns.begin, columns.size(), rows.size(), width};
}

ElementRanges Region::within(const Slice& elements) const {
  ElementRanges ranges;
  if (length == 0) return ranges;
  const int64_t begin = stride > 0 ? std::max<int64_t>(0, (elements.begin - first) / stride) : 0;
  for (int64_t run = begin; run < times && first + run * stride < elements.end; ++run) {
    const int64_t at = first + run * stride;
    const Slice part{std::max(at, elements.begin), std::min(at + length, elements.end)};
    if (part.size() > 0) ranges.push_back(part);
  }
  return ranges;
}

int64_t Region::offset_of(int64_t element) const {
  if (stride == 0) return element - first;
  return (element - first) / stride * length + (element - first) % stride;
}

}  // namespace owt
