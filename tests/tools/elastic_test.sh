#!/usr/bin/env bash
# Tests owt launch --elastic: workers that are killed or stopped, that leave and that join. The others continue with the
# losses of an undisturbed run. Prints each case; exits 1 at the first that fails.
#
#   usage: elastic_test.sh OWT
#          elastic_test.sh OWT link RUN     a worker whose link goes down (virtual_hosts.sh); RUN is the undisturbed run
set -euo pipefail

owt=$(realpath "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR/../support
source "$here/../support/small_processes.sh"
# shellcheck source-path=SCRIPTDIR/../support
source "$here/../support/lanes.sh"
source "$here/../../tools/bench/virtual_hosts.sh"
export OMP_NUM_THREADS=1
work=$(mktemp -d)
job=
clean_up() {
  end_lanes
  [ -z "$job" ] || kill -KILL "$job" 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT
wrong() {
  echo "FAILED: $*" >&2
  [ ! -e "$work/out" ] || tail -n 20 "$work/out" | sed 's/^/  | /' >&2
  exit 1
}
passed() { echo "passed: $*"; }

# The mirror is renewed every 50 steps, and nothing is saved before the end. Layers are smooth, so rounding stays small.
train=("$owt" train "$small_recipe" --set run.log_every=25 --set run.eval_every_epochs=0
  --set run.checkpoint_every_epochs=0 --set run.checkpoint_every_steps=0 --set elastic.mirror_every=50
  --set schedule.max_steps=2000 --set optimizer.learning_rate=0.003 --set optimizer.momentum=0.9
  --set model.layer.1.type=avg_pool --set model.layer.3.type=activation --set model.layer.3.kind=gelu
  --set 'data.augment={ mean = "channel", std = "channel" }' --set parallel.timeout_s=2)
begin() {  # begin WORKERS MIN:MAX WORD...: in the background
  "$owt" launch --workers "$1" --elastic "$2" "${train[@]}" "${@:3}" --out "$work/run" >"$work/out" 2>&1 &
  job=$!
}
wait_for() {  # wait_for COMMAND...: until it succeeds, while the run continues
  until "$@"; do
    kill -0 "$job" 2>/dev/null || wrong "it ended too early"
    sleep 0.02
  done
}
has_step() { grep -qs "\"kind\":\"train\",\"step\":$1," "$work/run/metrics.jsonl"; }
worker() {  # worker N: the process that began as rank N
  local process
  for process in $(pgrep -P "$job"); do
    ! tr '\0' '\n' <"/proc/$process/environ" | grep -qx "RANK=$1" || echo "$process"
  done
}
ends_well() {
  local code=0
  wait "$job" || code=$?
  job=
  [ "$code" = 0 ] || wrong "exit code $code"
}
stops() {
  kill -TERM "$job"
  local code=0
  wait "$job" || code=$?
  job=
  [ "$code" = 75 ] || wrong "exit code $code"
}
# The first 2000 steps are there once, with the losses of the undisturbed run.
same_curve() {
  python3 - "$1/metrics.jsonl" "$undisturbed/metrics.jsonl" <<'PYTHON' || wrong "another curve"
import json, sys
def curve(path):
    return [(r["step"], r["loss"]) for r in map(json.loads, open(path)) if r["kind"] == "train" and r["step"] <= 2000]
ours, theirs = map(curve, sys.argv[1:])
assert [step for step, _ in ours] == [1, *range(25, 2001, 25)], [step for step, _ in ours]
worst = max(abs(a - b) for (_, a), (_, b) in zip(ours, theirs))
assert worst < 1e-4, worst
PYTHON
}
world() {  # world KEY: of the last record about the workers
  sed -n "s/.*\"kind\":\"world\".*\"$1\":\([^,}]*\).*/\1/p" "$work/run/metrics.jsonl" | tail -n 1
}

# The workers are on three hosts, the launcher on the first. The link comes back when the others have continued.
cut_off() {
  local line
  make_hosts 3 1gbit
  export virtual_hosts_output=$work
  ln -s out "$work/h1"
  line=$(printf '%q ' "$owt" launch --hosts 10.99.0.1,10.99.0.2,10.99.0.3 --ssh "$TMPDIR/by_address" --elastic 2:3 \
    "${train[@]}" --parallel owt-c --out "$work/run")
  "$TMPDIR/by_address" 10.99.0.1 "exec $line" &
  job=$!
  wait_for has_step 300
  ip link set v2 down
  # shellcheck disable=SC2317
  two_continue() { [ "$(world workers)" = 2 ]; }
  wait_for two_continue
  ip link set v2 up
  ends_well
  same_curve "$work/run"
  grep -qE '^rank 1 on h2 .* it has not answered for 2 s.*; 2 workers continue$' "$work/out" || wrong "it is not named"
  # Either the message of the launcher arrives, or only the end of the connection.
  grep -qE 'error: rank 1: (the other workers have given this one up: rank 1 on h2 .* has not answered for 2 s|'\
'rank [02] .* has not answered for 2 s.*; then the run at 10.99.0.1:29500 .*has given this worker up)' "$work/h2" ||
    wrong "the worker says: $(cat "$work/h2")"
  passed "a worker whose link is down is given up, and says so"
}
if [ "${2:-}" = link ]; then
  undisturbed=$3
  cut_off
  exit
fi
link() {
  if virtual_hosts_possible; then
    (enter_virtual_hosts "${BASH_SOURCE[0]}" "$owt" link "$undisturbed")
  else
    echo "skipped: a link that goes down"
  fi
}

undisturbed=$work/undisturbed
"${train[@]}" --workers 1 --out "$undisturbed" >"$work/out" 2>&1 || wrong "owt train on one worker"

killed() {  # killed STRATEGY RANK
  begin 3 2:3 --parallel "$1"
  wait_for has_step 300
  kill -KILL "$(worker "$2")"
  ends_well
  same_curve "$work/run"
  grep -qE "^rank $2 on .* was lost: its process has ended.*; 2 workers continue$" "$work/out" || wrong "it is not named"
  grep -q "2 workers continue from step .* by the state in memory" "$work/out" || wrong "not from memory"
  [ "$(world workers)" = 2 ] || wrong "metrics: $(world workers) workers"
  [ "$(world repeated)" -le 150 ] || wrong "$(world repeated) steps repeated"
  grep -q '"mirror":"every 50 steps a worker sends ' "$work/run/metrics.jsonl" || wrong "the mirror is not in the facts"
  passed "$1 continues without rank $2"
}

stopped() {
  begin 3 2:3 --parallel owt-c
  wait_for has_step 300
  kill -STOP "$(worker 1)"
  ends_well
  same_curve "$work/run"
  grep -q 'it has not answered for 2 s' "$work/out" || wrong "no reason"
  passed "a stopped worker is given up and ended"
}

# Nothing is repeated: the state of the step at which the worker leaves is in memory.
leaves() {
  begin 3 2:3 --parallel owt-d
  wait_for has_step 300
  kill -USR2 "$(worker 0)"
  ends_well
  same_curve "$work/run"
  grep -q '^this worker has left the run' "$work/out" || wrong "no word of the worker"
  [ "$(world repeated)" = 0 ] || wrong "$(world repeated) steps repeated"
  passed "rank 0 leaves in order"
}

joins() {
  begin 1 1:3 --parallel owt-a
  wait_for has_step 25
  address=$(sed -n 's/.*owt launch --join \([^ ]*\) .*/\1/p' "$work/out")
  # The first worker is stopped until both have come, so that the run does not end before.
  kill -STOP "$(worker 0)"
  "$owt" launch --join "$address" --workers 2 "${train[@]}" --parallel owt-a --out "$work/run" >"$work/joined" 2>&1 &
  joined=$!
  # shellcheck disable=SC2317
  all_have_come() {
    ! kill -0 "$joined" 2>/dev/null ||
      [ "$(grep -c ":$(printf %04X "${address##*:}") [0-9A-F:]* 01 " /proc/net/tcp)" = 3 ]
  }
  wait_for all_have_come
  kill -CONT "$(worker 0)"
  wait "$joined" || wrong "the workers that joined: $(cat "$work/joined")"
  ends_well
  same_curve "$work/run"
  [ "$(world workers)" = 3 ] || wrong "metrics: $(world workers) workers"
  [ "$(world repeated)" = 0 ] || wrong "$(world repeated) steps repeated"
  passed "two workers join one"
}

# Two neighbours that are asked at once leave one after the other, so nothing is repeated.
asked() {
  ln -s "$owt" "$work/owt"
  train[0]=$work/owt
  begin 3 1:4 --parallel owt-a --steps 1000000
  wait_for has_step 200
  ask() { "$owt" ask "$work/run" "$@" >"$work/asked" 2>&1 || wrong "owt ask $*: $(cat "$work/asked")"; }
  # shellcheck disable=SC2317
  has_workers() { "$owt" ask "$work/run" | grep -q "^$1 workers\?; 1 to 4 are allowed; step [0-9]* of 1000000$"; }
  wait_for has_workers 3
  ask --workers 1
  grep -qx '3 workers -> 1: the last 2 leave one after the other' "$work/asked" || wrong "$(cat "$work/asked")"
  wait_for has_workers 1
  ask --workers 3
  grep -qx '1 worker -> 3: 2 workers start on the host of owt launch' "$work/asked" || wrong "$(cat "$work/asked")"
  wait_for has_workers 3
  ask --workers 3
  grep -qx 'the run has 3 workers already' "$work/asked" || wrong "$(cat "$work/asked")"
  "$owt" ask "$work/run" --workers 5 >"$work/asked" 2>&1 && wrong "5 workers are too many"
  grep -q 'the run allows 1 to 4 workers' "$work/asked" || wrong "$(cat "$work/asked")"
  rm "$work/owt"
  ask --workers 4
  wait_for grep -q "another worker cannot be started: cannot run '$work/owt'" "$work/out"
  wait_for has_workers 3
  wait_for has_step 2000
  stops
  same_curve "$work/run"
  grep -q '"repeated":[1-9]' "$work/run/metrics.jsonl" && wrong "steps repeated"
  [ "$(world workers)" = 3 ] || wrong "metrics: $(world workers) workers"
  "$owt" ask "$work/run" >"$work/asked" 2>&1 && wrong "the run has ended"
  grep -q 'has ended: stopped' "$work/asked" || wrong "$(cat "$work/asked")"
  "$owt" "${train[@]:1}" --workers 1 --resume auto --steps 1 --out "$work/run" >"$work/resumed" 2>&1 ||
    wrong "it does not resume: $(cat "$work/resumed")"
  "$owt" ask "$work/run" >"$work/asked" 2>&1 && wrong "the run has no launcher any more"
  grep -q 'not started with owt launch --elastic' "$work/asked" || wrong "$(cat "$work/asked")"
  passed "workers leave and start when owt ask asks for another number"
}

# The run continues without it.
differs() {
  begin 1 1:2 --parallel owt-a --steps 1000000
  wait_for has_step 200
  address=$(sed -n 's/.*owt launch --join \([^ ]*\) .*/\1/p' "$work/out")
  "$owt" launch --join "$address" --workers 1 "${train[@]}" --parallel dp --out "$work/run" >"$work/joined" 2>&1 &&
    wrong "a worker with another strategy joins"
  grep -q 'recipe: rank 1 on .* has ' "$work/joined" || wrong "no difference: $(cat "$work/joined")"
  # shellcheck disable=SC2317
  alone_again() { [ "$(world workers)" = 1 ]; }
  wait_for alone_again
  stops
  passed "a worker with another recipe does not join"
}

too_few() {
  begin 2 2:2
  wait_for has_step 200
  kill -KILL "$(worker 1)"
  code=0
  wait "$job" || code=$?
  job=
  [ "$code" = 1 ] || wrong "exit code $code"
  grep -q '1 worker is left, and --elastic wants 2' "$work/out" || wrong "no reason"
  passed "too few workers end the run"
}

# The state would be lost with the last workers, so it is saved.
all_leave() {
  begin 2 1:2
  wait_for has_step 200
  kill -USR2 "$(worker 0)" "$(worker 1)"
  code=0
  wait "$job" || code=$?
  job=
  [ "$code" = 75 ] || wrong "exit code $code"
  grep -q '^stopped on a signal after step ' "$work/out" || wrong "no reason"
  [ -e "$work/run/checkpoints/latest" ] || wrong "no checkpoint"
  passed "a run that all workers leave is saved"
}

refused() {
  refuses() {  # refuses CODE TEXT WORD...
    local code=0
    "$owt" launch "${@:3}" >"$work/out" 2>&1 || code=$?
    [ "$code" = "$1" ] || wrong "'${*:3}': exit code $code"
    grep -q -- "$2" "$work/out" || wrong "'${*:3}': no line has '$2'"
  }
  refuses 2 'wanted MIN:MAX' --workers 2 --elastic 2 true
  refuses 2 'wanted MIN:MAX' --workers 2 --elastic 3:2 true
  refuses 2 'does not allow the 4 workers' --workers 4 --elastic 1:3 true
  refuses 2 'joins one' --workers 1 --elastic 1:2 --join localhost:1 true
  refuses 2 '--join' --hosts localhost --join localhost:1 true
  refuses 1 'cannot reach the run' --workers 1 --join localhost:1 "${train[@]}" --out "$work/run"
  for word in parallel.scale_lr=linear parallel.shares=[1,2] parallel.average_every=4; do
    refuses 1 'do not go together' --workers 2 --elastic 1:2 "${train[@]}" --out "$work/run" --set "$word"
  done
  refuses 1 'do not go together' --workers 2 --elastic 1:2 "${train[@]}" --out "$work/run" --parallel ps
  "$owt" "${train[@]:1}" --workers 2 --parallel pipeline --steps 1 --out "$work/stages" >"$work/out" 2>&1
  echo "127.0.0.1:1 run" >"$work/stages/roster"
  "$owt" ask "$work/stages" --workers 60 >"$work/out" 2>&1 && wrong "a pipeline of 60 stages"
  grep -q 'with 60 workers the run could not continue' "$work/out" || wrong "no reason"
  passed "what does not go together is refused"
}

beside killed dp 1
beside killed owt-a 0
beside killed dp-zero 2
beside killed mp 1
all_ended
lanes=()
beside stopped
beside leaves
beside joins
beside asked
beside differs
beside too_few
beside all_leave
beside refused
beside link
all_ended
