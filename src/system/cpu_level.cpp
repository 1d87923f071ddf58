#include "src/system/cpu_level.h"

#include <cpuid.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "src/system/check.h"

namespace owt {
namespace {

constexpr const char* kSwitch = "OWT_MAX_CPU";

CpuLevel compiled_level() {
#if defined(__AVX512BF16__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
  return CpuLevel::kBf16;
#elif defined(__AVX512BW__) && defined(__AVX512CD__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
  return CpuLevel::kV4;
#elif defined(__AVX2__) && defined(__BMI2__) && defined(__FMA__)
  return CpuLevel::kV3;
#else
  return CpuLevel::kV2;
#endif
}

#define OWT_HAS(feature) (__builtin_cpu_supports(feature) != 0)

// Features of x86-64-v3 that clang++ 14 cannot name in the macro above.
bool has_rest_of_v3() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool first = __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) && (ecx & bit_MOVBE);
  return first && __get_cpuid(0x80000001, &eax, &ebx, &ecx, &edx) && (ecx & bit_LZCNT);
}

// Tests single features, because g++ 11 cannot test for levels. All features that the options of CMakeLists.txt enable
// are tested, since the compiler may use every one of them.
CpuLevel processor_level() {
  __builtin_cpu_init();
  const bool v3 = OWT_HAS("avx") && OWT_HAS("avx2") && OWT_HAS("fma") && OWT_HAS("bmi") && OWT_HAS("bmi2");
  if (!v3 || !has_rest_of_v3()) return CpuLevel::kV2;
  const bool v4 =
      OWT_HAS("avx512f") && OWT_HAS("avx512bw") && OWT_HAS("avx512cd") && OWT_HAS("avx512dq") && OWT_HAS("avx512vl");
  if (!v4) return CpuLevel::kV3;
  return OWT_HAS("avx512bf16") ? CpuLevel::kBf16 : CpuLevel::kV4;
}

bool is_limited() {
  const char* const said = std::getenv(kSwitch);
  return said && *said;
}

CpuLevel limit() {
  const std::string said = std::getenv(kSwitch);
  std::string names;
  for (const CpuLevel level : kCpuLevels) {
    if (said == name_of(level)) return level;
    names += (names.empty() ? "" : ", ") + std::string(name_of(level));
  }
  fail("the environment variable ", kSwitch, " is '", said, "', wanted one of ", names);
}

const char* onednn_name(CpuLevel level) {
  constexpr std::array names{"SSE41", "AVX2", "AVX512_CORE", "AVX512_CORE_BF16"};
  return names[static_cast<size_t>(level)];
}

}  // namespace

const char* name_of(CpuLevel level) {
  constexpr std::array names{"x86-64-v2", "x86-64-v3", "x86-64-v4", "avx512_bf16"};
  return names[static_cast<size_t>(level)];
}

CpuLevel allowed_cpu_level() { return is_limited() ? std::min(limit(), processor_level()) : processor_level(); }

CpuLevel cpu_level() {
  static const CpuLevel level = std::min(compiled_level(), allowed_cpu_level());
  return level;
}

void hold_onednn_to_allowed_level() {
  if (is_limited()) setenv("ONEDNN_MAX_CPU_ISA", onednn_name(limit()), 0);
}

}  // namespace owt
