#!/usr/bin/env bash
# Everything there is to check on a machine with a GPU, in under eight minutes. Runs in the repository after a build, or in
# a bundle of tools/bundle.sh on another machine.
#
#   usage: tools/gpu_check.sh [--parts f,a,...] [--limit SECONDS] [--out DIR] [--build DIR] [--data DIR] [--quick]
#                             [--python PROGRAM] [--cpu-dry-run]
#
# Parts, in the order they run:
#   f   what is there: owt devices, and cuDNN's description of the GPU (to OUT/device.json, for tests without a GPU)
#   a   all test programs: tests on the GPU first, each layer against the CPU among them, then the rest
#   c   the same losses with 1, 2 and 4 ranks on one GPU under every strategy, and with and without recorded graphs
#   d   accuracy: CIFAR-10 in the folder of --data to 75 %, or drawn images to 99.9 %, in fp32 and bf16
#   e   speed against PyTorch and against the floor
#   g   compute-sanitizer, memcheck and racecheck, over owt's kernels in the tests of the layers
#
#   --limit SECONDS   of all parts together (470); what does not fit is skipped
#   --out DIR         gets log.txt, results.json, device.json (default: gpu-check-DATE)
#   --build DIR       the build in the repository (build)
#   --quick           tiny sizes: whether things work, not how well
#   --python PROGRAM  Python 3.11 or newer, the one with PyTorch (python3)
#   --cpu-dry-run     all that can be tried on the CPU, to check this script; implies --quick
#
# Prints PASS, FAIL or SKIP per part; exits 1 if one failed, 2 on a wrong command line. CUDA's libraries are taken from the
# loader's path, /usr/local/cuda, or the packages nvidia-* of that Python.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bench=$root/tools/bench
order=(f a c d e g)
declare -A titles=([f]="what is there" [a]="tests on the GPU, then the others"
                   [c]="the same losses with every strategy, rank count and graph" [d]="accuracy"
                   [e]="speed against PyTorch" [g]="compute-sanitizer")
declare -A least=([f]=1 [a]=10 [c]=15 [d]=15 [e]=20 [g]=10)  # seconds that must be left for a part to begin
parts=f,a,c,d,e,g
limit=470
out=
build=$root/build
data=
python=python3
quick=false
device=cuda
sanitizer_seconds=45  # at most, of each of its two tools
test_seconds=180      # at most, of a test program

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }
fail() {
  echo "gpu_check: error: $*" >&2
  exit 1
}
wrong_usage() {
  echo "gpu_check: error: $*; tools/gpu_check.sh --help" >&2
  exit 2
}

while [ $# -gt 0 ]; do
  case $1 in
    --help | -h)
      usage
      exit 0
      ;;
    --quick) quick=true ;;
    --cpu-dry-run)
      quick=true
      device=cpu
      ;;
    --parts | --limit | --out | --build | --data | --python)
      [ $# -ge 2 ] || wrong_usage "$1 wants a value"
      printf -v "${1#--}" %s "$2"
      shift
      ;;
    *) wrong_usage "what is '$1'?" ;;
  esac
  shift
