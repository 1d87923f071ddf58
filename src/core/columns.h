// Copies between column slices of row-major batches.
#pragma once

#include "src/core/tensor.h"

namespace owt {

// Columns [to_first, to_first + width) of `to` = columns [from_first, from_first + width) of `from`, row by row, queued
// on the stream. Both have the same rows and element type.
void copy_columns(const Tensor& from, int64_t from_first, Tensor& to, int64_t to_first, int64_t width,
                  const Stream& stream);

// Copies `width` bytes of each of `rows` rows; strides in bytes.
void copy_columns(Cpu, const void* from, int64_t from_stride, void* to, int64_t to_stride, int64_t rows, int64_t width,
                  const Stream& stream);
void copy_columns(Cuda, const void* from, int64_t from_stride, void* to, int64_t to_stride, int64_t rows, int64_t width,
                  const Stream& stream);

}  // namespace owt
