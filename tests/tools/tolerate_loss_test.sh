#!/usr/bin/env bash
# Tests owt train --tolerate-loss: workers with separate servers are killed and stopped, and the others finish with
# their rows. The loss of a server, or of a worker without --tolerate-loss, ends all. Prints each case; exits 1 if one
# has failed.
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
# shellcheck source-path=SCRIPTDIR/../support
source "$here/../support/lanes.sh"
mpirun_pid=

if ! command -v mpirun >/dev/null || ! grep -q libmpi <<<"$(ldd "$owt")"; then
  echo "skipped: no mpirun, or the program was built without MPI"
  exit 77
fi

# If a case fails, no process may remain.
clean_up() {
  end_lanes
  if [ -n "$mpirun_pid" ]; then kill -KILL "$mpirun_pid" 2>/dev/null || true; fi
  kill_ranks
  rm -rf "$work"
}
trap clean_up EXIT

with_ranks() {  # with_ranks COMMAND...: runs in a lane, with separate ranks
  ranks_mark+=-$lane
  export OWT_TEST_MARK=$ranks_mark
  # 80 steps are an epoch, at whose end all meet.
  train=("$owt" train "$small_recipe" --out "$work/run" --threads 1 --parallel ps --set ps.servers=1
    --set data.train_images=2160 --set data.batch=27 --set run.log_every=1 --set run.eval_every_epochs=0
    --set run.checkpoint_every_steps=80 --set schedule.max_steps=240)
  "$@"
}

begin() {  # begin WORD...: of owt, in four processes, the last of which serves
  rm -rf "$work/run" "$work"/process.*
  # shellcheck disable=SC2016
  mpirun --enable-recovery -np 4 sh -c 'echo $$ >"$0/process.$OMPI_COMM_WORLD_RANK"; exec "$@"' "$work" \
    "${train[@]}" "$@" >"$work/output" 2>&1 &
  mpirun_pid=$!
  workers=4 step=0 begun=$SECONDS
  until [ -e "$work/run/metrics.jsonl" ]; do rest || wrong "it ended too early"; done
  exec {metrics}<"$work/run/metrics.jsonl" {output}<"$work/output"
}

# What waits for a moment of the run starts no process, because on a busy machine the run would be over before.
exec {nothing}<> <(:)
rest() {  # for a moment; fails if mpirun has ended
  [ $((SECONDS - begun)) -lt 300 ] || wrong "it is at step $step after 300 s, with $workers workers"
  read -rt 0.02 -u "$nothing" || true
  kill -0 "$mpirun_pid" 2>/dev/null
}

read_on() {  # the latest step, and how many workers train
  local line
  while read -r line; do
    [[ ! $line =~ '"kind":"train","step":'([0-9]+) ]] || step=${BASH_REMATCH[1]}
  done <&"$metrics"
  while read -r line; do
    [[ ! $line =~ ^([0-9])' workers x' ]] || workers=${BASH_REMATCH[1]}
  done <&"$output"
}

wait_for_step() {
  until read_on && [ "$step" -ge "$1" ]; do rest || wrong "it ended too early"; done
}

# goes_on_with K: waits until K workers have made a few steps together; fails if the run ends before.
goes_on_with() {
  local from=
  until read_on && [ -n "$from" ] && [ "$step" -ge $((from + 3)) ]; do
    rest || return 1
    [ "$workers" != "$1" ] || from=${from:-$step}
  done
}
process() { cat "$work/process.$1"; }

ended() {
  while rest; do :; done
  wait "$mpirun_pid" || true
  mpirun_pid=
}

# Ends an attempt. It fails if the losses came too late, or while all met, which ends the run and names the collective.
in_time() {
  ended
  ! grep -q 'owt: error: .*rank . on .* was lost: .*; \(during\|after\) [a-z_]*, step' "$work/output" &&
    grep -q '^2 workers x' "$work/output"
}

has_all_steps() {
  python3 - "$work/run/metrics.jsonl" <<'END' || wrong "not every step is there once"
import json, sys
steps = [record["step"] for record in map(json.loads, open(sys.argv[1])) if record["kind"] == "train"]
sys.exit(steps != list(range(1, 241)))
END
}

refused() {
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
}

killed() {  # killed OPTION...: the rules of the server
  case_name="two of three workers are killed: the others go on to the end ($*)"
  local attempt
  for attempt in 1 2 3 4 5; do
    begin --tolerate-loss "$@"
    wait_for_step 2
    kill -KILL "$(process 1)"
    if goes_on_with 3; then kill -KILL "$(process 2)" || true; fi
    if in_time; then break; fi
    echo "attempt $attempt: lost too late, or while all met"
  done
  expect 'warning: rank 1 on .* was lost: its process has ended; training continues without it'
  expect 'warning: rank 2 on .* was lost: its process has ended; training continues without it'
  expect '27 images per step, 14 \+ 13 \+ 0 per worker'
  expect '27 images per step, 27 \+ 0 per worker'
  expect '^test accuracy'
  has_all_steps
  passed
}

stopped() {
  case_name="two workers are stopped: they are given up; one ends when it goes on, the other is killed in the end"
  local attempt
  for attempt in 1 2 3 4 5; do
    begin --tolerate-loss --set parallel.timeout_s=2
    wait_for_step 2
    kill -STOP "$(process 2)"
    if goes_on_with 3; then kill -STOP "$(process 1)" || true; fi
    kill -CONT "$(process 2)"
    if in_time; then break; fi
    echo "attempt $attempt: stopped too late, or while all met"
  done
  expect 'warning: rank 1 on .* (makes no progress|was lost): '
  expect 'warning: rank 2 on .* (makes no progress|was lost): '
  expect 'owt: error: rank 2: the other ranks have given this one up'
  expect '^test accuracy'
  has_all_steps
  passed
}

ends_all() {  # ends_all NAME RANK OPTION...: the loss of this rank
  case_name="$1 is killed: all end, and name it"
  begin "${@:3}"
  wait_for_step 2
  kill -KILL "$(process "$2")"
  ended
  expect "owt: error: rank $2 on .* was lost: its process has ended"
  expect_none '^test accuracy'
  passed
}
ended_runs() {
  refused
  ends_all "a server" 3 --tolerate-loss
  ends_all "a worker that is not gone on without" 1
}

beside with_ranks stopped
beside with_ranks killed --set ps.delay=0
beside with_ranks killed --set ps.delay=4
beside with_ranks killed --set ps.delay=2 --set ps.pushes=0
beside with_ranks ended_runs
all_ended
