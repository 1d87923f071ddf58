// Writing arrays in NumPy's .npy format, version 1.0 (numpy/lib/format.py): a header that tells type and shape, then
// the elements, little-endian, row major.
#pragma once

#include <string>

#include "src/core/files.h"
#include "src/core/tensor.h"

namespace owt {

class NpyWriter {
 public:
  // shape: that of the whole array; type: kF32 or kI64. The file is there after close() and not before.
  NpyWriter(const std::string& path, const Shape& shape, DType dtype);

  void write(const Tensor& rows);  // the next ones, on the host
  void close();                    // checks that all rows have come

 private:
  AtomicFileWriter file_;
  DType dtype_;
  int64_t left_;  // elements
};

}  // namespace owt
