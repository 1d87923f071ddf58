#include "src/core/matmul.h"

namespace owt {

std::ostream& operator<<(std::ostream& out, const MatmulForm& form) {
  const auto name = [](Transpose stored) { return stored == Transpose::kYes ? "'" : ""; };
  return out << form.m << "x" << form.n << "x" << form.k << " A" << name(form.a) << " " << form.lda << " B"
             << name(form.b) << " " << form.ldb << " C " << form.ldc << " " << name_of(form.precision) << " to "
             << name_of(form.product) << (form.bias ? " bias" : "");
}

}  // namespace owt
