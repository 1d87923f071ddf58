#!/usr/bin/env bash
# Tests a launch in which a rank fails, is killed, or stops: every other rank ends with one line that reports it. Prints
# each case; exits 1 at the first that fails.
#
#   usage: process_failures_test.sh PROGRAM LAUNCHER WORD... FLAG
#
#   PROGRAM: process_failures. The launcher is mpirun, or owt launch for processes over TCP. FLAG: its option for the
#   number of processes.
set -euo pipefail

program=$1 launcher=("${@:2}") over=MPI
[ "$3" != launch ] || over=TCP
# shellcheck source-path=SCRIPTDIR/../support
source "$(dirname "${BASH_SOURCE[0]}")/../support/lanes.sh"
work=$(mktemp -d)
job=
clean_up() {
  end_lanes
  [ -z "$job" ] || kill -KILL "$job" 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT

start() {  # start NAME RANKS WHAT [MPIRUN OPTION]...
  name=$1
  : >"$work/out"
  began=$(date +%s%N)
  timeout -s KILL 200 "${launcher[0]}" "${@:4}" "${launcher[@]:1}" "$2" "$program" "$3" >"$work/out" 2>&1 &
  job=$!
}
finish() {  # waits for the end; its exit status is in $status, and its milliseconds since `event` in $took
  status=0
  wait "$job" || status=$?
  job=
  took=$((($(date +%s%N) - began) / 1000000))
}
event() { began=$(date +%s%N); }
wrong() {
  echo "FAILED: $name: $*" >&2
  sed 's/^/  | /' "$work/out" >&2
  exit 1
}
passed() { echo "passed: $name ($took ms)"; }
process_of() {  # process_of RANK: waits until the rank has said it
  until sed -n "s/^rank $1 process //p" "$work/out" | grep .; do
    kill -0 "$job" || wrong "rank $1 did not begin"
    sleep 0.05
  done
}
expect_line() { [ "$(grep -cE "^owt: error: $1\$" "$work/out")" = 1 ] || wrong "not exactly one line '$1'"; }
expect_lines() { [ "$(grep -c '^owt: error: ' "$work/out")" = "$1" ] || wrong "not $1 error lines"; }
# mpirun ends the others as soon as one has ended. owt launch leaves them time to end by themselves.
after_lines() {  # after_lines COUNT SIGNAL PROCESS: over TCP, sends a signal when as many ranks have said their error
  [ "$over" = TCP ] || return 0
  until [ "$(grep -c '^owt: error: ' "$work/out")" -ge "$1" ]; do
    kill -0 "$job" || wrong "fewer than $1 ranks say an error"
    sleep 0.05
  done
  kill -"$2" "$3"
}
expect_end() {  # expect_end PROCESS
  for _ in $(seq 4000); do
    if ! grep -qs '^[0-9]* ([^)]*) [^ZX]' "/proc/$1/stat"; then return; fi
    sleep 0.05
  done
  wrong "process $1 goes on"
}
expect_status() { [ "$status" = "$1" ] || wrong "exit status $status, wanted $1"; }

# A rank is alive, but the others wait for it in vain.
expect_stuck() {  # expect_stuck PATTERN: all report it; the stuck rank may report that the others gave it up
  local line="^owt: error: (rank [0-2]: )?(rank [0-2] on [^ ]+ \(process [0-9]+\) makes no progress|.* given this one up): $1"
  [ "$(grep -cE "$line" "$work/out")" = 3 ] || wrong "not three ranks say '$1'"
  expect_lines 3
}

of_errors() {
  start "all come to a good end" 3 leave
  finish
  expect_status 0
  [ "$(grep -c '^the end$' "$work/out")" = 3 ] || wrong "not every rank came to the end"
  expect_lines 0
  passed

  # Four, because mpirun's rests between SIGCONT, SIGTERM and SIGKILL are cut short when further processes end.
  start "a rank's error is everybody's" 4 error
  finish
  expect_status 1
  expect_line 'rank 1: enough is enough'
  for who in '' 'rank 2: ' 'rank 3: '; do expect_line "${who}rank 1 failed: enough is enough"; done
  expect_lines 4
  passed
}

of_early_errors() {
  [ "$over" = MPI ] || export OWT_START_TIMEOUT=2  # over TCP the other ranks do not know of its end
  start "an error before the ranks have met" 3 before
  unset OWT_START_TIMEOUT
  finish
  expect_status 1
  expect_line 'rank 1: no such folder'
  passed

  start "a rank does not come to the start" 3 start
  after_lines 2 KILL "$(process_of 1)"
  finish
  expect_status 1
  if [ "$over" = TCP ]; then
    line='ranks that have not connected to rank 0 \(127.0.0.1 port [0-9]+\) over TCP within 3 s: 1; .*'
    expect_line "$line"
    expect_line "rank 2: $line"
  else
    # The first rank that gives up makes mpirun end the others, which may report the same before.
    grep -qE '^owt: error: (rank [12]: )?MPI has not brought the 3 processes together for 3 s; ' "$work/out" ||
      wrong "nobody says that MPI has not brought the processes together"
  fi
  passed

  start "an error of rank 0 alone" 3 from0
  finish
  expect_status 1
  expect_line 'nothing to be had'
  for who in 1 2; do expect_line "rank $who: rank 0 failed: nothing to be had"; done
  expect_lines 3
  passed
}

place='; (during|after) all_reduce, step [0-9]+'
of_kills() {
  transports="shared tcp"
  [ "$over" = MPI ] || transports=sockets
  for transport in $transports; do
    options=()
    [ "$transport" != tcp ] || options=(--mca btl 'tcp,self' --mca btl_tcp_if_include lo)
    for lost in 0 2; do  # rank 1 is watched like rank 2: by rank 0 alone
      start "rank $lost is killed ($transport)" 3 loop "${options[@]}"
      process=$(process_of "$lost")
      process_of 0 >"$work/ignored" && process_of 1 >"$work/ignored" && process_of 2 >"$work/ignored"
      event
      kill -KILL "$process"
      finish
      line="rank $lost on [^ ]+ \(process $process\) was lost: its process has ended$place"
      # Open MPI 4 ends a rank by itself when its write to the lost one fails before anything else is known.
      if [ "$transport" = tcp ] && grep -q 'FATAL' "$work/out"; then
        grep -qE "^owt: error: (rank [012]: )?$line\$" "$work/out" || wrong "nobody says who was lost"
        passed
        continue
      fi
      expect_status 137
      for other in 0 1 2; do
        [ "$other" != "$lost" ] || continue
        who="rank $other: "
        [ "$other" != 0 ] || who=
        expect_line "$who$line"
      done
      expect_lines 2
      passed
    done
  done
}

of_stops() {
  for lost in 0 2; do
    start "rank $lost stops" 3 loop
    process=$(process_of "$lost")
    event
    kill -STOP "$process"
    after_lines 2 CONT "$process"
    finish
    expect_status 1
    for other in 0 1 2; do
      [ "$other" != "$lost" ] || continue
      who="rank $other: "
      [ "$other" != 0 ] || who=
      expect_line "${who}rank $lost on [^ ]+ \(process $process\) was lost: it has not answered for 2 s$place"
    done
    # The first that ends has mpirun wake the stopped one, which may have its say too.
    [ "$(grep -c '^owt: error: ' "$work/out")" = 2 ] || expect_line '.*the other ranks have given this one up: .*'
    passed
  done
}

of_waits_for_data() {
  start "a rank waits for data for ever" 3 data
  finish
  expect_status 1
  expect_stuck 'it has waited for data for [0-9]+ s and read nothing; .*; (during|after) all_reduce'
  passed
}

of_stuck_ranks() {
  start "a rank is in another collective" 3 mismatch
  finish
  expect_status 1
  # Which rank counts as being in the wrong collective depends on how many messages of others rank 1 took for its own.
  in='it has been in' number='\(its collective [0-9]+\) for [0-9]+ s, while'
  expect_stuck "($in all_reduce $number rank 1 waits in broadcast|$in broadcast $number rank 0 waits in all_reduce)"
  passed
}

of_lost_messages() {
  start "a rank waits for a message that is not sent" 3 unsent
  finish
  expect_status 1
  expect_stuck 'it has been in all_reduce \(its collective [0-9]+\) for [0-9]+ s, while rank 0 waits in receive from rank 1'
  passed
}

of_circles() {
  start "each rank waits for a message of the next" 3 circle
  finish
  expect_status 1
  expect_stuck 'it has been in receive from rank 1 for [0-9]+ s, while rank 2 waits in receive from rank 0'
  passed
}

of_messages() {
  start "a message has another size than is wanted" 3 sizes
  finish
  expect_status 1
  sizes='a message from rank 1 has 3996 bytes, wanted 4000; the ranks do not follow the same order of messages'
  expect_line "$sizes"
  for who in 1 2; do expect_line "rank $who: rank 0 failed: $sizes"; done
  expect_lines 3
  passed

  start "a rank is killed while others wait for its messages" 3 ring
  process=$(process_of 1)
  process_of 0 >"$work/ignored" && process_of 2 >"$work/ignored"
  event
  kill -KILL "$process"
  finish
  expect_status 137
  line="rank 1 on [^ ]+ \(process $process\) was lost: its process has ended"
  for who in '' 'rank 2: '; do expect_line "$who$line; (during|after) (send to|receive from|all_reduce)( rank [012])?"; done
  expect_lines 2
  passed
}

of_stalled_ranks() {
  start "a rank computes for ever" 3 stall
  finish
  expect_status 1
  expect_stuck 'it has shown no sign of work for [0-9]+ s, longer than parallel.stall_s'
  passed
}

of_slow_ranks() {
  start "a rank computes for longer than the timeout" 3 slow
  finish
  expect_status 0
  expect_lines 0
  passed
}

of_the_end() {
  start "a rank stops at the end, before rank 0 has come there" 3 late
  process=$(process_of 2)
  process_of 0 >"$work/ignored" && process_of 1 >"$work/ignored"
  sleep 0.5
  event
  kill -STOP "$process"
  finish
  expect_status 1
  line="rank 2 on [^ ]+ \(process $process\) was lost: it has not answered for 2 s"
  expect_line "rank 1: $line; during all_gather of 'the end'"
  expect_line "$line; after all_reduce"
  passed

  # mpirun itself may crash or hang after ranks that have ended within MPI_Finalize; the ranks do not.
  start "a rank does not come back from MPI_Finalize" 3 finalize
  for rank in 0 1 2; do expect_end "$(process_of "$rank")"; done
  if children=$(cat "/proc/$job/task/$job/children" 2>/dev/null); then
    kill -KILL $children 2>/dev/null || true
  fi
  finish
  expect_lines 0
  grep -q 'MPI has not ended for 2 s' "$work/out" || wrong "no warning"
  passed
}

of_computing_ranks() {
  # Two others end at once, and so do mpirun's rests.
  start "a rank that computes is told too" 4 compute
  process=$(process_of 1)
  for rank in 0 2 3; do process_of "$rank" >"$work/ignored"; done
  event
  kill -KILL "$process"
  finish
  expect_status 137
  expect_line "rank 1 on [^ ]+ \(process $process\) was lost: its process has ended; after all_reduce"
  expect_lines 3
  passed
}

all=(of_errors of_early_errors of_kills of_stops of_stuck_ranks of_lost_messages of_circles of_messages of_computing_ranks)
# The watch does these alone, and MPI has an end of its own.
[ "$over" = TCP ] || all+=(of_waits_for_data of_stalled_ranks of_slow_ranks of_the_end)
for cases in "${all[@]}"; do beside "$cases"; done
all_ended
