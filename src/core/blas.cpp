#include "src/core/blas.h"

#include <algorithm>

#include "src/core/onednn.h"
#include "src/system/check.h"

namespace owt {

std::string instructions_of_products() {
  const dnnl_version_t* const version = dnnl_version();
  return concat("oneDNN ", version->major, '.', version->minor, '.', version->patch, ", isa ",
                static_cast<int>(dnnl_get_effective_cpu_isa()));
}

void gemm(Transpose a_form, Transpose b_form, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
          const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
    return;
  }
  const dnnl_status_t status = dnnl_sgemm(a_form == Transpose::kYes ? 'T' : 'N', b_form == Transpose::kYes ? 'T' : 'N',
                                          m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc);
  OWT_CHECK_EQ(static_cast<int>(status), 0, "dnnl_sgemm ", m, "x", n, "x", k);
}

}  // namespace owt
