// The rows of the last layer's weight that take part in a training step, if the loss samples classes
// (layers/loss/class_sample.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/core/tensor.h"

namespace owt {

constexpr int32_t kNoRow = -1;

struct SampledRows {
  Tensor rows;        // i32: rows of this rank's part in ascending order, then kNoRow in the other elements
  uint64_t draw = 0;  // another number for every sample

  int64_t most() const { return rows.elements(); }
  int64_t count() const {  // on the CPU only
    const auto* const first = rows.data<int32_t>();
    return std::partition_point(first, first + most(), [](int32_t row) { return row != kNoRow; }) - first;
  }
};

}  // namespace owt
