#!/usr/bin/env bash
# Tests tools/gpu_check.sh: its three stages on the CPU with the given program; and, with fake programs, its handling of
# failures and the results that it keeps.
#
#   usage: gpu_check_test.sh PROGRAM
#
# Prints each case; exits 1 at the first that fails.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
owt=$(realpath "$1")
# shellcheck source-path=SCRIPTDIR/../support
source "$root/tests/support/lanes.sh"
work=$(mktemp -d)
clean_up() {
  end_lanes
  rm -rf "$work"
}
trap clean_up EXIT

program() {  # program PATH COMMANDS
  printf '#!%s\n%s\n' "$(command -v bash)" "$2" >"$1"
  chmod +x "$1"
}
# An owt with a GPU that adds its words to the file `calls`, and does COMMANDS when it shall train or time.
pretend_owt() {  # pretend_owt [COMMANDS]
  program "$work/build/owt" "case \$1 in
    devices) echo 'cuda:0 pretended'; exit ;;
    --version) echo 'owt pretended'; exit ;;
    plan) exec '$owt' \"\$@\" ;;
  esac
  echo \"owt \$*\" >>'$work/calls'
  value_of() { while [ \"\$1\" != \"\$name\" ]; do shift; done; echo \"\$2\"; }
  ${1:-exit 3}"
}
timed='name=--csv
  printf "kind,name,ms\nlayer,conv1,0.3\nlayer,fc1,0.5\nstep,step,2.0\nuntimed,step,1.0\n" >"$(value_of "$@")"'
trained='name=--steps; steps=$(value_of "$@"); name=--out; out=$(value_of "$@"); mkdir -p "$out"
  for step in $(seq "$steps"); do
    echo "{\"kind\": \"train\", \"step\": $step, \"loss\": ${loss:-2.5}}"
  done >"$out/metrics.jsonl"'
# Lines of GoogleTest: "A.b" passed, "!A.b" failed, "?A.b" only began.
tests() {
  local name
  for name in "$@"; do
    echo "echo '[ RUN      ] ${name#[?!]}'"
    case $name in
      !*) echo "echo '[  FAILED  ] ${name#!} (0 ms)'" ;;
      [?]*) ;;
      *) echo "echo '[       OK ] $name (0 ms)'" ;;
    esac
  done
}
begin() {  # a build with a GPU, and test programs that pass
  case_name=$1
  rm -rf "$work/build" "$work/out" "$work/bin"
  mkdir -p "$work/build/tests" "$work/bin"
  pretend_owt
  program "$work/build/tests/core_test" "echo \"core_test \$*\" >>'$work/calls'
    $(tests A.a A.b/0)"
  : >"$work/calls"
}
gpu_check() {
  "$root/tools/gpu_check.sh" "$@" --build "$work/build" --out "$work/out" >"$work/output" 2>&1
}
expect_output() { grep -qE -- "$1" "$work/output" || wrong "nothing printed matches '$1'"; }
expect_no_output() { if grep -qE -- "$1" "$work/output"; then wrong "something printed matches '$1'"; fi; }
expect_result() { grep -qE -- "$1" "$work/out/results.jsonl" || wrong "nothing in results.jsonl matches '$1'"; }
expect_packed() {  # expect_packed ARCHIVE FILE
  tar -tzf "$work/out/$1" >"$work/packed"
  grep -qx "$2" "$work/packed" || wrong "$1 does not hold $2"
}
expect_calls() {  # expect_calls COUNT PATTERN
  local count
  count=$(grep -cE -- "$2" "$work/calls" || true)
  [ "$count" = "$1" ] || wrong "$count calls match '$2', wanted $1"
}
wrong() {
  echo "FAILED: $case_name: $*" >&2
  sed 's/^/  | /' "$work/output" >&2
  exit 1
}
passed() { echo "passed: $case_name"; }

