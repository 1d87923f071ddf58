#!/usr/bin/env bash
# Tests tools/parts.sh, which tools/test.sh and .ci/run use: the summary of failed parts, for real output of ctest and a
# compiler. Prints each case; exits 1 at the first that fails.
set -euo pipefail

tools=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/tools
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
cd "$here"

wrong() {
  echo "FAILED: $case_name: $*" >&2
  sed 's/^/  | /' said >&2
  exit 1
}
passed() { echo "passed: $case_name"; }
# run_parts: runs parts from standard input like a script; its output goes to `output`, its end to `said`
run_parts() {
  status=0
  { echo "set -uo pipefail; source '$tools/parts.sh'" && cat && echo end_of_parts; } >script
  bash script >output 2>&1 || status=$?
  sed -n '/^== Failed:/,$p' output >said
}
expect() { grep -qF -- "$1" said || wrong "no line has '$1'"; }
expect_none() { if grep -qF -- "$1" said; then wrong "a line has '$1'"; fi; }

case_name="parts that pass are listed with their times"
run_parts <<<'part "one" true; part "two" bash -c "exit 77"'
[ $status = 0 ] || wrong "it ended with $status"
grep -qE '^ +[0-9]+ s  one$' output && grep -qE '^ +[0-9]+ s  two \(skipped\)$' output && grep -qx 'All passed.' output ||
  wrong "it printed $(cat output)"
passed

case_name="the others go on, and what failed is said last"
run_parts <<'END'
part "one" bash -c 'echo "all is well"; echo "prog: error: no disk"; exit 3'
part "two" echo "the second was run"
part "three" false && part "needs three" echo "needs three was run"
END
[ $status = 1 ] || wrong "it ended with $status"
expect '== Failed: one; three;'
expect '   prog: error: no disk'
expect_none 'all is well'
grep -q '^the second was run' output || wrong "the second part was not run"
if grep -q '^needs three was run' output; then wrong "a part was run that needs one that failed"; fi
passed

case_name="of a build, the compiler's first error"
printf 'int f() { return g(); }\nint h() { return k(); }\n' >a.cpp
cat >broken_build <<'END'
echo "[1/2] Building CXX object a.cpp.o"
echo "FAILED: a.cpp.o "
echo "/usr/bin/c++ -c a.cpp -o a.cpp.o"
c++ -fsyntax-only a.cpp
END
run_parts <<<'part "build" bash broken_build'
expect '-- build'
expect 'FAILED: a.cpp.o'
expect "a.cpp:1:18: error: "
expect_none '/usr/bin/c++'
passed

