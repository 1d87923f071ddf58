#include "src/system/cpu_level.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <string>

#include "tests/support/environment.h"
#include "tests/support/message_of.h"

namespace owt::cpu_level_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StrEq;

constexpr const char* kSwitch = "OWT_MAX_CPU";
constexpr const char* kOneDnn = "ONEDNN_MAX_CPU_ISA";

// The features of the first processor, as Linux lists them, each between blanks.
std::string listed_features() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("flags")) return line.substr(line.find(':') + 1) + " ";
  return "";
}

TEST(CpuLevel, IsWhatTheProcessorHas) {
  const Variable no_limit(kSwitch, nullptr);
  const std::string features = listed_features();
  const auto has = [&](const char* feature) { return features.find(concat(" ", feature, " ")) != std::string::npos; };
  const auto has_all = [&](std::initializer_list<const char*> all) { return std::ranges::all_of(all, has); };
  const bool v3 = has_all({"avx", "avx2", "fma", "bmi1", "bmi2", "f16c", "movbe", "abm"});
  const bool v4 = v3 && has_all({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"});
  const CpuLevel wanted = v4 && has("avx512_bf16") ? CpuLevel::kBf16
                          : v4                     ? CpuLevel::kV4
                          : v3                     ? CpuLevel::kV3
                                                   : CpuLevel::kV2;
  EXPECT_EQ(allowed_cpu_level(), wanted) << features;
}

TEST(CpuLevel, IsLoweredByTheSwitchAndNeverRaised) {
  const CpuLevel processor = [] {
    const Variable no_limit(kSwitch, "");
    return allowed_cpu_level();
  }();
  for (const CpuLevel level : kCpuLevels) {
    const Variable limit(kSwitch, name_of(level));
    EXPECT_EQ(allowed_cpu_level(), std::min(level, processor)) << name_of(level);
  }
}

TEST(CpuLevel, OfTheProgramIsAtMostTheAllowedOne) { EXPECT_LE(cpu_level(), allowed_cpu_level()); }

TEST(CpuLevel, UnknownIsAnErrorThatListsTheLevels) {
  const Variable limit(kSwitch, "avx3");
  EXPECT_THAT(message_of([] { allowed_cpu_level(); }),
              AllOf(HasSubstr("OWT_MAX_CPU is 'avx3'"), HasSubstr("x86-64-v2, x86-64-v3, x86-64-v4, avx512_bf16")));
}

TEST(CpuLevel, HoldsOneDnnAsWellUnlessItsOwnVariableIsSet) {
  const Variable limit(kSwitch, "x86-64-v3");
  {
    const Variable own(kOneDnn, "SSE41");
    hold_onednn_to_allowed_level();
    EXPECT_THAT(std::getenv(kOneDnn), StrEq("SSE41"));
  }
  const Variable none(kOneDnn, nullptr);
  hold_onednn_to_allowed_level();
  EXPECT_THAT(std::getenv(kOneDnn), StrEq("AVX2"));
}

TEST(CpuLevel, LeavesOneDnnAloneWithoutASwitch) {
  const Variable no_limit(kSwitch, nullptr), none(kOneDnn, nullptr);
  hold_onednn_to_allowed_level();
  EXPECT_EQ(std::getenv(kOneDnn), nullptr);
}

}  // namespace
}  // namespace owt::cpu_level_test
