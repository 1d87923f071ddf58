#!/usr/bin/env bash
# Runs the programs of a build with OWT_CPU_LEVELS, or of tests/tools/least_test.sh, each under OWT_MAX_CPU. All must
# give the same losses up to rounding, in fp32 and bf16. Levels that this processor lacks are skipped and listed.
#
#   usage: tests/levels_test.sh OWT [LAYERS_TEST]
#
#   OWT           the launcher in its build folder, or in an installation
#   LAYERS_TEST   the program of this name in a build folder, to run the tests of the layers for each level too
set -euo pipefail

owt=$(realpath "$1") layers_test=${2:+$(realpath "$2")}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset OWT_MAX_CPU ONEDNN_MAX_CPU_ISA

wrong() {
  echo "FAILED: $*" >&2
  exit 1
}
level_of() { "$@" devices | sed -n 's/^cpu .*instructions of //p'; }
loss_of() {  # loss_of LEVEL PRECISION: of the fourth step
  local run=$work/$1-$2
  OWT_MAX_CPU=$1 "$owt" train quickstart --workers 1 --data "$work/data" --out "$run" --steps 4 --precision "$2" \
    --device cpu --lr 0.005 --set run.log_every=1 --set data.batch=16 >"$run.log" 2>&1 ||
    wrong "$1, $2: $(cat "$run.log")"
  sed -n 's/.*"kind":"train","step":4,.*"loss":\([0-9.e-]*\),.*/\1/p' "$run/metrics.jsonl"
}
expect_near() {  # expect_near WHAT FOUND WANTED TOLERANCE, relative to WANTED
  awk -v found="$2" -v wanted="$3" -v most="$4" \
    'BEGIN { d = found - wanted; exit !(wanted > 0 && d <= most * wanted && -d <= most * wanted) }' ||
    wrong "$1: the loss is $2, wanted $3"
}
test_layers() {  # test_layers LEVEL PROGRAM
  [ -z "$layers_test" ] || OWT_MAX_CPU=$1 "$2" --gtest_brief=1 || wrong "$1: tests of its layers"
}

"$owt" prepare synthetic "$work/data" --train 200 --test 20 >/dev/null
lowest=x86-64-v2
best=$(level_of "$owt")
fp32=$(loss_of $lowest fp32) bf16=$(loss_of $lowest bf16)
expect_near "$lowest, bf16" "$bf16" "$fp32" 0.005
test_layers $lowest "$layers_test"
reached=false
for level in x86-64-v3 x86-64-v4 avx512_bf16; do
  if "$reached" || [ "$best" = $lowest ]; then
    echo "skipped: $level, the best here is $best"
    continue
  fi
  [ "$level" != "$best" ] || reached=true
  program=$(dirname "$owt")/owt-$level
  [ -x "$program" ] || program=$(dirname "$(dirname "$owt")")/libexec/owt-$level
  if [ ! -x "$program" ]; then
    echo "skipped: $level, it is not in the build"
    continue
  fi
  [ "$(OWT_MAX_CPU=$level level_of "$owt")" = "$level" ] || wrong "$level is not what OWT_MAX_CPU=$level runs"
  expect_near "$level, fp32" "$(loss_of "$level" fp32)" "$fp32" 0.0001
  expect_near "$level, bf16" "$(loss_of "$level" bf16)" "$bf16" 0.002
  test_layers "$level" "$layers_test-$level"
  echo "passed: $level learns what $lowest learns"
done
