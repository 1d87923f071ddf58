// Matrix products on a GPU (cuBLASLt), row major.
//   C (m x n) = A' (m x k) * B' (k x n) [+ beta * C] [+ bias, one number for each column of C]
// where A' is A or its transpose, and so B'. Sums are f32 and taken in an order that is always the same for one choice
// of algorithm; a NaN in a factor is seen in every element of C that it belongs to.
#pragma once

#include <cstdint>
#include <memory>
#include <ostream>

#include "src/core/blas.h"
#include "src/core/device.h"
#include "src/core/stream.h"
#include "src/core/tensor.h"

namespace owt {

struct MatmulForm {
  int64_t m = 0, n = 0, k = 0;  // all > 0
  Transpose a = Transpose::kNo, b = Transpose::kNo;
  int64_t lda = 0, ldb = 0, ldc = 0;       // elements from one stored row to the next
  Precision precision = Precision::kFp32;  // A and B hold activation_type(precision)
  DType product = DType::kF32;             // type of C and of the bias; f32, or bf16 where A and B hold it
  bool bias = false;
};

std::ostream& operator<<(std::ostream& out, const MatmulForm& form);

// A product that is ready to run on the GPU of the host thread that made it, by this thread. The first one of its form
// measures cuBLASLt's algorithms on memory of its own; all others on GPUs of this model take its choice (plan_cache.h).
// Products of one host thread share a workspace: queue them on one stream.
class Matmul {
 public:
  // Throws Error where cuBLASLt has no algorithm for the form. Not while a stream of this thread is being recorded.
  explicit Matmul(const MatmulForm& form);
  Matmul(Matmul&&) noexcept;
  ~Matmul();

  // Addresses are of the GPU and multiples of kAlignment, or of what the rows of the matrix are multiples of, if that
  // is less. beta = 0 never reads C. bias: n numbers, null where the form has none.
  void operator()(const void* a, const void* b, const void* bias, float beta, void* c, const Stream& stream) const;

  static constexpr int64_t kAlignment = 16;  // bytes

 private:
  class Bound;
  std::unique_ptr<Bound> bound_;
};

}  // namespace owt
