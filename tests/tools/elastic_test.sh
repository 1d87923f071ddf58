#!/usr/bin/env bash
# Tests tools/elastic.sh: a run that loses a process finishes with the others; too few processes, a recipe that cannot
# be trained, a stop by signal and wrong command lines. Prints each case; exits 1 if one has failed.
#
#   usage: elastic_test.sh PROGRAM
#
# Without mpirun, or with a program built without MPI, only the command lines are tested. The case of a host that cannot
# be reached is skipped if there can be no virtual hosts.
set -euo pipefail

owt=$(realpath "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR/../support
source "$here/../support/bench_cases.sh"
# shellcheck source-path=SCRIPTDIR/../../tools/bench
source "$here/../../tools/bench/ranks.sh"
# shellcheck source-path=SCRIPTDIR/../support
source "$here/../support/small_processes.sh"
# shellcheck source-path=SCRIPTDIR/../../tools/bench
source "$here/../../tools/bench/virtual_hosts.sh"
# shellcheck source-path=SCRIPTDIR/../support
source "$here/../support/lanes.sh"
elastic=$here/../../tools/elastic.sh
elastic_pid=

# If a case fails, no process may remain.
clean_up() {
  end_lanes
  if [ -n "$elastic_pid" ]; then kill -KILL "$elastic_pid" 2>/dev/null || true; fi
  kill_ranks
  rm -rf "$work"
}
trap clean_up EXIT

wrong_lines() {
  case_name="wrong command lines end with one line"
  for line in "" "$owt" "--hosts" "--most 3 $owt train x --out y" "--least none $owt train x --out y" \
    "--grace soon $owt train x --out y" \
    "$owt eval x --out y" "$owt train x" "$owt train x --out y --resume auto" "--hosts a:1,b $owt train x --out y" \
    "--hosts a:1,a:2 $owt train x --out y" \
    "--mpirun no-such-program $owt train x --out y"; do
    # shellcheck disable=SC2086
    ends_with 1 "$elastic" $line
    [ "$(wc -l <"$work/output")" = 1 ] || wrong "'$line' printed more than a line"
    expect '^elastic: error: '
  done
  ends_with 0 "$elastic" --help
  expect 'usage: tools/elastic.sh'
  passed
}
[ "${2:-}" = link ] || beside wrong_lines

if ! command -v mpirun >/dev/null || ! grep -q libmpi <<<"$(ldd "$owt")"; then
  all_ended
  echo "skipped: no mpirun, or the program was built without MPI"
  exit 0
fi

with_ranks() {  # with_ranks COMMAND...: runs in a lane, with separate ranks
  ranks_mark+=-$lane
  export OWT_TEST_MARK=$ranks_mark
  # Three workers have 10 + 9 + 9 rows of a step.
  train=("$owt" train "$small_recipe" --out "$work/run" --threads 1 --set parallel.timeout_s=5 --set run.log_every=1
    --set run.eval_every_epochs=0 --set data.batch=28)
  "$@"
}

begin() {  # begin OPTION...: options of elastic.sh, and after `--` further arguments for owt
  local options=() words=()
  while [ $# -gt 0 ] && [ "$1" != -- ]; do options+=("$1") && shift; done
  [ $# -eq 0 ] || words=("${@:2}")
  rm -rf "$work/run"
  "$elastic" "${options[@]}" "${train[@]}" "${words[@]}" >"$work/output" 2>&1 &
  elastic_pid=$!
}

wait_for() {  # wait_for COMMAND...: until it succeeds, while elastic.sh runs
  local begun=$SECONDS
  until "$@"; do
    kill -0 "$elastic_pid" 2>/dev/null || wrong "it ended too early"
    [ $((SECONDS - begun)) -lt 300 ] || wrong "waited in vain for: $*"
    sleep 0.1
  done
}

ended_with() {
  local status=0 wanted=$1 begun=$SECONDS
  while kill -0 "$elastic_pid" 2>/dev/null; do
    [ $((SECONDS - begun)) -lt 300 ] || wrong "it does not end"
    sleep 0.1
  done
  wait "$elastic_pid" || status=$?
  elastic_pid=
  [ "$status" = "$wanted" ] || wrong "it ended with $status, wanted $wanted"
}

has_checkpoint() { [ -e "$work/run/checkpoints/latest" ]; }
newest() { cat "$work/run/checkpoints/latest"; }
has_newer() { [ "$(newest)" != "$1" ]; }
has_processes() { [ "$(ranks_running | wc -l)" = "$1" ]; }

# goes_on_with K: K processes have taken up the checkpoint that elastic.sh names, and written another since.
goes_on_with() {
  local from
  wait_for grep -q "elastic: a process on .* was lost; $1 go on from step-" "$work/output"
  from=$(sed -n "s/.*; $1 go on from //p" "$work/output")
  wait_for has_newer "$from"
  wait_for has_processes "$1"  # a process on a host that cannot be reached may still find out that it is alone
}
kill_rank() { kill -KILL "$(pid_of_rank "$1")"; }

lose_a_host() {
  case_name="a host cannot be reached any more: the others go on"
  make_hosts 3 1gbit
  begin --hosts h1:1,h2:1,h3:1 --grace 3 --mpirun "$(virtual_mpirun) -x OWT_TEST_MARK"
  wait_for has_checkpoint
  ip -n h2 link set e0 down
  goes_on_with 2
  expect 'elastic: a process on h2 was lost'
  kill -TERM "$elastic_pid"
  ended_with 75
  passed
}
if [ "${2:-}" = link ]; then
  beside with_ranks lose_a_host
  all_ended
  exit 0
fi

# The first part is long enough that the kill comes before its end; the second ends by itself.
lose_two() {
  case_name="four processes, of which one is killed: three go on to the end"
  begin --hosts localhost:4 --least 2
  wait_for has_checkpoint
  kill_rank 2
  goes_on_with 3
  expect 'rank 2 on .* was lost: its process has ended'
  expect '28 images per step, 10 \+ 9 \+ 9 per worker'
  passed

  case_name="another is killed: two go on; a signal stops them with a checkpoint"
  kill_rank 0
  goes_on_with 2
  kill -TERM "$elastic_pid"
  ended_with 75
  expect 'stopped on a signal after step'
  # Steps that were repeated are in the log once.
  python3 - "$work/run/metrics.jsonl" >"$work/output" <<'END' || wrong "steps are missing or there twice"
import json, sys
steps = [record["step"] for record in map(json.loads, open(sys.argv[1])) if record["kind"] == "train"]
print(steps[:3], len(steps))
sys.exit(steps != list(range(1, len(steps) + 1)))
END
  passed
}

lose_too_many() {
  case_name="fewer than --least are left"
  begin --hosts localhost:2 --least 2
  wait_for has_checkpoint
  kill_rank 1
  ended_with 1
  expect 'elastic: error: processes left: 1, fewer than --least 2'
  passed
}

fail() {
  case_name="an error of the run is no loss"
  begin --hosts localhost:2 -- --set optimizer.learning_rate=-1
  ended_with 1
  expect 'owt: error: .*learning_rate'
  expect_none 'go on from'
  passed
}

lose_a_link() {
  if virtual_hosts_possible; then
    (enter_virtual_hosts "${BASH_SOURCE[0]}" "$owt" link)
  else
    echo "skipped: a host that cannot be reached"
  fi
}

beside lose_a_link
for cases in lose_two lose_too_many fail; do beside with_ranks "$cases"; done
all_ended
