// Where the elements of packed rows (layers/base/sampled_rows.h) are in the whole matrix. For .cu files.
#pragma once

#include "layers/base/sampled_rows.h"

namespace owt {

constexpr int64_t kNoPlace = -1;

// For a block of threads that works on consecutive packed elements from `begin` on.
class PackedPlaces {
 public:
  // rows: SampledRows::rows. width: elements of a row.
  __device__ PackedPlaces(const int32_t* rows, int64_t width, int64_t begin)
      : rows_(rows + begin / width),
        width_(static_cast<unsigned>(width)),
        first_(static_cast<unsigned>(begin % width)) {}

  // The place of packed element begin + i; kNoPlace if its row is kNoRow. Divides unsigned numbers, which is faster.
  __device__ int64_t of(unsigned i) const {
    const int32_t row = rows_[(first_ + i) / width_];
    return row == kNoRow ? kNoPlace : int64_t{row} * width_ + (first_ + i) % width_;
  }

 private:
  const int32_t* rows_;  // from the row of element `begin` on
  unsigned width_, first_;
};

}  // namespace owt
