// Which instructions of the processor the program uses, as one of a few levels, each with all of those before it. A
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

// What this processor has, or less where the environment variable OWT_MAX_CPU, a level's name, says so. Throws Error
// where that is no level's name.
CpuLevel allowed_cpu_level();

// The same, or less where this program was compiled for less. Asked for once.
CpuLevel cpu_level();

// Holds oneDNN to $OWT_MAX_CPU as well, where that is set, unless $ONEDNN_MAX_CPU_ISA says something itself. To be
// called before oneDNN is used and before there are threads.
void hold_onednn_to_allowed_level();

}  // namespace owt