on_the_cpu() {
  begin "on the CPU all three stages run through"
  cp "$owt" "$work/build/owt"
  gpu_check 1 --cpu-dry-run || wrong "stage 1 ended with $?"
  for part in devices smoke owt tests; do expect_output "^PASS  $part "; done
  expect_output '^(PASS|SKIP)  eager '
  expect_output '^SKIP  compiled '
  expect_output '^cifar10_quick +16 +fp32 +[0-9]+'
  gpu_check 2 --cpu-dry-run || wrong "stage 2 ended with $?"
  for part in again variants; do expect_output "^PASS  $part "; done
  for part in nccl profile; do expect_output "^SKIP  $part .*wants a GPU"; done
  gpu_check 3 --cpu-dry-run || wrong "stage 3 ended with $?"
  for part in ranks accuracy others; do expect_output "^PASS  $part "; done
  expect_output '^SKIP  sanitizers .*wants a GPU'
  python3 -c "
import json
records = [json.loads(line) for line in open('$work/out/results.jsonl')]
assert {record['stage'] for record in records if record['kind'] == 'part'} == {1, 2, 3}, records
kinds = {record['kind'] for record in records}
assert kinds >= {'devices', 'losses', 'speed', 'tests', 'variant', 'layer', 'accuracy'}, kinds
assert all(record['ms'] > 0 for record in records if record['kind'] == 'speed' and record['engine'] == 'owt'), records
" || wrong "results.jsonl is not as it should be"
  [ "$(find "$work/out" -type f | wc -l)" -le 6 ] || wrong "the output folder has more than six files"
  passed
}

on_the_simulated_gpu() {
  begin "on the simulated GPU losses agree and variants are timed"
  simulated=$(dirname "$owt")/tests/simulated_gpu/owt_on_simulated_gpu
  if [ -x "$simulated" ]; then
    # Without convolutions, because choosing their plans takes long there.
    printf '%s\n' 'model = "dense.toml"' '[data]' 'batch = 8' 'augment = { mean = "channel", std = "channel" }' \
      '[optimizer]' 'learning_rate = 0.01' '[schedule]' 'max_steps = 9' >"$work/small.toml"
    printf '%s\n' 'name = "dense"' 'input = [3, 32, 32]' 'classes = 10' '[[layer]]' 'name = "fc1"' 'type = "dense"' \
      'out = 32' '[[layer]]' 'name = "relu1"' 'type = "relu"' '[[layer]]' 'name = "fc2"' 'type = "dense"' 'out = 10' \
      >"$work/dense.toml"
    OWT_CACHE=$work/plans python3 "$root/tools/bench/compare_losses.py" --owt "$simulated" --config "$work/small.toml" \
      --steps 3 --workers 2 --strategies dp,owt-c >"$work/output" 2>&1 || wrong "compare_losses.py ended with $?"
    expect_output '^12 of 12 runs agree$'
    OWT_CACHE=$work/plans python3 "$root/tools/bench/gpu_variants.py" --owt "$simulated" --cases cifar10_quick:1:bf16 \
      --steps 2 --times 1 --variants run.cuda_graph=false,--keep-gradients >"$work/output" 2>&1 ||
      wrong "gpu_variants.py ended with $?"
    expect_output 'run.cuda_graph=false: .* of the plain step'
    expect_output ' --keep-gradients: .* of the plain step'
    passed
  else
    echo "skipped: $case_name: it is not built"
  fi
}

hanging() {
  begin "what hangs is ended, what was measured before stays, and later parts have their time"
  program "$work/bin/python" 'exec python3 -S "$@"'
  pretend_owt "$trained
  if [ \$(wc -l <'$work/calls') -gt 1 ]; then sleep 1000; fi"
  ! PYTHON=$work/bin/python gpu_check 1 --parts smoke,compiled --limit 84 || wrong "it succeeded"
  expect_output '^FAIL  smoke .*not done in its time'
  expect_output '^SKIP  compiled .*PyTorch is not installed'
  expect_result '"run": "1 worker, fp32", "result": "PASS"'
  passed
}

