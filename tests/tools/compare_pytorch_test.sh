#!/usr/bin/env bash
# Tests tools/bench/compare_pytorch.py: its table from made-up times and from the real program; and wrong command lines,
# also of install_pytorch.sh. Prints each case; exits 1 at the first that fails.
#   usage: compare_pytorch_test.sh PROGRAM
set -euo pipefail

owt=$1
# shellcheck source-path=SCRIPTDIR/../support
source "$(dirname "${BASH_SOURCE[0]}")/../support/bench_cases.sh"

begin() {
  case_name=$1
  rm -f "$work"/*_turn
}
program() {
  printf '#!/usr/bin/env bash\nset -eu\n%s\n' "$2" >"$work/$1"
  chmod +x "$work/$1"
}
# The next of the times, in milliseconds, that the case writes to $work/NAME; the programs below report it.
# shellcheck disable=SC2016
next_time='next() {
  turn=$(cat "$0_$1_turn" 2>/dev/null || echo 1)
  echo $((turn + 1)) >"$0_$1_turn"
  sed -n "${turn}p" "'$work'/$1"
}'
# shellcheck disable=SC2016
program owt "$next_time"'
[[ " $* " != *" --evaluation "* ]] || name=_evaluation
while [ "$1" != --csv ]; do shift; done
printf "kind,name,ms\nlayer,conv1,3\nstep,step,%s\n" "$(next "ours${name-}")" >"$2"'
# shellcheck disable=SC2016
program python "$next_time"'
[ "$2" = --torch-only ]
case "$4" in
*"\"evaluation\": true"*) name=evaluation ;;
*"\"compiled\": true"*) name=compiled ;;
*) name=eager ;;
esac
echo "[$(next "$name"), 500.4]" >"$3"'
compare() {
  python3 "$bench/compare_pytorch.py" --python "$work/python" --model cifar10_quick --precision bf16 --threads 2 "$@" \
    >"$work/output" 2>&1
}

begin "ratios are of turns, and the PyTorch with the shorter median counts"
printf '%s\n' 10 20 16 >"$work/ours"
printf '%s\n' 32 30 31 >"$work/eager"
printf '%s\n' 20 50 24 >"$work/compiled"
compare --owt "$work/owt" --compile --repeats 3 --batch 80 || wrong "it ended with $?"
expect '^\| cifar10_quick \| 80 \| bf16 \| 2 \| 5000\.0 \(4000\.0 to 8000\.0\) \| 3333\.3 \(1600\.0 to 4000\.0\) \| compiled \|'
expect '\| compiled \| 2\.00 \(1\.50 to 2\.50\) \| [0-9]+ \| 500 \|$'
passed

begin "without --compile PyTorch is eager"
compare --owt "$work/owt" --repeats 1 || wrong "it ended with $?"
expect '\| 12800\.0 \(.* \| eager \| 3\.20 '
passed

begin "a recipe's file is a model with its own rows"
echo 10 >"$work/ours"
echo 20 >"$work/eager"
printf '[model]\n[data]\nbatch = 16\n' >"$work/small.toml"
compare --owt "$work/owt" --repeats 1 --model "$work/small.toml" || wrong "it ended with $?"
expect '^\| small \| 16 \| bf16 \| 2 \| 1600\.0 .* \| eager \| 2\.00 '
passed

begin "an evaluation is one of both"
echo 5 >"$work/ours_evaluation"
echo 20 >"$work/evaluation"
compare --owt "$work/owt" --repeats 1 --evaluate || wrong "it ended with $?"
expect '\| eager \| 4\.00 '
passed

begin "the real program's steps and memory are measured"
for evaluate in "" --evaluate; do
  compare --owt "$owt" --repeats 1 --batch 2 --precision fp32 $evaluate || wrong "it ended with $?"
  expect '^\| cifar10_quick \| 2 \| fp32 \| 2 \| [0-9.]+ \([0-9.]+ to [0-9.]+\) \| .* \| [1-9][0-9]+ \| 500 \|$'
done
passed

begin "a program that fails ends the comparison with what it said"
program broken 'echo "no such processor" >&2; exit 1'
! compare --owt "$work/broken" --repeats 1 || wrong "it succeeded"
expect '^error: .*broken time '
expect '^no such processor$'
passed

begin "a wrong command line ends with 2 before anything is measured"
for words in "--model alexnet,lenet" "--precision fp32,bf61" "--threads 2,two"; do
  # shellcheck disable=SC2086
  ends_with 2 compare --owt "$work/owt" $words
  expect '^compare_pytorch.py: error: .*(lenet|bf61|two)'
done
passed

begin "PyTorch is not installed over other files"
mkdir "$work/full"
touch "$work/full/mine"
! bash "$bench/install_pytorch.sh" "$work/full" >"$work/output" 2>&1 || wrong "it succeeded"
expect '^install_pytorch: error: .*/full is there and holds no virtual environment'
! bash "$bench/install_pytorch.sh" >"$work/output" 2>&1 || wrong "it succeeded"
expect '^usage: '
passed
