#include "src/core/cpu_bf16.h"

#include "src/core/onednn.h"

namespace owt {

bool cpu_has_bf16() {
  // oneDNN's instruction sets are ordered: each includes the smaller ones.
  static const bool found = dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_bf16;
  return found;
}

}  // namespace owt