# These cases take long, or wait; they run in parallel.
for cases in on_the_cpu on_the_simulated_gpu hanging; do beside "$cases"; done

begin "without a GPU it says so in one line"
program "$work/build/owt" 'echo "cuda   none: there is no driver"'
! gpu_check 1 || wrong "it succeeded"
expect_output 'no GPU: cuda   none: there is no driver'
[ "$(wc -l <"$work/output")" = 1 ] || wrong "more than one line"
passed

begin "without Python it says so in one line"
! PYTHON=$work/none gpu_check 1 || wrong "it succeeded"
expect_output 'found no Python 3.11 or newer as .*/none'
[ "$(wc -l <"$work/output")" = 1 ] || wrong "more than one line"
passed

begin "the tests on the GPU are a part of their own, and are counted"
gpu_check 1 --parts tests || wrong "it ended with $?"
expect_output '^PASS  tests .*: 2 tests passed'
expect_calls 1 'core_test --gtest_filter=\*cuda\*'
gpu_check 3 --parts others || wrong "it ended with $?"
expect_calls 1 'core_test --gtest_filter=-\*cuda\*'
passed

begin "the test of two processes is a part of stage 2, and runs alone"
program "$work/build/tests/nccl_processes_test" "echo \"nccl_processes_test \$*\" >>'$work/calls'; $(tests A.a A.b)"
gpu_check 1 --parts tests || wrong "it ended with $?"
expect_calls 0 'nccl_processes_test'
gpu_check 2 --parts nccl || wrong "it ended with $?"
expect_output '^PASS  nccl .*: 2 tests passed'
expect_calls 1 'nccl_processes_test --gtest_filter=\*$'
passed

begin "a failure is written down and does not stop the other parts"
program "$work/build/tests/data_test" "$(tests '!Images.third'); exit 1"
! gpu_check 1 --parts devices,tests,smoke || wrong "it succeeded"
expect_output '^FAIL  tests .*data_test Images.third'
expect_output '^FAIL  smoke '
expect_result '"program": "data_test".*"failed": \["Images.third"\]'
grep -q 'FAILED  \] Images.third' "$work/out/log.txt" || wrong "log.txt does not have it"
passed

begin "a test that ends its program does not hide the others"
program "$work/build/tests/core_test" "case \$* in
  *-A.a:A.b) $(tests A.c/0) ;;
  *) $(tests A.a '?A.b'); kill -SEGV \$\$ ;;
esac"
! gpu_check 1 --parts tests || wrong "it succeeded"
expect_output '^FAIL  tests .*: 2 tests passed; core_test A.b$'
passed

begin "stage 2 runs the failed tests again, and only these"
program "$work/build/tests/data_test" "$(tests Images.first '!Images.third'); exit 1"
! gpu_check 1 --parts tests || wrong "it succeeded"
program "$work/build/tests/data_test" "echo \"data_test \$*\" >>'$work/calls'; $(tests Images.third)"
: >"$work/calls"
gpu_check 2 --parts again || wrong "it ended with $?"
expect_output '^PASS  again .*: 1 tests passed'
expect_calls 1 'data_test --gtest_filter=Images.third$'
expect_calls 0 'core_test'
gpu_check 2 --parts again || wrong "it ended with $?"
expect_output '^PASS  again .*: none had failed'
passed

begin "that no test runs on the GPU is a failure"
program "$work/build/tests/core_test" 'echo "[==========] 0 tests from 0 test suites ran. (0 ms total)"'
! gpu_check 1 --parts tests || wrong "it succeeded"
expect_output '^FAIL  tests .*: 0 tests passed'
passed

begin "a test program that does not start is a failure"
program "$work/build/tests/data_test" 'echo "no such library"; exit 127'
! gpu_check 1 --parts tests || wrong "it succeeded"
expect_output '^FAIL  tests .*data_test all of it: status 127'
passed

