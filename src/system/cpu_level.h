// The processor instructions the program uses, as one of a few levels. Each level includes all levels before it. A
// package holds the whole program once for each level (docs/install.md).
#pragma once

#include <array>

namespace owt {

enum class CpuLevel {
  kV2,    // SSE4.2, which oneDNN needs as well
  kV3,    // AVX2, FMA
  kV4,    // AVX-512 F, BW, CD, DQ, VL
  kBf16,  // AVX512_BF16: products of bf16
};

inline constexpr std::array kCpuLevels{CpuLevel::kV2, CpuLevel::kV3, CpuLevel::kV4, CpuLevel::kBf16};

const char* name_of(CpuLevel level);  // "x86-64-v2", "x86-64-v3", "x86-64-v4", "avx512_bf16"

// The level of this processor, or a lower one if the environment variable OWT_MAX_CPU names it. Throws Error if
// OWT_MAX_CPU is not the name of a level.
CpuLevel allowed_cpu_level();

// allowed_cpu_level(), but at most the level this program was compiled for. Determined once.
CpuLevel cpu_level();

// Limits oneDNN to $OWT_MAX_CPU as well if that is set, unless $ONEDNN_MAX_CPU_ISA is set. Must be called before oneDNN
// is used and before threads are started.
void hold_onednn_to_allowed_level();

}  // namespace owt
