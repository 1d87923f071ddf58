#!/usr/bin/env bash
# tools/gpu_check.sh: its whole run on the CPU with the program that is given, and how it treats failures, with programs
# that only pretend.
#
#   usage: gpu_check_test.sh PROGRAM
#
# Prints each case; exits 1 at the first that fails.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
owt=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

program() {  # program PATH COMMANDS
  printf '#!%s\n%s\n' "$(command -v bash)" "$2" >"$1"
  chmod +x "$1"
}
begin() {  # a build with a GPU, and test programs that pass
  case_name=$1
  rm -rf "$work/build" "$work/out"
  mkdir -p "$work/build/tests"
  program "$work/build/owt" 'if [ "$1" = devices ]; then echo "cuda:0 pretended"; else exit 3; fi'
  program "$work/build/tests/core_test" "echo \"core_test \$*\" >>'$work/calls'
    echo '[==========] 2 tests from 1 test suite ran. (0 ms total)'"
  : >"$work/calls"
}
gpu_check() {
  "$root/tools/gpu_check.sh" --build "$work/build" --out "$work/out" "$@" >"$work/output" 2>&1
}
expect_output() { grep -qE -- "$1" "$work/output" || wrong "nothing printed matches '$1'"; }
expect_no_output() { if grep -qE -- "$1" "$work/output"; then wrong "something printed matches '$1'"; fi; }
wrong() {
  echo "FAILED: $case_name: $*" >&2
  sed 's/^/  | /' "$work/output" >&2
  exit 1
}
passed() { echo "passed: $case_name"; }

begin "on the CPU it runs through: devices, tests, losses, accuracy, speed"
cp "$owt" "$work/build/owt"
gpu_check --cpu-dry-run --limit 240 || wrong "it ended with $?"
for part in f a c d; do expect_output "^PASS  $part "; done
expect_output '^(PASS|SKIP)  e '
expect_output '^SKIP  g .*wants a GPU'
expect_output '^cifar10_quick +16 +fp32 +[0-9]+'
grep -q 'runs agree' "$work/out/log.txt" || wrong "log.txt has no losses"
python3 -c "
import json
results = json.load(open('$work/out/results.json'))
assert [part['part'] for part in results['parts']] == list('facdeg'), results
assert results['benchmark']['cases'][0]['results']['owt']['ms'] > 0, results
" || wrong "results.json is not as it should be"
passed

begin "without a GPU it says so in one line"
program "$work/build/owt" 'echo "cuda   none: there is no driver"'
! gpu_check || wrong "it succeeded"
expect_output 'no GPU: cuda   none: there is no driver'
[ "$(wc -l <"$work/output")" = 1 ] || wrong "more than one line"
passed

begin "tests on the GPU come first, and are counted"
gpu_check --parts a || wrong "it ended with $?"
expect_output '^PASS  a .*2 tests on the GPU, 2 others'
[ "$(sed -n 1p "$work/calls" | grep -c 'filter=\*cuda')" = 1 ] || wrong "the first call has another filter"
[ "$(sed -n 2p "$work/calls" | grep -c 'filter=-\*cuda')" = 1 ] || wrong "the second call has another filter"
passed

begin "a failure is shown and does not stop the other parts"
program "$work/build/tests/data_test" 'echo "the third image is wrong"; exit 1'
! gpu_check --parts f,a,c || wrong "it succeeded"
expect_output '^PASS  f '
expect_output '^FAIL  a .*data_test'
expect_output '\| the third image is wrong'
expect_output '^FAIL  c '
grep -q '"FAIL"' "$work/out/results.json" || wrong "results.json does not have it"
passed

begin "cuDNN's description of the GPU is kept"
program "$work/build/tests/cudnn_test" 'echo "{}" >"$OWT_DUMP_DEVICE_JSON"'
gpu_check --parts f || wrong "it ended with $?"
[ -s "$work/out/device.json" ] || wrong "there is no device.json"
program "$work/build/tests/cudnn_test" 'true'
rm "$work/out/device.json"
! gpu_check --parts f || wrong "it succeeded without a description"
expect_output '^FAIL  f .*no device.json'
passed

