// Writes arrays in NumPy's .npy format, version 1.0 (numpy/lib/format.py): a header with type and shape, then the
// elements, little-endian, row major.
#pragma once

#include <string>

#include "src/core/tensor.h"
#include "src/system/files.h"

namespace owt {

class NpyWriter {
 public:
  // shape: of the whole array. type: kF32 or kI64. The file appears when close() is called.
  NpyWriter(const std::string& path, const Shape& shape, DType dtype);

  void write(const Tensor& rows);  // the next rows, on the host
  void close();                    // checks that all rows have been written

 private:
  AtomicFileWriter file_;
  DType dtype_;
  int64_t left_;  // number of elements
};

}  // namespace owt
