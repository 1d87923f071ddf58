#!/usr/bin/env bash
# Everything that has to hold before a change goes in: installs what the tests need, checks includes, format and
# English, builds and runs all tests.
#
#   usage: tools/test.sh [--all]
#
#   --all   besides, what takes hours: all tests under the address, undefined-behaviour and thread sanitizers, fuzzing,
#           runs under stress, packages and a wheel with every level of processors, tests under other processors,
#           threads, users and builds (tools/test_matrix.sh), a data set drawn from fonts, and a fresh Debian 13
#
# After a failed part, the parts that do not need it continue. The last lines name what failed, and the exit code is 1.
# The builds are in build/, build-asan/, build-tsan/, build-fuzz/, build-package/,
# build-wheel/, build-matrix/.
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
source tools/packages.sh

all=false
case ${1:-} in
  '') ;;
  --all) all=true ;;
  --help | -h)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"
    exit
    ;;
  *)
    echo "usage: tools/test.sh [--all]" >&2
    exit 2
    ;;
esac
source tools/parts.sh

build() {  # build PRESET [CMAKE OPTION]...
  local preset=$1
  shift
  cmake --preset "$preset" "$@" && cmake --build --preset "$preset"
}

# Two tests more than cores, because many wait, for time-outs or for each other.
test_at_once() {  # test_at_once BUILD [CTEST OPTION]...
  ctest --test-dir "$1" --parallel $(($(nproc) + 2)) --output-on-failure "${@:2}"
}

# The shell tests run other programs, or none of ours.
test_asan() {
  ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 test_at_once build-asan --label-exclude shell
}

# The OpenMP library is not instrumented, so that the sanitizer does not see its barriers: teams of one thread. Ranks
# and loaders are threads of our own and are checked in full.
test_tsan() {
  TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp halt_on_error=1 second_deadlock_stack=1 allocator_may_return_null=1" \
    OMP_NUM_THREADS=1 OMP_THREAD_LIMIT=1 test_at_once build-tsan --label-exclude shell
}

build_package() {
  cmake --preset package -DOWT_TESTS=ON && cmake --build --preset package --target level_tests
}

part "packages" install_packages "${build_packages[@]}" "${test_packages[@]}" || end_of_parts
part "includes" tools/check_includes.sh
part "format" tools/check_format.sh
part "English" tools/check_english.py
# tools/quickstart.sh may have switched off what the options switch on.
part "build" build release -DOWT_TESTS=ON -DOWT_CUDA=ON && part "tests" test_at_once build
if "$all"; then
  part "build with address sanitizer" build asan && part "tests under address sanitizer" test_asan
  part "build with thread sanitizer" build tsan && part "tests under thread sanitizer" test_tsan
  part "packages for fuzzing" install_packages "${fuzz_packages[@]}" && part "fuzzing" tests/fuzz/run.sh 20
  part "runs under stress" tools/bench/soak.sh 20
  part "workers that leave and join" tools/bench/elastic_soak.py build/owt --minutes 10
  part "build of a package" build_package &&
    part "levels of a package" tests/levels_test.sh build-package/owt build-package/tests/layers_test
  part "other processors, threads, users and builds" tools/test_matrix.sh
  part "set of glyphs" tests/glyphs_test.sh build/owt
  part "wheel" tools/wheel.sh && for suite in bookworm trixie; do
    part "wheel in a bare $suite" tools/test_in_root.sh --wheel dist/owt-*.whl "$suite"
  done
  part "Debian 13" tools/test_debian13.sh
fi
end_of_parts
