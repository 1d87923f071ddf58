#!/usr/bin/env bash
# Tests owt train --tolerate-loss: workers with separate servers are killed and stopped, and the others finish with
# their rows. The loss of a server, or of a worker without --tolerate-loss, ends all. Prints each case; exits 1 at the
# first that fails.
#
#   usage: tolerate_loss_test.sh PROGRAM
#
# Skipped without mpirun, or with a program built without MPI.
set -euo pipefail

owt=$(realpath "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR/../support
source "$here/../support/bench_cases.sh"
# shellcheck source-path=SCRIPTDIR/../../tools/bench
source "$here/../../tools/bench/ranks.sh"
# shellcheck source-path=SCRIPTDIR/../support
source "$here/../support/small_processes.sh"
export OWT_TEST_MARK=$ranks_mark
mpirun_pid=

if ! command -v mpirun >/dev/null || ! grep -q libmpi <<<"$(ldd "$owt")"; then
  echo "skipped: no mpirun, or the program was built without MPI"
  exit 77
fi

# If a case fails, no process may remain.
clean_up() {
  if [ -n "$mpirun_pid" ]; then kill -KILL "$mpirun_pid" 2>/dev/null || true; fi
  kill_ranks
  rm -rf "$work"
}
trap clean_up EXIT

# 178 steps are an epoch, and all meet at its end and every 100 steps.
train=("$owt" train "$small_recipe" --out "$work/run" --threads 1 --parallel ps --set ps.servers=1
  --set data.train_images=4800 --set data.batch=27 --set run.log_every=1 --set run.eval_every_epochs=0
  --set run.checkpoint_every_steps=100 --set schedule.max_steps=500)

begin() {  # begin WORD...: of owt, in four processes, the last of which serves
  rm -rf "$work/run"
  mpirun --enable-recovery -np 4 "${train[@]}" "$@" >"$work/output" 2>&1 &
  mpirun_pid=$!
}

step() {
  local last
  last=$({ tail -n 1 "$work/run/metrics.jsonl" || true; } 2>/dev/null)
  sed -n 's/.*"kind":"train","step":\([0-9]*\).*/\1/p' <<<"$last"
}

wait_for_step() {
  local begun=$SECONDS now=
  until [ "${now:-0}" -ge "$1" ]; do
    kill -0 "$mpirun_pid" 2>/dev/null || wrong "it ended too early"
    [ $((SECONDS - begun)) -lt 300 ] || wrong "there is no step $1"
    sleep 0.05
    now=$(step)
  done
}

ended() {
  local begun=$SECONDS
  while kill -0 "$mpirun_pid" 2>/dev/null; do
    [ $((SECONDS - begun)) -lt 300 ] || wrong "it does not end"
    sleep 0.1
  done
  wait "$mpirun_pid" || true
  mpirun_pid=
}

# A loss while all meet ends the run, and names the collective: then the case is begun again.
met() { grep -q 'owt: error: .*rank . on .* was lost: .*; \(during\|after\) [a-z_]*, step' "$work/output"; }

# goes_on_with K: K workers have made a few steps together, after the first record with K.
goes_on_with() {
  local begun=$SECONDS from=
  until [ -n "$from" ] && [ "$(step)" -ge $((from + 3)) ]; do
    if met || ! kill -0 "$mpirun_pid" 2>/dev/null; then return 1; fi
    [ $((SECONDS - begun)) -lt 300 ] || wrong "there are no $1 workers"
    sleep 0.05
    [ -n "$from" ] || ! grep -q "^$1 workers x" "$work/output" || from=$(step)
  done
}

has_all_steps() {
  python3 - "$work/run/metrics.jsonl" <<'END' || wrong "not every step is there once"
import json, sys
steps = [record["step"] for record in map(json.loads, open(sys.argv[1])) if record["kind"] == "train"]
sys.exit(steps != list(range(1, 501)))
END
}

case_name="mpirun would end all the same, or the worker has a share of the weights: refused"
if grep -q '(Open MPI) 4' <<<"$(mpirun --version)"; then
  ends_with 1 mpirun -np 4 "${train[@]}" --tolerate-loss
  expect 'owt: error: mpirun ends all processes .* --enable-recovery'
fi
ends_with 1 "${train[@]}" --workers 3 --tolerate-loss --set ps.servers=0
expect 'needs separate servers'
ends_with 2 "$owt" train "$small_recipe" --out "$work/run" --workers 3 --parallel dp --tolerate-loss
expect 'needs a parameter server'
passed

for rules in ps.delay=0 ps.delay=4 "ps.delay=2 --set ps.pushes=0"; do
  case_name="two of three workers are killed: the others go on to the end ($rules)"
  for attempt in 1 2 3 4 5; do
    # shellcheck disable=SC2086
    begin --tolerate-loss --set $rules
    wait_for_step 2
    kill -KILL "$(pid_of_rank 1)"
    if goes_on_with 3; then kill -KILL "$(pid_of_rank 2)"; fi
    ended
    met || break
    echo "attempt $attempt: lost while all met"
  done
  expect 'warning: rank 1 on .* was lost: its process has ended; training continues without it'
  expect 'warning: rank 2 on .* was lost: its process has ended; training continues without it'
  expect '27 images per step, 14 \+ 13 \+ 0 per worker'
  expect '27 images per step, 27 \+ 0 per worker'
  expect '^test accuracy'
  has_all_steps
  passed
done

case_name="two workers are stopped: they are given up; one ends when it goes on, the other is killed in the end"
for attempt in 1 2 3 4 5; do
  begin --tolerate-loss --set parallel.timeout_s=2
  wait_for_step 2
  pid=$(pid_of_rank 2) stopped=$(pid_of_rank 1)
  kill -STOP "$pid"
  if goes_on_with 3; then kill -STOP "$stopped"; fi
  kill -CONT "$pid"
  ended
  met || break
  echo "attempt $attempt: lost while all met"
done
expect 'warning: rank 1 on .* (makes no progress|was lost): '
expect 'warning: rank 2 on .* (makes no progress|was lost): '
expect 'owt: error: rank 2: the other ranks have given this one up'
expect '^test accuracy'
has_all_steps
passed

case_name="a server is killed: all end, and name it"
begin --tolerate-loss
wait_for_step 2
kill -KILL "$(pid_of_rank 3)"
ended
expect 'owt: error: rank 3 on .* was lost: its process has ended'
expect_none '^test accuracy'
passed

case_name="a worker is killed that is not gone on without: all end, and name it"
begin
wait_for_step 2
kill -KILL "$(pid_of_rank 1)"
ended
expect 'owt: error: rank 1 on .* was lost: its process has ended'
expect_none '^test accuracy'
passed
