#!/usr/bin/env bash
# Tests a run of several processes when one of them is killed or stops answering, when a link goes down, and on SIGTERM;
# and that the run resumes with another number of processes. A run of several losses resumes after each.
#
#   usage: failures_test.sh PROGRAM        FAILURES=N: number of random moments (default 20); SEED=N: other moments
#
# Prints each case; exits 1 if one has failed. Without mpirun, or with a program built without MPI, it prints "skipped".
# Cases that need virtual hosts do so if these cannot be made.
set -euo pipefail

owt=$(realpath "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR/../../tools/bench
source "$here/../../tools/bench/virtual_hosts.sh"
# shellcheck source-path=SCRIPTDIR/../../tools/bench
source "$here/../../tools/bench/ranks.sh"
# shellcheck source-path=SCRIPTDIR/../support
source "$here/../support/small_processes.sh"
# shellcheck source-path=SCRIPTDIR/../support
source "$here/../support/lanes.sh"
seed=${SEED:-$(date +%s)}
silence=3           # parallel.timeout_s
most_seconds=$((silence + 87))  # a machine may be busy

work=$(mktemp -d)
launched=

clean_up() {
  end_lanes
  if [ -n "$launched" ]; then kill -KILL "$launched" 2>/dev/null || true; fi
  kill_ranks
  rm -rf "$work"
}

# with_ranks COMMAND...: runs in a lane, with separate ranks.
with_ranks() {
  ranks_mark+=-$lane
  # mpirun starts this: a rank that writes its messages to a separate file (Open MPI 5.0.7's --output-filename fails).
  printf '#!/bin/sh\nexec "$@" 2>"%s/output/stderr.$OMPI_COMM_WORLD_RANK"\n' "$work" >"$work/rank"
  chmod +x "$work/rank"
  train=("$owt" train "$small_recipe" --out "$work/run" --threads 1 --set "parallel.timeout_s=$silence")
  "$@"
}

wrong() {
  echo "FAILED: $case_name: $*" >&2
  tail -n 20 "$work"/launcher "$work"/output/stderr.* 2>/dev/null | sed 's/^/  | /' >&2
  exit 1
}

# begin NAME LAUNCHER...: starts a fresh run under the launcher's words and waits for its first checkpoint.
begin() {
  rm -rf "$work/run"
  step=0
  go_on "$@"
}

# go_on NAME LAUNCHER...: starts the run again, from its checkpoint of step $step, and waits for the next checkpoint.
go_on() {
  case_name=$1
  shift
  rm -rf "$work/output" "$work/launcher" "$work/codes"
  mkdir "$work/codes" "$work/output"
  OWT_TEST_MARK=$ranks_mark "$@" >"$work/launcher" 2>&1 &
  launched=$!
  until has_newer; do
    kill -0 "$launched" 2>/dev/null || wrong "it ended before the next checkpoint"
    rest 0.05
  done
  [ "$step" = 0 ] || grep -q "^resumed from .* at step $step of " "$work/output/stderr.0" ||
    wrong "it did not go on from step $step"
}

has_newer() {
  local name=step-0
  { [ ! -e "$work/run/checkpoints/latest" ] || read -r name <"$work/run/checkpoints/latest"; } 2>/dev/null || true
  [ $((10#${name#step-})) -gt "$step" ]
}

# No process is started for this, because a busy machine does so late, and all ranks compute until then.
exec {nothing}<> <(:)
rest() { read -rt "$1" -u "$nothing" || true; }

# Waits for the end of the launcher and of all ranks; sets `status` and `seconds`.
wait_for_end() {
  local begun=$SECONDS
  while kill -0 "$launched" 2>/dev/null || [ -n "$(ranks_running)" ]; do
    [ $((SECONDS - begun)) -le "$most_seconds" ] || wrong "not ended after $most_seconds s: $(ranks_running)"
    sleep 0.1
  done
  status=0
  wait "$launched" 2>/dev/null || status=$?
  launched=
  seconds=$((SECONDS - begun))
}

wait_for_rank() {
  local begun=$SECONDS
  while [ -n "$(pid_of_rank "$1")" ]; do
    [ $((SECONDS - begun)) -le "$most_seconds" ] || wrong "rank $1 has not ended after $most_seconds s"
    sleep 0.1
  done
}

# expect_line RANK PATTERN: the rank printed one line of error, and it matches.
expect_line() {
  local file lines
  file=$work/output/stderr.$1
  lines=$(grep -c 'owt: error: ' "$file" || true)
  [ "$lines" = 1 ] || wrong "rank $1 printed $lines lines of error, wanted 1"
  grep -qE "owt: error: .*$2" "$file" || wrong "rank $1 printed '$(cat "$file")', wanted: $2"
}

# Where a rank was: in a collective, or computing after one.
place='(during|after) (all_reduce|all_gather|reduce_scatter|broadcast|reduce|all_to_all|meeting)'

expect_intact_checkpoint() {
  "$owt" inspect "$work/run" >"$work/inspected" 2>&1 || wrong "owt inspect: $(cat "$work/inspected")"
  grep -q 'all checksums match' "$work/inspected" || wrong "owt inspect does not say that all checksums match"
  step=$(sed -n 's/^step \([0-9]*\),.*/\1/p' "$work/inspected")
}

# goes_on_with K: the same run finishes correctly on K processes.
goes_on_with() {
  timeout -s KILL 300 mpirun -np "$1" "${train[@]}" --resume auto --steps $((step + 10)) >"$work/launcher" 2>&1 || wrong "it did not go on with $1 processes"
  grep -q 'test accuracy' "$work/launcher" || wrong "it went on with $1 processes, but not to the end"
}

passed() { echo "passed: $case_name ($*)"; }

# The ranks note their exit codes, since mpirun has only one; and leave when $OWT_TEST_CODES of them have, because as
# soon as one has left mpirun kills the others.
# shellcheck disable=SC2016
noting_codes='trap : TERM USR1; "$@"; code=$?; echo $code >"$0/$OMPI_COMM_WORLD_RANK"
  until [ "$(ls "$0" | wc -l)" -ge "$OWT_TEST_CODES" ]; do sleep 0.1; done
  exit $code'

lose_a_rank() {  # lose_a_rank NUMBER: at a random moment
  local number=$1 ranks victim process signal ms rank strategies=(dp owt-a owt-c) launcher
  RANDOM=$((seed + number))
  ranks=$((2 + RANDOM % 3))
  victim=$((RANDOM % ranks)) ms=$((RANDOM % 250))  # a step takes a few ms, and 25 steps later is the next checkpoint
  launcher=(mpirun -np "$ranks" -x OWT_TEST_CODES=$((ranks - 1)) "$work/rank")
  # The two signals alternate, so that few moments cover both. mpirun's reaction depends on how a process ends, so a
  # killed rank is a direct child of mpirun, not of a shell.
  if [ $((number % 2)) = 0 ]; then
    signal=STOP
    launcher+=(sh -c "$noting_codes" "$work/codes")
  else
    signal=KILL
  fi
  go_on "SIG$signal to rank $victim of $ranks" "${launcher[@]}" "${train[@]}" --resume auto \
    --parallel "${strategies[RANDOM % 3]}"
  process=$(pid_of_rank "$victim")
  printf -v seconds '0.%03d' "$ms"
  rest "$seconds"
  kill "-$signal" "$process"
  wait_for_end
  [ "$status" != 0 ] || wrong "mpirun ended with 0"
  for ((rank = 0; rank < ranks; rank++)); do
    [ "$rank" != "$victim" ] || continue
    expect_line "$rank" "rank $victim .*$place.*step [0-9]+"
    [ $signal = KILL ] || [ "$(cat "$work/codes/$rank")" = 1 ] || wrong "rank $rank did not end with 1"
  done
  expect_intact_checkpoint
  passed "$ms ms after a checkpoint; all ended after $seconds s; the newest checkpoint is of step $step"
}

stop_all_ranks() {  # stop_all_ranks NAME SIGNAL WHOM OPTION_OF_MPIRUN...: of the run that was stopped before, if any
  local name=$1 signal=$2 whom=$3 rank codes
  shift 3
  go_on "$name" mpirun -np 3 "$@" -x OWT_TEST_CODES=3 "$work/rank" \
    sh -c "$noting_codes" "$work/codes" "${train[@]}" --resume auto
  sleep 0.3
  kill "-$signal" "$("$whom")"
  [ "$whom $signal" != "the_launcher TERM" ] || shorten_rest
  wait_for_end
  codes=$(cat "$work"/codes/* | xargs)
  [ "$codes" = "75 75 75" ] || wrong "the ranks ended with '$codes', wanted 75 each"
  for rank in 0 1 2; do
    if grep -q 'owt: error' "$work/output/stderr.$rank"; then wrong "rank $rank printed an error"; fi
  done
  expect_intact_checkpoint
  grep -q "after step $step;" "$work/output/stderr.0" || wrong "the newest checkpoint is of step $step"
  passed "mpirun ended with $status; the newest checkpoint is of step $step"
}

# mpirun rests for ten seconds before it passes SIGTERM on. Every signal ends such a second.
shorten_rest() {
  local second
  for second in 1 2 3 4 5 6 7 8 9; do
    sleep 0.1
    kill -CHLD "$launched" 2>/dev/null || true
  done
}

kill_all_ranks() {  # kill_all_ranks NAME: only the latest checkpoint is left
  begin "$1" mpirun -np 3 "$work/rank" "${train[@]}"
  sleep 0.3
  kill -TERM "$launched"
  wait_for_end
  expect_intact_checkpoint
  goes_on_with 2
  passed "mpirun ended with $status; went on from step $step"
}

lose_a_link() {
  local rank
  make_hosts 3 1gbit
  virtual_hosts_seconds=40
  begin "the link of rank 1 goes down" mpirun_on_hosts 3 -x OWT_TEST_MARK "$work/rank" \
    "${train[@]}" --parallel owt-c
  ip -n h2 link set e0 down
  for ((rank = 0; rank < 3; rank++)); do wait_for_rank "$rank"; done
  # mpirun itself cannot reach the daemon on the other side of that link and does not notice.
  kill -KILL "$launched"
  wait "$launched" 2>/dev/null || true
  launched=
  expect_line 0 "rank 1 .*$place.*step [0-9]+"
  expect_line 1 "rank 0 .*$place.*step [0-9]+"
  expect_line 2 "rank 1 .*$place.*step [0-9]+"
  expect_intact_checkpoint
  goes_on_with 2
  passed "all ended; went on from step $step"
}

if ! command -v mpirun >/dev/null; then
  echo "skipped: there is no mpirun here"
  exit 0
fi
if ! grep -q libmpi <<<"$(ldd "$owt")"; then
  echo "skipped: the program was built without MPI"
  exit 0
fi
trap clean_up EXIT
if [ "${2:-}" = link ]; then
  beside with_ranks lose_a_link
  all_ended
  exit 0
fi

one_rank() { pid_of_rank 1; }
the_launcher() { echo "$launched"; }
moments() {  # moments SHARE: one of five shares of the random moments, all of one run
  local number others=(1 2 4)
  step=0
  for ((number = $1; number <= ${FAILURES:-20}; number += 5)); do lose_a_rank "$number"; done
  goes_on_with "${others[RANDOM % 3]}"
}
end_by_signal() {
  step=0
  stop_all_ranks "SIGTERM to one rank" TERM one_rank
  stop_all_ranks "SIGUSR1 to mpirun" USR1 the_launcher
  goes_on_with 2
}
end_mpirun() {
  if grep -q '(Open MPI) 4' <<<"$(mpirun --version)"; then
    # mpirun waits that long before it passes SIGTERM on, and as long again before it kills the ranks.
    step=0
    stop_all_ranks "SIGTERM to mpirun" TERM the_launcher --mca odls_base_sigkill_timeout 10
    goes_on_with 2
  else
    kill_all_ranks "SIGTERM to mpirun, which leaves no time"
  fi
}
end_a_link() {
  if virtual_hosts_possible; then
    (enter_virtual_hosts "${BASH_SOURCE[0]}" "$owt" link)
  else
    echo "skipped: a link that goes down"
  fi
}

echo "seed $seed"
beside end_a_link
beside with_ranks end_mpirun
beside with_ranks end_by_signal
for share in 1 2 3 4 5; do beside with_ranks moments "$share"; done
all_ended
