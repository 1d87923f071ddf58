#!/usr/bin/env bash
# Tests the program for the lowest processor level, without CUDA and MPI (owt_least in tests/CMakeLists.txt): it works,
# and reports what it lacks. In a package of it and of the program for this processor, the launcher runs each, with
# equal results. Prints each case; exits 1 at the first that fails, and 77 if the build has no such program.
#
#   usage: tests/tools/least_test.sh OWT      OWT: the program in its build folder
set -euo pipefail

owt=$(realpath "$1")
tests=$(dirname "$owt")/tests least=$(dirname "$owt")/tests/owt_least
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."  # the folder with the recipes
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset OWT_MAX_CPU ONEDNN_MAX_CPU_ISA
if [ ! -x "$least" ]; then
  echo "skipped: builds for other processors, and those with sanitizers, have no owt_least"
  exit 77
fi

wrong() {
  echo "FAILED: $*" >&2
  exit 1
}
says() {  # says WORDS COMMAND...: the command fails with these words
  local words=$1
  shift
  if "$@" >"$work/said" 2>&1; then wrong "$* succeeded"; fi
  grep -qF -- "$words" "$work/said" || wrong "$*: $(cat "$work/said")"
}

"$least" devices >"$work/devices"
for line in 'instructions of x86-64-v2$' '^cuda +none: .*built without the CUDA back-end' '^mpi +none: .*without MPI'; do
  grep -qE "$line" "$work/devices" || wrong "no line '$line': $(cat "$work/devices")"
done
"$least" prepare synthetic "$work/data" --train 40 --test 10 >/dev/null
train() { "$least" train quickstart --data "$work/data" --set data.batch=8 --steps 2 "$@"; }
says "built without the CUDA back-end" train --device cuda --out "$work/none"
OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 says "built without MPI" train --out "$work/none"
echo "passed: it says what it was built without"

train --workers 2 --out "$work/run" >"$work/said" 2>&1 || wrong "it does not train: $(cat "$work/said")"
"$least" eval "$work/run" --data "$work/data" >"$work/said" 2>&1 || wrong "it does not evaluate: $(cat "$work/said")"
echo "passed: it trains two workers and evaluates what they have learned"

"$least" launch --workers 2 "$least" train quickstart --data "$work/data" --set data.batch=8 --steps 2 \
  --out "$work/processes" >"$work/said" 2>&1 && grep -q 'communicate over TCP' "$work/said" ||
  wrong "it does not train two processes: $(cat "$work/said")"
echo "passed: it trains two processes"

mkdir -p "$work/usr/bin" "$work/usr/libexec"
cp "$tests/owt_launcher" "$work/usr/bin/owt"
ln -s "$owt" "$work/usr/libexec/owt-$("$owt" devices | sed -n 's/^cpu .*instructions of //p')"
ln -sf "$least" "$work/usr/libexec/owt-x86-64-v2"
tests/levels_test.sh "$work/usr/bin/owt"
