#!/usr/bin/env bash
# Tests tools/bench/slow_network.sh: its table and checks on made-up measurements, wrong command lines, and one real
# measurement, of which only the bytes are checked. Prints each case; exits 1 at the first that fails.
#   usage: slow_network_test.sh PROGRAM
set -euo pipefail

owt=$1
# shellcheck source-path=SCRIPTDIR/../support
source "$(dirname "${BASH_SOURCE[0]}")/../support/bench_cases.sh"
# shellcheck source-path=SCRIPTDIR/../../tools/bench
source "$bench/virtual_hosts.sh"

begin() {
  case_name=$1
  rm -rf "$work/points"
  mkdir "$work/points"
}

# point NET HOSTS RATE STRATEGY MS BYTES: measured ms per step, and bytes that each host sent per step.
point() {
  printf 'kind,name,ms\nstep,step,%s\n' "$5" >"$work/points/$1-$2-$3-$4.csv"
  # Ten steps, after a run that sent 1000 bytes more than no step at all.
  echo "$1 $2 $3 $4 10 1000 2000 $((1000 + 10 * $2 * $6)) $((2000 + 11 * $2 * $6))" >>"$work/points/counters"
}
# prediction NET HOSTS RATE BEST: dp 1000 bytes in 100 ms, 90 of them waiting; owt-c 100 bytes in 20 ms, 2 waiting.
prediction() {
  cat >"$work/points/$1-$2-$3.json" <<END
{"best": "$4", "strategies": [
  {"name": "dp", "bytes": 1000, "step_s": 0.1, "exposed_s": 0.09},
  {"name": "owt-c", "bytes": 100, "step_s": 0.02, "exposed_s": 0.002}]}
END
}
summary() { python3 "$bench/slow_network.py" "$work/points" >"$work/output" 2>&1; }

begin "what is as expected passes"
prediction alexnet_small 2 1gbit owt-c
point alexnet_small 2 1gbit dp 90 1030
point alexnet_small 2 1gbit owt-c 25 101
point alexnet_small 2 1gbit auto 26 200
echo 'strategy auto: owt-c: 20 ms a step' >"$work/points/alexnet_small-2-1gbit-auto.csv.log"
summary || wrong "it failed"
expect '^dp +90.0 +100.0 +\+11 % +90 % +0.001 +0.001 +\+3.0 % +\+13.3 % +1.00x'
expect '^auto = owt-c +26.0 +20.0 +-23 % +10 % .* 3.46x'
expect '^pass: the interfaces counted .*: 2 of 2$'
expect '^pass: the step time was predicted .*: 1 of 1$'
expect '^pass: the strategy predicted to be the fastest was.*: 1 of 1$'
expect '^pass: large dense layers, 2 hosts at 1 Gbit/s: owt-c .*\(3.60 times; 3.60 times as dp\)'
expect_none '^miss'
passed

begin "what is not as expected is a miss that is named"
prediction alexnet_small 4 1gbit owt-c
point alexnet_small 4 1gbit dp 70 1060
point alexnet_small 4 1gbit owt-c 25 100
prediction cifar10_quick 2 100mbit owt-c
point cifar10_quick 2 100mbit dp 30 1000
point cifar10_quick 2 100mbit owt-c 40 100
summary || wrong "it failed"
expect '^miss: the interfaces counted .*: 3 of 4$'
expect '^ +alexnet_small, 4 hosts, 1gbit, dp: \+6.0 %$'
expect '^miss: the step time was predicted .*: 0 of 2$'
expect '^miss: the strategy predicted to be the fastest was.*: 1 of 2$'
expect '^ +cifar10_quick, 2 hosts, 100mbit, owt-c: \+33 %$'
expect '^miss: large dense layers, 4 hosts .*\(2.80 times'
expect '^miss: no large dense layer, 2 hosts at 100mbit'
expect 'fastest: dp; the planner chose owt-c$'
passed

begin "a point without its prediction is an error"
point alexnet_small 2 1gbit dp 90 1000
if summary; then wrong "it succeeded"; fi
passed

begin "a wrong command line ends with 2 and says what is wrong"
for words in "--hots 2" "--links good" "--probe soon" "--steps 1" "--rows none" "--hosts 1" "--rates"; do
  code=0
  # shellcheck disable=SC2086
  bash "$bench/slow_network.sh" --owt "$owt" $words >"$work/output" 2>&1 || code=$?
  [ "$code" = 2 ] || wrong "$words: it ended with $code, wanted 2"
  expect '^slow_network: error: .*--'
done
passed

begin "over two hosts the interfaces count what the plan says"
if ! grep -q libmpi <<<"$(ldd "$owt")"; then
  echo "skipped: $case_name: the program was built without MPI"
  exit 0
fi
if ! virtual_hosts_possible 2>"$work/output"; then
  echo "skipped: $case_name: $(cat "$work/output")"
  exit 0
fi
timeout -s KILL 120 bash "$bench/slow_network.sh" --owt "$owt" --nets "$bench/../../configs/cifar10_quick.toml" --hosts 2 --rates 1gbit --rows 16 --steps 6 --probe 1 \
  --strategies "dp owt-a owt-c" --keep "$work/points" >"$work/output" 2>&1 || wrong "it failed"
expect '^pass: the interfaces counted the plan.s bytes to 5 %: 3 of 3$'
passed
