// What this processor can do with bf16, as oneDNN uses it.
#pragma once

namespace owt {

enum class CpuBf16 {
  kNone,      // no products of bf16: oneDNN's want AVX-512
  kEmulated,  // with instructions for f32, which is slower than f32 itself
  kNative,    // AVX512_BF16, AMX, or newer
};

CpuBf16 cpu_bf16();  // asked of the processor once; the environment variable ONEDNN_MAX_CPU_ISA may lower it

}  // namespace owt