done
[[ $limit =~ ^[0-9]+$ ]] || wrong_usage "--limit wants seconds, not '$limit'"
for part in ${parts//,/ }; do
  [[ " ${order[*]} " == *" $part "* ]] || wrong_usage "no part '$part'; there are ${order[*]}"
done

# Sets `owt` and `tests`, an array of the test programs.
find_programs() {
  if [ -d "$root/libexec" ]; then
    owt=$root/bin/owt
    tests=("$root"/bin/*_test)
  else
    owt=$build/owt
    tests=("$build"/tests/*_test)
  fi
  [ -x "$owt" ] || fail "no program $owt; build first, or name the build with --build"
}

test_program() {  # test_program NAME: prints its path, if it is there
  local program
  for program in "${tests[@]}"; do
    [ "${program##*/}" != "$1" ] || [ ! -x "$program" ] || echo "$program"
  done
}

# Lets the loader find CUDA's libraries, which the program opens by name, where it does not by itself. PyTorch's come
# first, so that PyTorch keeps its own.
find_libraries() {
  local program=$owt names said folder folders=()
  if [ -d "$root/libexec" ]; then program=$root/libexec/owt; fi
  names=$(grep -aoE 'lib(cublasLt|cudnn|nccl)\.so\.[0-9]+' "$program" | sort -u | tr '\n' ' ' || true)
  [ -n "$names" ] || return 0
  said=$(LD_LIBRARY_PATH=$root/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} LD_PRELOAD=$names "$program" --version 2>&1 || true)
  [[ $said == *"cannot be preloaded"* ]] || return 0
  mapfile -t folders < <(
    "$python" -c 'import sys; print("\n".join(sys.path))' 2>/dev/null | while read -r folder; do
      printf '%s\n' "$folder"/nvidia/*/lib
    done
    echo /usr/local/cuda/lib64
  )
  for folder in "${folders[@]}"; do
    [ ! -d "$folder" ] || export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
  done
}

left() { echo $((limit - SECONDS)); }

# bounded MOST COMMAND...: at most MOST seconds, and no longer than the limit. What the limit ends is noted as cut off.
bounded() {
  local most=$1 rest status=0
  shift
  rest=$(left)
  if [ "$rest" -lt 1 ]; then
    cut_off=true
    return 124
  fi
  [ "$most" -lt "$rest" ] || most=$rest
  timeout -k 5 "$most" "$@" || status=$?
  if [ "$status" = 124 ] && [ "$(left)" -lt 1 ]; then cut_off=true; fi
  return "$status"
}

# check WHAT MOST COMMAND...: runs it, says how it ended and counts failures.
check() {
  local what=$1 most=$2 status=0
  shift 2
  echo "-- $what: $*"
  bounded "$most" "$@" </dev/null 2>&1 || status=$?
  [ "$status" != 0 ] || return 0
  if "$cut_off"; then
    echo "cut off by --limit $limit: $what"
    return 1
  fi
  if [ "$status" = 124 ]; then status="ended after $most s"; else status="status $status"; fi
  echo "FAILED: $what ($status)"
  failures+=("$what ($status)")
  return 1
}

part_f() {
  local describe
  check "owt devices" 60 "$owt" devices || return 0
  if command -v nvidia-smi >/dev/null; then bounded 30 nvidia-smi || true; fi
  [ "$device" = cuda ] || return 0
  describe=$(test_program cudnn_test)
  if [ -z "$describe" ]; then
    note="no cudnn_test, so no device.json"
    return 0
  fi
  check "description of the GPU" 60 env OWT_DUMP_DEVICE_JSON="$out/device.json" "$describe" \
    --gtest_filter='CudnnDevice.*' || return 0
  [ -s "$out/device.json" ] || failures+=("cudnn_test wrote no device.json")
}

# In a process of its own: what there is to say of $program is left in files.
run_test_program() {
  failures=()
  check "$name $filter" "$test_seconds" "$program" --gtest_brief=1 --gtest_filter="$filter" || true
  printf '%s\n' "${failures[@]}" >"$work/$name.failures"
  if "$cut_off"; then : >"$work/cut_off"; fi
}

# run_tests FILTER PROGRAM...: several programs at a time, each into a file of its own, which are shown in order.
run_tests() {
  local filter=$1 jobs=1 program name ran
  shift
  rm -f "$work/cut_off"
  # On the GPU one after the other: a lack of memory would be the check's fault.
  [ "$filter" = "$gpu_tests" ] || jobs=$(($(nproc) / 2 > 1 ? $(nproc) / 2 : 1))
  for program in "$@"; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
    name=${program##*/}
    run_test_program >"$work/$name.log" 2>&1 &
  done
  wait
  for program in "$@"; do
    name=${program##*/}
    cat "$work/$name.log"
    mapfile -t -O "${#failures[@]}" failures < <(grep . "$work/$name.failures")
    ran=$(sed -n 's/^\[==========\] \([0-9]*\) tests\{0,1\} from .* ran.*/\1/p' "$work/$name.log" | tail -n 1)
    count=$((count + ${ran:-0}))
  done
  [ ! -e "$work/cut_off" ] || cut_off=true
}

part_a() {
  local chosen=() program count=0 on_gpu
  for program in "${tests[@]}"; do [ ! -x "$program" ] || chosen+=("$program"); done
  if [ "${#chosen[@]}" = 0 ]; then
    skip="no test programs; build them, or bundle a build that has them"
    return 0
  fi
  if [ "$device" = cpu ]; then
    run_tests '*Shape*:*Relu*' "${chosen[@]}"
    note="$count tests"
    return 0
  fi
  run_tests "$gpu_tests" "${chosen[@]}"
  on_gpu=$count
  [ "$on_gpu" -gt 0 ] || "$cut_off" || failures+=("not one test ran on the GPU")
  "$quick" || run_tests "-$gpu_tests" "${chosen[@]}"
  note="$on_gpu tests on the GPU, $((count - on_gpu)) others"
}

part_c() {
  local sizes=()
  if "$quick"; then sizes=(--steps 4 --workers 2 --strategies "dp,owt-c"); fi
  check "losses" 200 "$python" "$bench/compare_losses.py" --owt "$owt" --config "$root/configs/quickstart.toml" \
    --device "$device" "${sizes[@]}" || true
  note=$(grep -h ' runs agree' "$log" | tail -n 1 || true)
}

# accuracy PRECISION WANTED CONFIG DATA WORD...: trains, and evaluates the weights once more.
accuracy() {
  local precision=$1 wanted=$2 config=$3 folder=$4 run=$work/accuracy-$1 trained weights again
  shift 4
  check "training in $precision" 300 "$owt" train "$config" --data "$folder" --device "$device" --precision \
    "$precision" --workers 1 --out "$run" "$@" || return 0
  trained=$(top1_of 'test accuracy:.*')
  "$python" -c "import sys; sys.exit(not $trained >= $wanted)" ||
    failures+=("$precision reached $trained %, wanted $wanted %")
  note+="${reached:+, }$precision $trained %"
  reached=true
  weights=$(find "$run/checkpoints" -name weights.safetensors | sort | tail -n 1)
  check "owt eval in $precision" 100 "$owt" eval "$config" --data "$folder" --device "$device" --precision \
    "$precision" --workers 1 --weights "$weights" || return 0
  again=$(top1_of '.*')
  "$python" -c "import sys; sys.exit(not abs($trained - $again) <= 0.2)" ||
    failures+=("owt eval in $precision gave $again %, training $trained %")
}
top1_of() { grep -o "$1top-1 [0-9.]* %" "$log" | tail -n 1 | sed 's/.*top-1 \([0-9.]*\) %/\1/'; }

part_d() {
  local config=$root/configs/quickstart.toml folder=$work/data wanted=99.9 words=() reached='' precision
  if [ -n "$data" ]; then
    config=$root/configs/cifar10_quick.toml folder=$data wanted=75
  else
    note="drawn images: "
    if "$quick"; then words=(--train 1000 --test 500); fi
    check "drawing images" 100 "$owt" prepare synthetic "$folder" "${words[@]}" || return 0
    words=()
  fi
  if "$quick"; then words=(--steps 40) wanted=0; fi
  for precision in fp32 bf16; do
    [ "$device" != cpu ] || [ "$precision" = fp32 ] || continue
    accuracy "$precision" "$wanted" "$config" "$folder" "${words[@]}"
  done
}

part_g() {
  local sanitizer program tool status filter='*cuda*-*Conv*'  # the measuring of plans would take all the time
  sanitizer=$(PATH=$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer command -v compute-sanitizer || true)
  program=$(test_program layers_test)
  if [ -z "$sanitizer" ]; then skip="compute-sanitizer is not installed"; fi
  if [ -z "$program" ]; then skip="no layers_test"; fi
  if [ "$device" = cpu ]; then skip="wants a GPU"; fi
  [ -z "$skip" ] || return 0
  if "$quick"; then filter='*Relu*cuda*:*Pool*cuda*'; fi
  # owt's kernels only: those of cuDNN and cuBLAS are slow to check and not ours to mend.
  for tool in memcheck racecheck; do
    status=0
    echo "-- $tool"
    bounded "$sanitizer_seconds" "$sanitizer" --tool "$tool" --target-processes all --kernel-name kns=owt \
      --report-api-errors no --error-exitcode 99 "$program" --gtest_brief=1 --gtest_filter="$filter" \
      </dev/null 2>&1 || status=$?
    case $status in
      0) note+="${note:+; }$tool clean" ;;
      124) note+="${note:+; }$tool not done in $sanitizer_seconds s" ;;
      *) failures+=("$tool (status $status)") ;;
    esac
  done
  if [[ $note == *"not done"* ]]; then skip=$note; fi
}

