// Shapes (rows first) and ranges of rows or columns.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <string>

namespace owt {

// Up to five extents; dimension 0 is the rows (images of a batch, output features of a weight). Extents may be 0.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> extents);

  int rank() const { return rank_; }
  int64_t operator[](int dim) const { return extents_[static_cast<size_t>(dim)]; }
  int64_t rows() const { return rank_ == 0 ? 1 : extents_[0]; }
  int64_t elements() const { return rows() * row_elements(); }
  int64_t row_elements() const;  // product of all extents except the first

  Shape with_rows(int64_t rows) const;  // dimension 0 is replaced
  Shape batch_of(int64_t rows) const;   // one more dimension: rows x this
  Shape row() const;                    // without dimension 0
  std::string str() const;              // "128x32x32x3"
  bool operator==(const Shape& other) const = default;

 private:
  static constexpr size_t kMaxRank = 5;
  std::array<int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape);

// A half-open range [begin, end).
struct Slice {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Slice& other) const = default;
};

// Part `index` of `total` items, dealt to `parts` as evenly as possible; the first parts get one more item. Parts may
// be empty.
Slice split(int64_t total, int parts, int index);

}  // namespace owt