begin "what compute-sanitizer finds is a failure"
program "$work/build/tests/layers_test" 'true'
mkdir "$work/build/bin"
program "$work/build/bin/compute-sanitizer" 'case "$*" in *racecheck*) echo hazard; exit 99 ;; esac'
! PATH=$work/build/bin:$PATH gpu_check --parts g || wrong "it succeeded"
expect_output '^FAIL  g .*racecheck \(status 99\)'
expect_output '\| hazard'
program "$work/build/bin/compute-sanitizer" 'true'
PATH=$work/build/bin:$PATH gpu_check --parts g || wrong "it ended with $?"
expect_output '^PASS  g .*memcheck clean; racecheck clean'
passed

begin "a strategy with other losses is a failure"
program "$work/build/owt" 'if [ "$1" = devices ]; then echo "cuda:0 pretended"; exit; fi
loss=2.5
while [ $# -gt 0 ]; do
  case $1 in
    --out) out=$2 ;;
    --parallel) if [ "$2" = dp ]; then loss=2.6; fi ;;
  esac
  shift
done
mkdir -p "$out"
for step in 1 2 3 4; do echo "{\"kind\": \"train\", \"step\": $step, \"loss\": $loss}"; done >"$out/metrics.jsonl"'
! gpu_check --parts c --quick || wrong "it succeeded"
expect_output '^FAIL  c '
expect_output 'ok     2 workers, owt-c: largest difference 0'
expect_output 'FAILED 2 workers, dp: largest difference 4.0e-02 in step 1'
passed

begin "the floor of AlexNet at 1024 images is 161 thousand images per second"
"$root/tools/bench/gpu_floor.py" "$root/configs/models/alexnet_owt.toml" --batch 1024 >"$work/output" || wrong "status $?"
expect_output '^conv2 +1741\.7 us'  # 3 passes of 458.6 GFLOP at 790 TFLOP/s
expect_output '^update +284\.2 us'  # 61.1 million parameters, 20 bytes each, at 4.3 TB/s
expect_output '^step +6349\.4 us = 161275 images/s'
passed

begin "owt's speed is that of steps without timers, and without PyTorch it is measured alone"
program "$work/python" 'exec python3 -S "$@"'  # has the standard library only
program "$work/build/owt" 'if [ "$1" = devices ]; then echo "cuda:0 pretended"; exit; fi
while [ "$1" != --csv ]; do shift; done
printf "kind,name,ms\nlayer,conv1,0.3\nlayer,fc1,0.5\nstep,step,2.0\nuntimed,step,1.0\n" >"$2"'
gpu_check --parts e --quick --python "$work/python" || wrong "it ended with $?"
expect_output '^SKIP  e .*0 met, 0 missed, 0 not judged, PyTorch is not installed'
expect_output '^cifar10_quick +64 +bf16 +64000 .* 1\.000$'
expect_output 'cifar10_quick 64 bf16: fc1 0.500 ms .*, conv1 0.300 ms'
passed

begin "that no test runs on the GPU is a failure"
program "$work/build/tests/core_test" 'echo "[==========] 0 tests from 0 test suites ran. (0 ms total)"'
! gpu_check --parts a || wrong "it succeeded"
expect_output '^FAIL  a .*not one test ran on the GPU'
passed

begin "what outlasts the limit is cut off, and later parts are skipped"
program "$work/build/tests/core_test" 'sleep 100'
gpu_check --parts a,c --limit 20 || wrong "it ended with $?"
expect_output '^SKIP  a .*cut off by --limit 20'
expect_output '^SKIP  c .*too little'
passed

begin "the limit does not hide a failure"
program "$work/build/tests/bad_test" 'exit 1'
! gpu_check --parts a --limit 20 || wrong "it succeeded"
expect_output '^FAIL  a .*bad_test'
passed

begin "parts are chosen, and unknown ones refused"
gpu_check --parts f || wrong "it ended with $?"
expect_no_output '^[A-Z]+  [acdeg] '
status=0
gpu_check --parts f,x || status=$?
[ "$status" = 2 ] || wrong "status $status, wanted 2"
expect_output "no part 'x'"
passed
