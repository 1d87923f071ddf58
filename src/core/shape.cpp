#include "src/core/shape.h"

#include <algorithm>

#include "src/system/check.h"

namespace owt {

Shape::Shape(std::initializer_list<int64_t> extents) : rank_(static_cast<int>(extents.size())) {
  OWT_CHECK(extents.size() <= kMaxRank);
  std::copy(extents.begin(), extents.end(), extents_.begin());
}

int64_t Shape::row_elements() const {
  int64_t product = 1;
  for (int d = 1; d < rank_; ++d) product *= (*this)[d];
  return product;
}

Shape Shape::with_rows(int64_t rows) const {
  OWT_CHECK(rank_ >= 1);
  Shape other = *this;
  other.extents_[0] = rows;
  return other;
}

Shape Shape::batch_of(int64_t rows) const {
  OWT_CHECK(rank_ < static_cast<int>(kMaxRank));
  Shape other;
  other.rank_ = rank_ + 1;
  other.extents_[0] = rows;
  std::copy_n(extents_.begin(), rank_, other.extents_.begin() + 1);
  return other;
}

Shape Shape::row() const {
  OWT_CHECK(rank_ >= 1);
  Shape other;
  other.rank_ = rank_ - 1;
  std::copy_n(extents_.begin() + 1, rank_ - 1, other.extents_.begin());
  return other;
}

std::string Shape::str() const {
  std::string text;
  for (int d = 0; d < rank_; ++d) text += (d ? "x" : "") + std::to_string((*this)[d]);
  return rank_ == 0 ? "scalar" : text;
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.str(); }

Slice split(int64_t total, int parts, int index) {
  OWT_CHECK(parts >= 1 && index >= 0 && index < parts);
  const int64_t base = total / parts, extra = total % parts;
  const int64_t begin = index * base + std::min<int64_t>(index, extra);
  return {begin, begin + base + (index < extra ? 1 : 0)};
}

}  // namespace owt
