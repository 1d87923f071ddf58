#include "src/core/cpu_bf16.h"

#include "src/core/onednn.h"

namespace owt {
namespace {

bool has_products() {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const auto square = [](auto type) { return dnnl::memory::desc({8, 8}, type, dnnl::memory::format_tag::ab); };
  const auto factor = square(dnnl::memory::data_type::bf16);
  try {
    onednn::describe<dnnl::matmul>(engine, {}, factor, factor, square(dnnl::memory::data_type::f32));
    return true;
  } catch (const dnnl::error&) {
    return false;
  }
}

CpuBf16 ask() {
  if (!has_products()) return CpuBf16::kNone;
  // Names of instruction sets grow by what is added to them.
  return dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_bf16 ? CpuBf16::kNative : CpuBf16::kEmulated;
}

}  // namespace

CpuBf16 cpu_bf16() {
  static const CpuBf16 found = ask();
  return found;
}

}  // namespace owt
