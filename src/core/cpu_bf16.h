// oneDNN's support for bf16 on this processor.
#pragma once

namespace owt {

// Whether the processor has instructions for bf16 products: AVX512_BF16, AMX, or newer. It is asked once; the
// environment variable ONEDNN_MAX_CPU_ISA may lower the answer.
bool cpu_has_bf16();

}  // namespace owt
