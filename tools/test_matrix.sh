#!/usr/bin/env bash
# Runs the tests of the libraries under other conditions than tools/test.sh: lower processor levels, other numbers of
# threads, another user, builds for each processor level, and builds without CUDA, MPI or ONNX. Prints a
# table with the passed, failed and skipped tests of each row, and the reasons. Exits 1 if a test failed or was skipped
# without a reason.
#
#   usage: tools/test_matrix.sh [ROW]...      default: all rows
#
# Rows of the build in build/, which tools/test.sh makes (BUILD=FOLDER: another build). The first four limit owt and
# oneDNN to a processor level by environment variables:
#   x86-64-v2 x86-64-v3 x86-64-v4 avx512_bf16 threads-1 threads-2 threads-4 `root` `nobody`
# Rows with a build in build-matrix/, compiled for a level; three of them are built without a library:
#   build-x86-64-v2 (without CUDA) build-x86-64-v3 (MPI) build-x86-64-v4 (ONNX) build-avx512_bf16
#
# The output of a row is kept in build-matrix/ROW.log (RESULTS=FOLDER: another folder). PROGRAMS="core layers": only the
# tests of these folders.
set -uo pipefail

if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
  sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"
  exit
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
source tools/parts.sh
build=$(realpath "${BUILD:-build}") results=${RESULTS:-$PWD/build-matrix}
levels="x86-64-v2 x86-64-v3 x86-64-v4 avx512_bf16"
programs=${PROGRAMS:-core layers net parallel train}
rows=("$@")
[ $# -gt 0 ] || rows=($levels threads-1 threads-2 threads-4 root nobody $(printf 'build-%s ' $levels))
unset OWT_MAX_CPU ONEDNN_MAX_CPU_ISA OMP_NUM_THREADS OMP_THREAD_LIMIT
export OMP_WAIT_POLICY=PASSIVE OWT_CACHE=$work/plans
mkdir -p "$results"

onednn_name() {
  case $1 in
    x86-64-v2) echo SSE41 ;;
    x86-64-v3) echo AVX2 ;;
    x86-64-v4) echo AVX512_CORE ;;
    avx512_bf16) echo AVX512_CORE_BF16 ;;
  esac
}

# tests BUILD COMMAND...: runs each test program of the build by the command; fails if one crashed
tests() {
  local build=$1 program crashed=0
  shift
  for program in $programs; do
    "$@" "$build/tests/${program}_test" || ended_well $? || crashed=1
    program=$build/tests/simulated_gpu/${program}_test_on_simulated_gpu
    [ ! -x "$program" ] || "$@" "$program" --gtest_filter='*cuda*:*Cuda*' || ended_well $? || crashed=1
  done
  return $crashed
}
# GoogleTest exits with 1 if a test failed, which the log shows.
ended_well() { [ "$1" = 1 ] || { echo "FAILED: it ended with $1" && return 1; }; }

# Another user reads the build, and works in a home of its own, also for temporary files.
as_nobody() {
  [ "$(id -u)" = 0 ] || { echo "skipped: only root can become another user" && return 77; }
  local home=$work/nobody
  mkdir -p "$home" && chmod 755 "$work" && chown nobody "$home" &&
    tests "$build" runuser -u nobody -- env --chdir="$home" HOME="$home" TMPDIR="$home" OWT_CACHE="$home/plans"
}

own_build() {  # own_build LEVEL: builds the program and the test programs for the level, and runs these
  local level=$1 folder=$results/$1 options targets
  options=$(sed -n "s/^set(options_of_$level \(.*\))$/\1/p" CMakeLists.txt)
  local -A without=([x86-64-v2]=CUDA [x86-64-v3]=MPI [x86-64-v4]=ONNX)
  cmake --preset release -B "$folder" -DOWT_TESTS=ON -DOWT_NATIVE=OFF -DCMAKE_CXX_FLAGS="${options:--march=$level}" \
    ${without[$level]:+-DOWT_${without[$level]}=OFF} || return
  targets=$(cmake --build "$folder" --target help |
    sed -nE "s/^((${programs// /|})_test(_on_simulated_gpu)?): .*/\1/p")
  cmake --build "$folder" -j 2 --target owt $targets && tests "$folder"
}

row() {  # row NAME
  case $1 in
    threads-*) OMP_NUM_THREADS=${1#threads-} tests "$build" env ;;
    root) if [ "$(id -u)" = 0 ]; then tests "$build" env; else echo "skipped: the user is not root" && return 77; fi ;;
    nobody) as_nobody ;;
    build-*) own_build "${1#build-}" ;;
    *) OWT_MAX_CPU=$1 ONEDNN_MAX_CPU_ISA=$(onednn_name "$1") tests "$build" env ;;
  esac
}
has_level() {  # has_level LEVEL: whether the processor has the level
  local best
  best=$("$build/owt" devices | sed -n 's/^cpu .*instructions of //p')
  [[ " ${levels%"$best"*}$best " == *" $1 "* ]]
}
# count WORD LOG: the number of tests that the summaries of the programs give for WORD
count() { awk -v word="$1" '$1 == "[" && $2 == word && $4 ~ /^[0-9]+$/ { n += $4 } END { print n + 0 }' "$2"; }

failed=0 logs=()
printf '%-20s %8s %8s %8s %8s\n' row passed failed skipped seconds
for name in "${rows[@]}"; do
  log=$results/$name.log begin=$SECONDS status=0 level=${name#build-}
  if [[ " $levels " == *" $level "* ]] && ! has_level "$level"; then
    echo "$name: skipped, the processor has less"
    continue
  fi
  row "$name" >"$log" 2>&1 || status=$?
  if [ $status = 77 ]; then
    echo "$name: $(tail -n 1 "$log")"
    continue
  fi
  wrong=$(($(count FAILED "$log") + $(grep -c '^FAILED: it ended' "$log")))
  printf '%-20s %8s %8s %8s %8s\n' \
    "$name" "$(count PASSED "$log")" "$wrong" "$(count SKIPPED "$log")" $((SECONDS - begin))
  logs+=("$log")
  if [ "$wrong" != 0 ] || [ $status != 0 ]; then
    failed=1
    first_failing_lines "$log" | head -n 30
  fi
done
[ ${#logs[@]} = 0 ] || awk '
  /: Skipped$/ { getline; ++reasons[$0 == "" ? "FAILED: no reason is given" : $0]; none += $0 == ""; ++skipped }
  END {
    if (skipped) print "\nskipped, and why:"
    for (reason in reasons) printf "%8d  %s\n", reasons[reason], reason
    exit none > 0
  }
' "${logs[@]}" || failed=1
exit $failed
