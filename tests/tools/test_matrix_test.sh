#!/usr/bin/env bash
# Tests the table of tools/test_matrix.sh, with fake test programs that print GoogleTest's output. Prints each case;
# exits 1 at the first that fails.
set -euo pipefail

matrix=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/tools/test_matrix.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/build/tests"

wrong() {
  echo "FAILED: $case_name: $*" >&2
  sed 's/^/  | /' "$work/said" >&2
  exit 1
}
passed() { echo "passed: $case_name"; }
program() {  # program PATH <SCRIPT
  { echo '#!/usr/bin/env bash' && cat; } >"$work/build/$1"
  chmod +x "$work/build/$1"
}
run() {  # run ROW...
  status=0
  BUILD=$work/build RESULTS=$work/results PROGRAMS="core layers" "$matrix" "$@" >"$work/said" 2>&1 || status=$?
}
expect() { grep -qE -- "$1" "$work/said" || wrong "no line matches '$1'"; }

program owt <<<'echo "cpu    2 cores, instructions of x86-64-v3"'
program tests/core_test <<<'echo "[  PASSED  ] 3 tests."'
program tests/layers_test <<'END'
echo "env: $OWT_MAX_CPU $ONEDNN_MAX_CPU_ISA $OMP_NUM_THREADS"
echo "[ RUN      ] Conv.Bf16"
echo "conv_test.cpp:5: Skipped"
echo "this processor has no products of bf16"
echo "[  PASSED  ] 4 tests."
echo "[  SKIPPED ] 1 test, listed below:"
END
case_name="a row counts the tests of all programs and says why some were skipped"
run x86-64-v2 threads-4
[ $status = 0 ] || wrong "it ended with $status"
expect '^x86-64-v2 +7 +0 +1 '
expect '^threads-4 +7 +0 +1 '
expect '^ +2  this processor has no products of bf16$'
passed

case_name="rows hold the programs to their level or threads"
grep -qx 'env: x86-64-v2 SSE41 ' "$work/results/x86-64-v2.log" && grep -qx 'env:   4' "$work/results/threads-4.log" ||
  wrong "$(cat "$work"/results/*.log)"
passed

case_name="a level that the processor lacks is left out"
run x86-64-v4
[ $status = 0 ] || wrong "it ended with $status"
expect '^x86-64-v4: skipped, the processor has less$'
passed

case_name="a test that fails is told"
program tests/layers_test <<'END'
echo "[ RUN      ] Conv.Multiplies"
echo "conv_test.cpp:9: Failure"
echo "[  FAILED  ] Conv.Multiplies (1 ms)"
echo "[  PASSED  ] 4 tests."
echo "[  FAILED  ] 1 test, listed below:"
exit 1
END
run threads-1
[ $status = 1 ] || wrong "it ended with $status"
expect '^threads-1 +7 +1 +0 '
expect 'Conv.Multiplies'
expect 'conv_test.cpp:9: Failure'
passed

case_name="a program that crashes counts as one"
program tests/layers_test <<<'echo "[ RUN      ] Conv.Crashes"; kill -SEGV $$'
run threads-1
[ $status = 1 ] || wrong "it ended with $status"
expect '^threads-1 +3 +1 +0 '
expect 'Conv.Crashes'
passed

case_name="a test that is skipped without a reason fails the row"
program tests/layers_test <<<'echo "a_test.cpp:5: Skipped"; echo; echo "[  PASSED  ] 1 test."'
run threads-1
[ $status = 1 ] || wrong "it ended with $status"
expect 'FAILED: no reason is given'
passed
