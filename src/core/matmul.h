// Matrix products on a GPU (cuBLASLt), row major.
//   C (m x n) = A' (m x k) * B' (k x n) [+ beta * C] [+ bias, one number for each column of C]
// where A' is A or its transpose, and B' is B or its transpose. Sums are f32; for one choice of algorithm the order of
// summation is always the same. A NaN in a factor reaches every element of C that depends on it.
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
  DType product = DType::kF32;             // type of C and of the bias; f32, or bf16 if A and B hold it
  bool bias = false;
};

std::ostream& operator<<(std::ostream& out, const MatmulForm& form);

// A product that is ready to run on the GPU of the host thread that made it, by this thread. The first product of a
// form measures cuBLASLt's algorithms on memory of its own. All later ones on GPUs of this model use its choice
// (plan_cache.h). Products of one host thread share a workspace: queue them on one stream.
class Matmul {
 public:
  // Throws Error if cuBLASLt has no algorithm for the form. Must not be called while a stream of this thread is
  // recorded.
  explicit Matmul(const MatmulForm& form);
  Matmul(Matmul&&) noexcept;
  ~Matmul();

  // Addresses are on the GPU. They are multiples of kAlignment, or of the alignment of the matrix rows if that is
  // smaller. beta = 0 never reads C. bias: n numbers; null if the form has none.
  void operator()(const void* a, const void* b, const void* bias, float beta, void* c, const Stream& stream) const;

  static constexpr int64_t kAlignment = 16;  // bytes

 private:
  class Tuned;
  std::unique_ptr<Tuned> tuned_;
};

}  // namespace owt
