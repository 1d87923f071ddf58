#!/usr/bin/env bash
# Tests how tools/quickstart.sh calls cmake and owt, in a tree where both only record their arguments. Prints each case;
# exits 1 at the first that fails.
set -euo pipefail

tools=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/tools
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

program() {  # program PATH COMMANDS
  printf '#!%s\n%s\n' "$(command -v bash)" "$2" >"$1"
  chmod +x "$1"
}
begin() {  # a fresh tree, and another folder to call from
  case_name=$1
  rm -rf "$work/tree" "$work/bin" "$work/elsewhere"
  mkdir -p "$work/tree/tools" "$work/tree/build" "$work/bin" "$work/elsewhere"
  cp "$tools/quickstart.sh" "$tools/packages.sh" "$work/tree/tools/"
  : >"$work/calls"
  program "$work/bin/dpkg-query" 'printf " installed "'
  program "$work/bin/cmake" "echo \"cmake \$*\" >>'$work/calls'"
  program "$work/tree/build/owt" "echo \"owt \$*\" >>'$work/calls'"
}
quickstart() {
  (cd "$work/elsewhere" && PATH=$work/bin:$PATH "$work/tree/tools/quickstart.sh" "$@" >"$work/output" 2>&1) ||
    wrong "it ended with $?"
}
wrong() {
  echo "FAILED: $case_name: $*" >&2
  sed 's/^/  | /' "$work/output" "$work/calls" >&2
  exit 1
}
expect_call() { grep -qE -- "$1" "$work/calls" || wrong "no call matches '$1'"; }
expect_no_call() { if grep -qE -- "$1" "$work/calls"; then wrong "a call matches '$1'"; fi; }
cifar10_in() {
  mkdir -p "$1"
  echo x >"$1/data_batch_1.bin"
  echo x >"$1/test_batch.bin"
}
passed() { echo "passed: $case_name"; }
unset OWT_DATA

begin "it configures, builds and trains, from any folder"
quickstart
tree=$work/tree
expect_call "^cmake -S $tree --preset release"
expect_call "^cmake --build $tree/build --target owt"
expect_call "^owt train $tree/configs/quickstart.toml --timing --out $tree/runs/quickstart-[0-9-]+$"
grep -q "owt eval .*tree/runs/quickstart-[0-9-]*$" "$work/output" || wrong "it does not say how to evaluate the run"
grep -q "owt report .*tree/runs/quickstart-[0-9-]*$" "$work/output" || wrong "it does not name the page of the run"
passed

begin "the data set in \$OWT_DATA is used"
cifar10_in "$work/elsewhere/mine/cifar-10-batches-bin"
OWT_DATA=mine quickstart
expect_call "^owt train .* --data mine "
passed

begin "a data set in ./datasets is used"
cifar10_in "$work/elsewhere/datasets"
quickstart
expect_call "^owt train .* --data datasets "
passed

begin "a data set in the clone is used"
cifar10_in "$work/tree/datasets/cifar-10-batches-bin"
quickstart
expect_call "^owt train .* --data $tree/datasets "
passed

begin "further arguments reach owt train, and take the place of its own"
quickstart --workers 4 --data=there --out here
expect_call "^owt train $tree/configs/quickstart.toml --timing --workers 4 --data=there --out here$"
grep -q "owt eval here --data there$" "$work/output" || wrong "it does not say how to evaluate that run on those data"
passed

begin "with an NVIDIA driver the choice is that of cmake"
program "$work/bin/nvidia-smi" 'true'
quickstart
expect_no_call "OWT_CUDA"
passed

if [ ! -e /proc/driver/nvidia/version ] && ! command -v nvidia-smi >/dev/null; then
  begin "without an NVIDIA driver it builds for the CPU and says how to change that"
  quickstart
  expect_call "^cmake -S $tree --preset release -DOWT_TESTS=OFF -DOWT_CUDA=OFF$"
  grep -q "No NVIDIA driver.*-DOWT_CUDA=ON" "$work/output" || wrong "it does not say so"
  passed
fi

begin "what build/ was configured with is kept"
echo "OWT_CUDA:BOOL=ON" >"$work/tree/build/CMakeCache.txt"
quickstart
expect_no_call "OWT_CUDA"
passed

begin "what the build prints is not shown"
program "$work/bin/cmake" 'echo "many lines"'
quickstart
if grep -q "many lines" "$work/output"; then wrong "it is shown"; fi
passed

begin "where the build fails its output is shown, and nothing is trained"
program "$work/bin/cmake" 'case $1 in --build) echo "no semicolon"; exit 3 ;; esac'
if (quickstart) 2>/dev/null; then wrong "it succeeded"; fi
grep -q "no semicolon" "$work/output" || wrong "the output of the build is missing"
expect_no_call "owt"
passed

begin "where cmake fails it says so and stops"
program "$work/bin/cmake" 'echo "no compiler"; exit 3'
if (quickstart) 2>/dev/null; then wrong "it succeeded"; fi
grep -q "no compiler" "$work/output" || wrong "the output of cmake is missing"
expect_no_call "owt"
passed
