#!/usr/bin/env bash
# Tests that the compiler's features for a level (options_of_LEVEL in CMakeLists.txt) are the features that
# src/system/cpu_level.cpp checks. Prints each level; exits 1 at the first that differs.
#
#   usage: tests/tools/level_flags_test.sh OWT      OWT: the program in its build folder
set -euo pipefail

build=$(dirname "$(realpath "$1")")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[^=]*=//p' "$build/CMakeCache.txt")

wrong() {
  echo "FAILED: $*" >&2
  exit 1
}
# The features under some options, avx512f for the compiler's __AVX512F__. The operating system's support of AVX (XSAVE)
# is checked with AVX. EVEX is the encoding of AVX-512, which g++ 14 lists as a feature.
features() {
  "$compiler" "$@" -dM -E -x c++ /dev/null | sed -nE 's/^#define __([A-Z0-9]+)__ 1$/\L\1/p' |
    grep -vxE 'xsave|evex256|evex512' | sort
}
# The features that the source names, as "avx2" or as bit_MOVBE.
asked=$(grep -oE 'OWT_HAS\("[a-z0-9]+"\)|bit_[A-Z0-9]+' src/system/cpu_level.cpp |
  sed -E 's/OWT_HAS\("(.*)"\)|bit_(.*)/\L\1\2/' | sort -u)

for level in x86-64-v3 x86-64-v4 avx512_bf16; do
  read -ra options < <(sed -n "s/^set(options_of_$level \(.*\))$/\1/p" CMakeLists.txt)
  [ "${#options[@]}" -gt 0 ] || wrong "CMakeLists.txt has no options of $level"
  used=$(comm -13 <(features -march=x86-64-v2) <(features "${options[@]}"))
  missing=$(comm -13 <(echo "$asked") <(echo "$used"))
  [ -z "$missing" ] || wrong "$level uses what the processor is not asked for:" $missing
  echo "passed: the processor is asked for all that $level uses"
done
unused=$(comm -23 <(echo "$asked") <(echo "$used"))
[ -z "$unused" ] || wrong "the processor is asked for what no level uses:" $unused
echo "passed: the processor is asked for nothing else"