part_e() {
  local words=() status=0 seconds
  seconds=$(($(left) - 5))
  if [[ ,$parts, == *,g,* && $seconds -gt 250 ]]; then seconds=$((seconds - 2 * sanitizer_seconds)); fi
  if "$quick"; then words=(--cases cifar10_quick:64:bf16 --steps 20 --window 0.05); fi
  if [ "$device" = cpu ]; then words=(--cases cifar10_quick:16:fp32 --steps 2 --window 0); fi
  bounded "$limit" "$python" "$bench/gpu_compare.py" --owt "$owt" --device "$device" --limit "$seconds" \
    --json "$work/benchmark.json" "${words[@]}" </dev/null 2>&1 || status=$?
  note=$(grep -h '^targets: ' "$log" | tail -n 1 || true)
  case $status in
    0) ;;
    77)
      skip=$note
      if grep -q '^PyTorch is not installed' "$log"; then skip+=", PyTorch is not installed for $python"; fi
      ;;
    *) failures+=("${note:-gpu_compare.py ended with status $status}") ;;
  esac
}

# Runs a part, prints its line, and writes it down for results.json.
run_part() {
  local part=$1 begin=$SECONDS result=PASS
  note='' skip='' cut_off=false failures=() log=$work/part.log
  : >"$log"
  if [ "$(left)" -lt "${least[$part]}" ]; then
    skip="$(left) s are left of --limit $limit, too little"
  else
    "part_$part" >"$log" || failures+=("part_$part ended with status $?")
  fi
  if [ "${#failures[@]}" -gt 0 ]; then
    result=FAIL note=$(printf '; %s' "${failures[@]}") note=${note#; }
    failed=true
  elif "$cut_off"; then
    result=SKIP note="cut off by --limit $limit${note:+; $note}"
  elif [ -n "$skip" ]; then
    result=SKIP note=$skip
  fi
  printf '%s  %s  %4d s  %s%s\n' "$result" "$part" $((SECONDS - begin)) "${titles[$part]}" "${note:+: $note}"
  if [ "$part" = e ] && [ -e "$work/benchmark.json" ]; then
    sed -n '/^ *owt .*PyTorch/,$p' "$log"
  elif [ "$result" = FAIL ]; then
    tail -n 30 "$log" | sed 's/^/      | /'
  fi
  { echo "== $result $part ${titles[$part]}"; cat "$log"; } >>"$out/log.txt"
  printf '%s\t%s\t%s\t%s\t%s\n' "$part" "$result" $((SECONDS - begin)) "${titles[$part]}" "$note" >>"$work/parts"
}

write_results() {
  "$python" - "$work" "$out" "$("$owt" devices)" <<'END'
import json, pathlib, sys
work, out = map(pathlib.Path, sys.argv[1:3])
keys = ("part", "result", "seconds", "title", "note")
parts = [dict(zip(keys, line.split("\t"))) for line in (work / "parts").read_text().splitlines()]
for part in parts:
    part["seconds"] = int(part["seconds"])
results = {"devices": sys.argv[3].splitlines(), "parts": parts}
if (work / "benchmark.json").exists():
    results["benchmark"] = json.loads((work / "benchmark.json").read_text())
(out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
END
}

command -v "$python" >/dev/null || fail "no $python; install Python 3.11 or newer, or name one with --python"
find_programs
find_libraries
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR=$work OWT_SOURCE_DIR=$root OWT_PROGRAM=$owt
export OWT_CACHE=$work/plans  # plans are measured anew, not taken from the user's

"$owt" devices >"$work/devices" 2>&1 || fail "$owt does not start: $(head -n 1 "$work/devices")"
if [ "$device" = cuda ] && ! grep -q '^cuda:0' "$work/devices"; then
  fail "no GPU: $(grep '^cuda' "$work/devices" || echo 'owt devices lists none'); --cpu-dry-run tries this script on the CPU"
fi
if [ -z "$out" ]; then out=gpu-check-$(date +%Y%m%d-%H%M%S); fi
mkdir -p "$out" || fail "cannot make the folder $out; choose another --out"
out=$(cd "$out" && pwd)
: >"$out/log.txt"

gpu_tests='*cuda*:*Cuda*'
failed=false
SECONDS=0  # the limit is that of the parts, however long the program took to start
for part in "${order[@]}"; do
  [[ ,$parts, != *",$part,"* ]] || run_part "$part"
done
write_results
echo "$SECONDS s; logs and results.json are in $out"
if "$failed"; then exit 1; fi
