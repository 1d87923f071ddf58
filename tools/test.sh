#!/usr/bin/env bash
# Everything that has to hold before a change goes in: installs what the tests need, checks includes and format, builds,
# runs all tests, fuzzes what reads files for a while, and builds once more as packages are built, for two levels of
# processors (docs/packages.md) and without CUDA and MPI.
#
#   usage: tools/test.sh [--sanitizers]
#
#   --sanitizers   besides, all tests under the address, undefined-behaviour and thread sanitizers (slow)
#
# Ends at the first part that fails, with its exit status. Builds lie in build/, build-fuzz/, build-levels/,
# build-asan/, build-tsan/.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/packages.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
times=()

part() {  # part NAME COMMAND...: runs the command, notes how long it took
  local name=$1 begin=$SECONDS status=0
  shift
  printf '\n== %s\n' "$name"
  "$@" || status=$?
  times+=("$(printf '%5d s  %s' $((SECONDS - begin)) "$name")")
  [ "$status" = 0 ] || {
    printf '\ntest: error: "%s" failed (status %s)\n' "$name" "$status" >&2
    exit "$status"
  }
}

build() {  # build PRESET [CMAKE OPTION]...
  local preset=$1
  shift
  cmake --preset "$preset" "$@" && cmake --build --preset "$preset"
}

# What the tests that failed said of it, once more at the end: ctest has it between thousands of other lines. Of a test
# program these are its cases and the lines behind each "Failure"; of anything else, its last lines.
say_what_failed() {  # say_what_failed BUILD
  awk '
    FNR == NR { sub(/^[0-9]+:/, ""); failed[$0]; next }
    / Testing: / { name = $0; sub(/.* Testing: /, "", name); behind = lines = told = 0; inside = name in failed; next }
    !inside { next }
    /^-+$/ { lines = 0; next }
    /^<end of output>/ { for (i = lines > 8 ? lines - 8 : 0; i < lines && !told; ++i) print line[i % 8]; inside = 0 }
    { line[lines++ % 8] = name ": " substr($0, 1, 200) }
    /: Failure$/ { behind = 6 }
    /^\[  FAILED  \] .* ms\)$/ { behind = 1 }
    behind-- > 0 && told++ < 12 { print name ": " substr($0, 1, 200) }
  ' "$1/Testing/Temporary/LastTestsFailed.log" "$1/Testing/Temporary/LastTest.log" | tail -60
}

# One test more than cores, because some wait for time-outs most of the time.
test_at_once() {  # test_at_once BUILD [CTEST OPTION]...
  local build=$1 status=0
  shift
  ctest --test-dir "$build" --parallel $(($(nproc) + 1)) --output-on-failure "$@" || status=$?
  [ "$status" = 0 ] || say_what_failed "$build" >&2
  return "$status"
}
test_release() { test_at_once build; }

# Tests can be built without CUDA too: those of src/core, which is where calls of it are.
build_levels() { cmake --preset levels -DOWT_TESTS=ON && cmake --build --preset levels --target owt core_test; }

# The program works, not just its build: data, a few steps on two ranks, a checkpoint, an evaluation.
try_without_cuda() {
  local owt=build-levels/owt run=$work/run
  "$owt" --version &&
    "$owt" prepare synthetic "$work/data" --train 1000 --test 200 &&
    "$owt" train configs/quickstart.toml --steps 5 --data "$work/data" --out "$run" &&
    "$owt" eval "$run/config.toml" --weights "$run/checkpoints/step-00000005/weights.safetensors" --data "$work/data"
}

# Leaves the shell tests out: they run other programs, or none of ours.
test_asan() {
  ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 \
    test_at_once build-asan --label-exclude shell
}

# The OpenMP library is not instrumented, so that the sanitizer does not see its barriers: teams of one thread. Ranks
# and loaders are threads of our own and are checked in full.
export TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp halt_on_error=1 second_deadlock_stack=1 allocator_may_return_null=1"
test_tsan() {
  OMP_NUM_THREADS=1 OMP_THREAD_LIMIT=1 test_at_once build-tsan --label-exclude shell
}

sanitizers=false
case ${1:-} in
  '') ;;
  --sanitizers) sanitizers=true ;;
  --help | -h)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"
    exit
    ;;
  *)
    echo "usage: tools/test.sh [--sanitizers]" >&2
    exit 2
    ;;
esac

part "packages" install_packages "${build_packages[@]}" "${test_packages[@]}"
part "includes" tools/check_includes.sh
part "format" tools/check_format.sh
part "build" build release -DOWT_TESTS=ON -DOWT_CUDA=ON  # tools/quickstart.sh may have switched them off
part "tests" test_release
part "fuzzing" tests/fuzz/run.sh 12
part "build for levels, without CUDA and MPI" build_levels
part "a run without CUDA and MPI" try_without_cuda
part "levels" tests/levels_test.sh build-levels/owt
if "$sanitizers"; then
  part "build with address sanitizer" build asan
  part "tests under address sanitizer" test_asan
  part "build with thread sanitizer" build tsan
  part "tests under thread sanitizer" test_tsan
fi
printf '\nAll passed.\n'
printf '%s\n' "${times[@]}"
