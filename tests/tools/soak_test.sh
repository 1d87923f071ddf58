#!/usr/bin/env bash
# Tests tools/bench/soak.sh: a round without namespaces, which passes; violations, which it must detect; wrong command
# lines. Prints each case; exits 1 at the first that fails.
#   usage: soak_test.sh PROGRAM
set -euo pipefail

owt=$(realpath "$1")
# shellcheck source-path=SCRIPTDIR/../support
source "$(dirname "${BASH_SOURCE[0]}")/../support/bench_cases.sh"

# metrics FILE STEP:LOSS...: lines of training steps.
metrics() {
  local file=$work/$1 each
  shift
  for each in "$@"; do echo "{\"kind\":\"train\",\"step\":${each%:*},\"epoch\":0,\"loss\":${each#*:}}"; done >"$file"
}
compare() { ends_with "$1" "$bench/soak.py" compare "$work/run" "$work/reference" "${@:2}"; }

case_name="a curve that follows the reference passes with its worst difference"
metrics reference 1:2.0 2:1.0 3:0.5
metrics run 1:2.0 2:1.00001
compare 0 whole
expect '^1.0e-05 2$'
passed

case_name="other losses, lost steps, steps twice and torn lines are violations"
metrics run 1:2.0 2:1.001
compare 1
expect 'the loss of step 2 is 1.001, that of the undisturbed run 1.0'
metrics run 1:2.0 2:NaN
compare 1
metrics run 1:2.0 3:0.5
compare 1
expect 'step 3 comes after 1 lines'
metrics run 1:2.0 2:1.0 2:1.0
compare 1
expect 'step 2 comes after 2 lines'
metrics run 1:2.0
printf '{"kind":"tra' >>"$work/run"
compare 0
compare 1 whole
expect 'the last line is cut off'
printf 'in\n{"kind":"train","step":2,"epoch":0,"loss":1.0}\n' >>"$work/run"
compare 1
expect 'line 2 is no JSON object'
metrics run 1:2.0
echo '{"kind":"eval","step":2,"loss":1.0}' >>"$work/run"
compare 1
expect 'evaluation of step 2'
passed

case_name="a wrong command line ends with 2 and says what is wrong"
for words in "--sed 1" "--kinds burn" "--rounds" "many"; do
  # shellcheck disable=SC2086
  ends_with 2 "$bench/soak.sh" --owt "$owt" $words
  expect '^soak: error: '
done
passed

if ! command -v mpirun >/dev/null || ! "$owt" devices | grep -q '^mpi .*Open MPI'; then
  echo "skipped: a round: no mpirun, or owt is built without MPI"
  exit 0
fi
# The reasons are in tests/support/small_processes.sh.
export OMPI_MCA_pml=ob1 ONEDNN_MAX_CPU_ISA=AVX2
# Patient, since the machine may be busy.
soak() {  # soak STATUS PROGRAM SEED LEGS KINDS
  ends_with "$1" "$bench/soak.sh" --owt "$2" --rounds 1 --seed "$3" --legs "$4" --kinds "$5" --timeout 60 --grace 120 \
    --keep "$work/kept"
}
# sabotage NAME COMMANDS: a program that runs these first.
sabotage() {
  printf '#!/bin/sh\n%s\nexec "%s" "$@"\n' "$2" "$owt" >"$work/$1"
  chmod +x "$work/$1"
}

case_name="a run that is killed and stopped by a signal goes on"
soak 0 "$owt" 1 2 "kill term"
expect '^kill .* 1 '
expect '^term .* 1 '
expect '^finish .* 1 '
[ ! -e "$work/kept" ] || wrong "something was kept"
passed

case_name="processes that learn something else are a violation, kept with its seed"
# shellcheck disable=SC2016
sabotage other_seed 'if [ "$1" = train ] && [ -n "$OMPI_COMM_WORLD_RANK" ]; then set -- "$@" --set run.seed=6; fi'
soak 1 "$work/other_seed" 7 0 "finish"
expect '^FAILED: round 1, seed 7, leg 1 \(finish, .*: the loss of step 1 is '
expect "^once more: tools/bench/soak.sh --seed 7 "
[ -e "$work/kept/disk/run/metrics.jsonl" ] || wrong "the run folder was not kept"
passed