# Tests under ctest; a test program prints GoogleTest's output.
mkdir tests
cat >shard <<'END'
echo "[ RUN      ] Net.Learns"
echo "owt: error: this one is expected"
echo "[       OK ] Net.Learns (1 ms)"
echo "[ RUN      ] Net.Forgets"
echo "net_test.cpp:7: Failure"
echo "Expected equality of these values:"
echo "  1"
echo "  2"
echo "[  FAILED  ] Net.Forgets (2 ms)"
echo "[ RUN      ] Net.Sleeps"
echo "net_test.cpp:9: Failure"
echo "Value of: false"
echo "[  FAILED  ] Net.Sleeps (2 ms)"
echo "[  FAILED  ] 2 tests, listed below:"
exit 1
END
cat >crash <<'END'
echo "[ RUN      ] Conv.Multiplies"
echo "[       OK ] Conv.Multiplies (1 ms)"
echo "[ RUN      ] Conv.Reads"
echo "the last words"
kill -SEGV $$
END
cat >replay <<'END'
echo "[ RUN      ] Targets/Replay.AnErrorOrWhatTheReaderPromises/tar"
echo "broken promise: every member lies in the file"
echo "broken by the input in /build/tests/fuzz-tar"
kill -ABRT $$
END
cat >script_test <<'END'
echo "passed: the first case"
echo "FAILED: the second case: no line matches 'x'"
echo "  | what it printed"
exit 1
END
# tests_are NAME SCRIPT...: the tests that ctest finds in the folder
tests_are() {
  : >tests/CTestTestfile.cmake
  while [ $# -gt 0 ]; do
    echo "add_test($1 bash $here/$2)" >>tests/CTestTestfile.cmake
    shift 2
  done
}
test_parts() { run_parts <<<"part tests ctest --test-dir $here/tests --output-on-failure"; }

case_name="of test programs the cases that failed, and their first lines"
tests_are net/1_of_2 shard
test_parts
expect 'net/1_of_2: Failed'
expect '   2 cases: Net.Forgets Net.Sleeps'
expect '   [ RUN      ] Net.Forgets'
expect '   net_test.cpp:7: Failure'
expect '   Expected equality of these values:'
expect_none 'this one is expected'
expect_none 'Net.Learns'
passed

case_name="of one that crashed its last case"
tests_are conv crash
test_parts
expect 'conv: Exception: SegFault'
expect '   [ RUN      ] Conv.Reads'
expect '   the last words'
expect_none 'Conv.Multiplies'
passed

case_name="of a fuzz target that is replayed its broken promise and the input"
tests_are fuzz replay
test_parts
expect '   [ RUN      ] Targets/Replay.AnErrorOrWhatTheReaderPromises/tar'
expect '   broken promise: every member lies in the file'
expect '   broken by the input in /build/tests/fuzz-tar'
passed

case_name="of shell tests the case"
tests_are tools/script script_test
test_parts
expect 'tools/script: Failed'
expect "   FAILED: the second case: no line matches 'x'"
expect '     | what it printed'
expect_none 'the first case'
passed

case_name="a time-out and a program that is not there are named"
tests_are tools/late sleep.sh tools/none script_test
echo 'sleep 60' >sleep.sh
echo 'set_tests_properties(tools/late PROPERTIES TIMEOUT 1)' >>tests/CTestTestfile.cmake
echo 'add_test(absent /nothing/there)' >>tests/CTestTestfile.cmake
test_parts
expect 'tools/late: Timeout'
expect 'absent: Not Run'
passed

case_name="tests that are skipped are no failure"
echo 'exit 77' >skip
tests_are a skip
echo 'set_tests_properties(a PROPERTIES SKIP_RETURN_CODE 77)' >>tests/CTestTestfile.cmake
test_parts
[ $status = 0 ] || wrong "it ended with $status"
passed

case_name="of many tests that fail every one is named, on one screen"
names=()
for number in $(seq 10); do names+=("test/$number" script_test); done
tests_are "${names[@]}" net shard
test_parts
for number in $(seq 10); do expect "test/$number: Failed"; done
expect 'net: Failed'
[ "$(wc -l <said)" -le 45 ] || wrong "it has $(wc -l <said) lines"
passed

case_name="of a fuzzer what the sanitizer found"
cat >fuzzer <<'END'
echo "config: 22444 inputs in 12 s, nothing found"
echo "#22 INITED cov: 47 ft: 50 corp: 3/18b exec/s: 0 rss: 42Mb"
echo "==77==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x60"
echo "READ of size 1 at 0x60 thread T0"
echo "    #0 0x4f in owt::tar_members tar.cpp:31"
for i in $(seq 30); do echo "    #$i more"; done
echo "fuzz: error: tar failed, see build-fuzz/tar.log"
exit 1
END
run_parts <<<'part fuzzing bash fuzzer'
expect '==77==ERROR: AddressSanitizer: heap-buffer-overflow'
expect 'owt::tar_members tar.cpp:31'
expect 'fuzz: error: tar failed, see build-fuzz/tar.log'
expect_none '#20 more'
passed

case_name="a wrong word on the command line of tools/test.sh"
status=0
"$tools/test.sh" --fast >said 2>&1 || status=$?
[ $status = 2 ] || wrong "it ended with $status"
expect 'usage: tools/test.sh [--all]'
"$tools/test.sh" --help >said
expect '--all   '
passed
