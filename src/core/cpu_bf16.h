// What oneDNN can do with bf16 on this processor.
#pragma once

namespace owt {

// Whether it has instructions for products of bf16: AVX512_BF16, AMX, or newer. Asked of the processor once; the
// environment variable ONEDNN_MAX_CPU_ISA may lower it.
bool cpu_has_bf16();

}  // namespace owt