begin "cuDNN's description of the GPU is kept"
program "$work/build/tests/cudnn_test" 'echo "{}" >"$OWT_DUMP_DEVICE_JSON"'
gpu_check 1 --parts devices || wrong "it ended with $?"
[ -s "$work/out/device.json" ] || wrong "there is no device.json"
program "$work/build/tests/cudnn_test" 'true'
rm "$work/out/device.json"
! gpu_check 1 --parts devices || wrong "it succeeded without a description"
expect_output '^FAIL  devices .*no device.json'
passed

begin "what compute-sanitizer finds is a failure, that the machine refuses it is not"
program "$work/build/tests/layers_test" 'true'
sanitizer() {  # sanitizer COMMANDS: a compute-sanitizer with its log file and the name of the tool
  program "$work/bin/compute-sanitizer" "echo \"\$*\" >>'$work/calls'
    while [ \"\$1\" != --log-file ]; do [ \"\$1\" != --tool ] || tool=\$2; shift; done; log=\$2
    $1"
}
clean='echo "========= ERROR SUMMARY: 0 errors" >"$log"'
sanitizer "$(tests A.a); $clean; [ \$tool != racecheck ] ||
  printf '%s\n' '========= Error: a race in k' '=========     at 0x1' \
    '========= RACECHECK SUMMARY: 2 hazards displayed (1 errors, 1 warnings)' >\"\$log\""
! PATH=$work/bin:$PATH gpu_check 3 --parts sanitizers || wrong "it succeeded"
expect_output '^FAIL  sanitizers .*: racecheck found 2 in layers_test: Error: a race in k; memcheck clean; sync.* clean$'
expect_calls 4 '--check-exit-code no .*--gtest_filter=\*ActivationTest'
grep -q 'at 0x1' "$work/out/sanitizers.txt" || wrong "sanitizers.txt does not have what it found"
sanitizer "$(tests A.a '!A.b'); $clean; exit 1"
! PATH=$work/bin:$PATH gpu_check 3 --parts sanitizers || wrong "it succeeded with a failed test"
expect_output '^FAIL  sanitizers .*: racecheck clean; .*initcheck clean; tests that failed .*: layers_test A.b$'
sanitizer "$(tests A.a); $clean"
PATH=$work/bin:$PATH gpu_check 3 --parts sanitizers || wrong "it ended with $?"
expect_output '^PASS  sanitizers .*: racecheck clean; memcheck clean; synccheck clean; initcheck clean$'
sanitizer "$clean"
! PATH=$work/bin:$PATH gpu_check 3 --parts sanitizers || wrong "it succeeded without a test"
expect_output '^FAIL  sanitizers .*racecheck ran no test of layers_test'
sanitizer 'echo "no such thing"; exit 3'
! PATH=$work/bin:$PATH gpu_check 3 --parts sanitizers || wrong "it succeeded without a summary"
expect_output '^FAIL  sanitizers .*racecheck gave no summary of layers_test \(status 3\): no such thing;'
sanitizer 'echo "Unable to name"; echo "========= Error: Device not supported. Please refer to the notes"; exit 1'
PATH=$work/bin:$PATH gpu_check 3 --parts sanitizers || wrong "it ended with $?"
expect_output '^SKIP  sanitizers .*memcheck Error: Device not supported'
passed

begin "a strategy with other losses is a failure"
pretend_owt "name=--parallel; [ \"\$(value_of \"\$@\")\" != dp ] || loss=2.6
$trained"
! gpu_check 3 --parts ranks || wrong "it succeeded"
expect_output '^FAIL  ranks .*runs agree; not: 2 workers, dp; 4 workers, dp; status 1'
expect_result '"run": "2 workers, owt-c", "result": "PASS", "text": "largest difference 0'
expect_result '"run": "2 workers, dp", "result": "FAIL", "text": "largest difference 4.0e-02 in step 1'
passed

begin "the roofline limit of AlexNet at 1024 images is 164 thousand images per second"
"$owt" plan "$root/configs/models/alexnet_owt.toml" --workers 1 --gpu H200 --launches --precision bf16 \
  --set data.batch=1024 >"$work/output" || wrong "it ended with $?"
expect_output '^step: .* the roofline limit of 6\.232 ms'
passed

begin "owt's speed is that of steps without timers, and without PyTorch it is measured alone"
program "$work/bin/python" 'exec python3 -S "$@"'  # has the standard library only
pretend_owt "$timed"
PYTHON=$work/bin/python gpu_check 1 --parts owt,eager || wrong "it ended with $?"
expect_output '^PASS  owt '
expect_output '^SKIP  eager .*5 open; left out: .*, graphed: PyTorch is not installed'
expect_output '^cifar10_quick +128 +bf16 +128000 .* 1\.000'
expect_output 'cifar10_quick 128 bf16: fc1 0.500 ms .*, conv1 0.300 ms'
expect_output '^resnet50 +256 +bf16 +256000 .* 1\.000'
grep -q '^cifar10_quick .* 128000 ' "$work/out/table.txt" || wrong "table.txt does not have it"
passed

begin "the fastest PyTorch counts, and its compiler comes last"
pretend_owt "$timed"
mkdir -p "$work/copy/tools" "$work/torch"
cp -r "$root/tools/bench" "$work/copy/tools"
ln -sfn "$root/configs" "$work/copy/configs"
touch "$work/torch/torch.py"
cat >"$work/copy/tools/bench/gpu_torch.py" <<'END'
import os
def serve(pipe, log):
    os.setsid()
    while (engine := pipe.recv()["engine"]) != "autotuned":
        pipe.send({"ms": {"eager": 4.0, "graphed": 2.0, "compiled": 3.0}[engine]})
    pipe.send({"error": "too slow"})
END
status=0
PYTHONPATH=$work/torch python3 "$work/copy/tools/bench/gpu_compare.py" --owt "$work/build/owt" --times 2 \
  --cases cifar10_quick:128:bf16 --engines owt,eager,graphed,compiled --limit 500 >"$work/output" 2>&1 || status=$?
[ "$status" = 1 ] || wrong "status $status, wanted 1 for a missed target"
expect_output '^cifar10_quick +128 +bf16 +128000 +32000 +64000 +42667 +- +2.00 +3.0 .* MISSED$'
[ "$(grep -o '^cifar10_quick 128 bf16, [a-z]*' "$work/output" | sed 's/.* //' | tr '\n' ' ')" = \
  "owt eager graphed owt eager graphed compiled compiled autotuned autotuned " ] || wrong "another order"
expect_output '^targets: 0 met, 1 missed, 4 open$'
passed

begin "measurements of an earlier stage count, as long as the program is the same"
pretend_owt "$timed"
program "$work/bin/python" 'exec python3 -S "$@"'
PYTHON=$work/bin/python gpu_check 1 --parts owt || wrong "it ended with $?"
expect_calls 6 'owt time'
PYTHON=$work/bin/python gpu_check 1 --parts owt || wrong "it ended with $?"
expect_calls 6 'owt time'
sed -i 's/owt pretended/owt mended/' "$work/build/owt"
PYTHON=$work/bin/python gpu_check 1 --parts owt || wrong "it ended with $?"
expect_calls 12 'owt time'
passed

begin "a measurement that breaks off does not cost the table of an earlier one"
pretend_owt "$timed"
program "$work/bin/python" 'exec python3 -S "$@"'
PYTHON=$work/bin/python gpu_check 1 --parts owt || wrong "it ended with $?"
cp "$work/out/table.txt" "$work/table.txt"
pretend_owt 'name=--csv; echo "no table" >"$(value_of "$@")"'
sed -i 's/owt pretended/owt mended/' "$work/build/owt"
! PYTHON=$work/bin/python gpu_check 1 --parts owt || wrong "it succeeded"
cmp -s "$work/table.txt" "$work/out/table.txt" || wrong "table.txt is not what it was"
passed

begin "plans that were measured are kept, and used again by the next stage"
pretend_owt "mkdir -p \"\$OWT_CACHE\"
if [ -e \"\$OWT_CACHE/conv.plan\" ]; then echo 'plan was there' >>'$work/calls'; fi
: >\"\$OWT_CACHE/conv.plan\"
$timed"
gpu_check 1 --parts owt || wrong "it ended with $?"
expect_packed plans.tar.gz plans/runs/conv.plan
: >"$work/calls"
gpu_check 2 --parts variants || wrong "it ended with $?"
expect_calls "$(grep -c '^owt time' "$work/calls")" 'plan was there'
passed

begin "variants are measured in turns with the step as it is"
pretend_owt "$timed"
gpu_check 2 --parts variants || wrong "it ended with $?"
expect_calls 72 'owt time'
expect_output '^alexnet_owt 128 bf16 run.cuda_graph=false: 1.000 ms .*, 1.000 of the plain step'
sed -n 1,3p "$work/calls" | grep -o 'run\.[a-z_]*=[a-z]*' | tr '\n' ' ' >"$work/output"
expect_output '^run.cuda_graph=false run.update_beside=on $'
expect_calls 12 'owt time .*run.update_beside=off'
expect_calls 12 'owt time .* --keep-gradients'
expect_result '"kind": "variant".*"variant": "run.cuda_graph=false", "ms": 1.0'
for again in 288 0; do  # two times of the step and two layers, of each measurement
  python3 "$root/tools/bench/gpu_table.py" "$work/out/results.jsonl" "$work/out/layers.csv" >"$work/output"
  expect_output "^$again rows added"
done
grep -q ',cuda:0 pretended,owt pretended,resnet50,256,bf16,owt,run.update_beside=off,layer,conv1,0.3$' \
  "$work/out/layers.csv" || wrong "a row is missing from the table"
passed

begin "ncu's kernels are summed up over whole steps"
program "$work/bin/ncu" 'while [ "$1" != --log-file ]; do shift; done
{
  echo "==PROF== Connected to process 1"
  echo "\"ID\",\"Kernel Name\",\"dram__bytes.sum\",\"gpu__time_duration.sum\",\"sm__inst_executed.sum\""
  echo "\"\",\"\",\"byte\",\"ns\",\"inst\""
  id=0
  for kernel in sgd softmax_rows conv conv sgd softmax_rows conv conv sgd softmax_rows conv; do
    echo "\"$((id++))\",\"$kernel\",\"2,000,000\",\"4,000\",\"1,000,000\""
  done
} >"$2"'
PATH=$work/bin:$PATH gpu_check 2 --parts profile || wrong "it ended with $?"
expect_output '^PASS  profile .*: kernels of 6 of 6 cases'
expect_result '"kind": "kernel".*"batch": 128.*"kernel": "conv", "launches": 2.0, "us": 8.0, "dram_mb": 4.0'
expect_result '"kind": "kernel".*"batch": 1024.*"kernel": "sgd", "launches": 1.0, "us": 4.0'
expect_packed profile.tar.gz profile/alexnet_owt-128.ncu.csv
passed

begin "tools that are not in the path are found where the CUDA toolkit has them"
mkdir -p "$work/cuda/bin" "$work/cuda/nsight-compute-2025"
program "$work/build/tests/layers_test" 'true'
program "$work/cuda/bin/compute-sanitizer" 'echo "========= Error: Device not supported"'
CUDA_HOME=$work/cuda gpu_check 3 --parts sanitizers || wrong "it ended with $?"
expect_output '^SKIP  sanitizers .*racecheck Error: Device not supported'
pretend_owt "$timed"
for place in bin/ncu nsight-compute-2025/ncu; do
  program "$work/cuda/$place" 'echo "==ERROR== Failed to start"; exit 1'
  CUDA_HOME=$work/cuda gpu_check 2 --parts profile || wrong "it ended with $?"
  expect_output '^SKIP  profile .*ncu: ==ERROR== Failed to start'
  rm "$work/cuda/$place"
done
passed

begin "where ncu is refused, nsys gives the kernels"
program "$work/bin/ncu" 'echo "==ERROR== Failed to initialize the profiler: LibraryNotLoaded"; exit 1'
program "$work/bin/nsys" 'if [ "$1" = profile ]; then exit 0; fi
echo "Start (ns),Duration (ns),Name"
for step in $(seq 200); do printf "1,4000,softmax_rows\n2,8000,conv\n"; done'
PATH=$work/bin:$PATH gpu_check 2 --parts profile || wrong "it ended with $?"
expect_output '^PASS  profile .*: kernels of 6 of 6 cases'
expect_result '"tool": "nsys", "kernel": "conv", "launches": 1.0, "us": 8.0'
passed

begin "without a profiler that works there are the times of the layers, and the reason"
program "$work/bin/ncu" 'echo "==ERROR== Failed to initialize the profiler: LibraryNotLoaded"; exit 1'
program "$work/bin/nsys" 'echo "Error: not allowed"; exit 1'
pretend_owt "$timed"
PATH=$work/bin:$PATH gpu_check 2 --parts profile || wrong "it ended with $?"
expect_output '^SKIP  profile .*ncu: ==ERROR== Failed to initialize the profiler: LibraryNotLoaded; nsys: Error: not'
expect_result '"kind": "layer".*"batch": 1024.*"layer": "conv1", "ms": 0.3'
passed

begin "a part that the limit leaves too little for is skipped"
gpu_check 1 --parts compiled --limit 50 || wrong "it ended with $?"
expect_output '^SKIP  compiled .*[45][0-9] s are left of --limit 50, too little'
passed

begin "told to end, it ends what it started and keeps what it has"
program "$work/build/tests/core_test" "echo \$\$ >'$work/running'; exec sleep 1000"
rm -f "$work/running"
"$root/tools/gpu_check.sh" 1 --parts devices,tests --build "$work/build" --out "$work/out" >"$work/output" 2>&1 &
until [ -s "$work/running" ]; do sleep 0.1; done
kill -TERM $!
status=0
wait $! || status=$?
[ "$status" = 143 ] || wrong "it ended with $status, wanted 143"
! kill -0 "$(cat "$work/running")" 2>/dev/null || wrong "the test program goes on"
expect_result '"kind": "part", "stage": 1, "part": "devices"'
grep -q '^== tests-core_test: status -15' "$work/out/log.txt" || wrong "it did not end the test program at once"
passed

begin "half a line of a run that was cut off does no harm"
mkdir "$work/out"
printf '{"kind": "tests", "progr' >"$work/out/results.jsonl"
gpu_check 1 --parts devices || wrong "it ended with $?"
[ "$(python3 -c "
import sys
sys.path.insert(0, '$root/tools/bench')
from results import Results
print(*[record['kind'] for record in Results('$work/out/results.jsonl').records])")" = 'devices part' ] ||
  wrong "the results after it cannot be read"
passed

begin "parts are chosen, and unknown ones refused"
gpu_check 1 --parts devices || wrong "it ended with $?"
expect_no_output '^[A-Z]+  (smoke|tests) '
status=0
gpu_check 1 --parts devices,ranks || status=$?
[ "$status" = 2 ] || wrong "status $status, wanted 2"
expect_output "no part 'ranks' in stage 1"
status=0
gpu_check 4 || status=$?
[ "$status" = 2 ] || wrong "status $status, wanted 2"
passed

all_ended
