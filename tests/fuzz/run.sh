#!/usr/bin/env bash
# Builds the fuzz targets and runs each for a while, from the seeds of the tree and the inputs found by earlier runs.
#
#   usage: tests/fuzz/run.sh [SECONDS] [TARGET]...     SECONDS for each target, 20 by default; TARGETS: shard_index ...
#
# SEED=N: other random numbers than SEED=1. Build and corpora are in build-fuzz/. If a target fails, its input is in
# build-fuzz/found/, and this script exits with 1; build-fuzz/TARGET_fuzz FILE reproduces the failure. To fix it, add
# the input to tests/fuzz/seeds, so that fuzz_test (replay_test.cpp) reads it. Needs Clang with libFuzzer;
# tools/packages.sh lists the packages.
set -euo pipefail

if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
  sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
  exit 0
fi
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seconds=${1:-20}
shift || true
build=build-fuzz

compiler=$(command -v clang++-14 || command -v clang++ || true)
if [ -z "$compiler" ]; then
  echo "fuzz: error: Clang is not installed; tools/packages.sh names its packages" >&2
  exit 1
fi
cmake -S tests/fuzz -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=10 >"$build.log" 2>&1 || {
  cat "$build.log" >&2
  exit 1
}
mv "$build.log" "$build/cmake.log"
cmake --build "$build" -j 2

targets=("$@")
if [ "${#targets[@]}" = 0 ]; then
  for source in tests/fuzz/*_fuzz.cpp; do
    name=$(basename "$source")
    targets+=("${name%_fuzz.cpp}")
  done
fi

# Prints the seeds of a target, files of the tree.
seeds() {
  case $1 in
    config) ls configs/*.toml configs/models/*.toml tests/fuzz/seeds/*.toml ;;
    *) find tests/fuzz/seeds -name "$1*" ;;
  esac
}

fuzz() {  # fuzz TARGET
  local target=$1 corpus=$build/corpus/$1 log=$build/$1.log dictionary=()
  mkdir -p "$corpus"
  seeds "$target" | while read -r seed; do cp "$seed" "$corpus/seed-$(basename "$seed")"; done
  [ ! -f "tests/fuzz/$target.dict" ] || dictionary=(-dict="tests/fuzz/$target.dict")
  "$build/${target}_fuzz" -seed="${SEED:-1}" -max_total_time="$seconds" -timeout=5 -rss_limit_mb=2048 \
    -max_len=65536 -print_final_stats=1 "${dictionary[@]}" -artifact_prefix="$build/found/$target-" "$corpus" \
    >"$log" 2>&1 || {
    grep -v 'NEW\|REDUCE\|pulse' "$log" | tail -40 >&2
    echo "fuzz: error: $target failed, see $log; show it again with $build/${target}_fuzz and the file in $build/found" >&2
    return 1
  }
  echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs in $seconds s, nothing found"
}

# Two at a time, as everything here is built for at least two cores.
mkdir -p "$build/found"
failed=0
for target in "${targets[@]}"; do
  [ "$(jobs -rp | wc -l)" -lt 2 ] || wait -n || failed=1
  fuzz "$target" &
done
while [ -n "$(jobs -p)" ]; do wait -n || failed=1; done
exit "$failed"
