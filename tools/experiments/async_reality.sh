#!/usr/bin/env bash
# Compares a simulated parameter server with a real one. `owt simulate --servers workers` predicts the time until a loss
# is reached. `owt train --parallel ps` trains between network namespaces of this machine with one worker in each
# (tools/bench/virtual_hosts.sh). Control groups give every worker the same share of the cores, and the second worker
# half of that; so several fit on a core. Needs root.
#
#   usage: tools/experiments/async_reality.sh --data DIR [OPTION]...
#     --data DIR        CIFAR-10
#     --owt PROGRAM     default build/owt
#     --net NAME        a recipe; default cifar10_quick
#     --hosts "K ..."   default "2 4"
#     --rates "RATE ..."   rate of every link in both directions, in tc's units; default "1gbit 100mbit"
#     --delays "D ..."  ps.delay; default "0 4"
#     --steps N         default 200
#     --loss L          loss to reach, as the mean of 25 steps; default 2.0
#     --keep DIR        keep all runs in DIR
#
# The simulation gets these measurements. Speed of a worker: each trains alone while the others do so too. CPU time for
# a message: owt bench-comm with two processes on one core without a limit, with messages as large as those to one
# server. Latency of a small message between busy workers: owt bench-comm beside a loop in every group, because a group
# that has used up its share answers only in the next period. Prints a table of seconds from the first record on; exits
# 1 if a run failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR/../bench
source "$here/../bench/virtual_hosts.sh"

owt=build/owt data='' net=cifar10_quick hosts="2 4" rates="1gbit 100mbit" delays="0 4" steps=200 loss=2.0 keep=''
export virtual_hosts_seconds=300
cores=$(nproc)

stop() {
  echo "async_reality: error: $*" >&2
  exit 1
}

arguments=("$@")
while [ $# -gt 0 ]; do
  case $1 in
    --help | -h)
      sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    --data | --owt | --net | --hosts | --rates | --delays | --steps | --loss | --keep) ;;
    *) stop "no option '$1'; see --help" ;;
  esac
  [ $# -gt 1 ] || stop "$1 wants a value; see --help"
  printf -v "${1#--}" %s "$2"
  shift 2
done
[ -d "$data" ] || stop "--data '$data': there is no such folder"
[ -x "$owt" ] || stop "there is no program '$owt'; build it, or say where it is with --owt"
enter_virtual_hosts "${BASH_SOURCE[0]}" "${arguments[@]}" || exit 1

folder=${keep:-$TMPDIR/runs}
mkdir -p "$folder"
: >"$folder/points"

# The workers get 80 % of all cores, as if all were as fast as the first, so that some time is left for the kernel.
share_of() {  # share_of RANK K: in percent of a core
  local percent=$((80 * cores / $2))
  [ $percent -le 100 ] || percent=100
  [ "$1" -ne 1 ] || percent=$((percent / 2))
  echo $percent
}

make_shares() {  # make_shares K
  local rank
  for ((rank = 0; rank < $1; rank++)); do make_share "owt-$rank" "$(share_of $rank "$1")"; done
}

# Commands of rank $OMPI_COMM_WORLD_RANK before its program.
# shellcheck disable=SC2016
join='echo 0 >"'$(share_file 'owt-$OMPI_COMM_WORLD_RANK')'" &&
  exec taskset -c $((OMPI_COMM_WORLD_RANK % '$cores')) "$@"'

# Options of every run; `rows`: rows per worker and step.
words=("$here/../../configs/$net.toml" --data "$data" --set run.log_every=1 --set run.eval_every_epochs=0
  --set run.checkpoint_every_epochs=0 --set run.conv_algorithm=direct --set optimizer.momentum=0
  --set optimizer.learning_rate=0.005)
rows=

together() {  # together K: options for K workers
  printf '%s\n' --workers "$1" --set "data.batch=$((rows * $1))" --steps "$steps"
}

logged() {  # logged NAME COMMAND...
  local log=$folder/$1.log
  shift
  "$@" >"$log" 2>&1 || stop "$(tail -n 1 "$log"); see $log"
}

# Images per second of worker RANK: the median of its records.
rate_of() {  # rate_of RANK K
  sed -n 's/.*"kind":"train".*"images_per_second":\([0-9.]*\).*/\1/p' "$folder/alone-$2-$1/metrics.jsonl" |
    sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'
}

# Every worker trains alone, all at the same time.
alone() {  # alone K
  local rank started=()
  for ((rank = 0; rank < $1; rank++)); do
    rm -rf "$folder/alone-$1-$rank"
    logged "alone-$1-$rank" env OMPI_COMM_WORLD_RANK=$rank bash -c "$join" bash env -u OMPI_COMM_WORLD_RANK "$owt" \
      train "${words[@]}" --out "$folder/alone-$1-$rank" --workers 1 --threads 1 --device cpu \
      --set "data.batch=$rows" --steps $((rank == 1 ? steps / 2 : steps)) &
    started+=($!)
  done
  for process in "${started[@]}"; do wait "$process" || exit 1; done
}

weight_bytes() { stat -c %s "$folder/alone-$1-0"/checkpoints/*/weights.safetensors; }

# CPU milliseconds for a MB that is sent or received, in exchanges of BYTES, each of which has four ends.
message_work() {  # message_work BYTES
  make_hosts 2 40gbit
  logged bench mpirun_on_hosts 2 taskset -c 0 "$owt" bench-comm --device cpu --threads 1 --collective send \
    --sizes "$1" --json "$folder/bench.json"
  remove_hosts
  python3 -c 'import json, sys
time, = json.load(open(sys.argv[1]))["times"]
print(1e3 * time["seconds"] / (4 * time["bytes"] / 1e6))' "$folder/bench.json"
}

# Milliseconds for a small message between K workers whose processors are busy.
message_latency() {  # message_latency K
  local rank started=()
  make_hosts "$1" 40gbit
  for ((rank = 0; rank < $1; rank++)); do
    OMPI_COMM_WORLD_RANK=$rank bash -c "$join" bash sh -c 'while :; do :; done' &
    started+=($!)
  done
  logged latency mpirun_on_hosts "$1" bash -c "$join" bash "$owt" bench-comm --device cpu --threads 1 \
    --collective send --sizes 4K --json "$folder/latency.json"
  kill "${started[@]}"
  wait "${started[@]}" 2>/dev/null || true
  remove_hosts
  python3 -c 'import json, sys
time, = json.load(open(sys.argv[1]))["times"]
print("%.3f" % (1e3 * time["seconds"]))' "$folder/latency.json"
}

in_earnest() {
  local count=$1 delay=$2 out=$3
  # shellcheck disable=SC2046
  logged "$(basename "$out")" mpirun_on_hosts "$count" bash -c "$join" bash "$owt" train "${words[@]}" --out "$out" \
    $(together "$count") --threads 1 --device cpu --parallel ps --set "ps.delay=$delay"
}

for count in $hosts; do
  rows=$((128 / count))
  make_shares "$count"
  alone "$count"
  speed=$(rate_of 0 "$count")
  slower=$(rate_of 1 "$count" | awk '{ printf "%.2f", '"$speed"' / $1 }')
  work=$(message_work $(($(weight_bytes "$count") / count)) | awk '{ print $1 * 100 / '"$(share_of 0 "$count")"' }')
  latency=$(message_latency "$count")
  for rate in $rates; do
    make_hosts "$count" "$rate"
    for delay in $delays; do
      point=$folder/$net-$count-$rate-$delay
      rm -rf "$point-real" "$point-simulated"
      in_earnest "$count" "$delay" "$point-real"
      # shellcheck disable=SC2046
      logged "$(basename "$point")-simulated" "$owt" simulate "${words[@]}" --out "$point-simulated" \
        $(together "$count") --servers workers --delay "$delay" --straggler "1:$slower" --bandwidth "$rate" \
        --latency "${latency}ms" --images-per-second "$speed" --message-work "${work}ms" --device cpu
      echo "$count $rate $delay $speed $slower $work $latency $point" >>"$folder/points"
    done
    remove_hosts
  done
done
python3 - "$folder/points" "$loss" <<'PYTHON'
import json, sys

RECORDS = 25


def seconds(folder, loss):
    """From the first record to the loss, and to the last record; None: it is not reached."""
    records = [json.loads(line) for line in open(folder + "/metrics.jsonl")]
    records = [record for record in records if record["kind"] == "train"]
    start, reached = records[0]["seconds"], None
    for at in range(RECORDS, len(records) + 1):
        if sum(record["loss"] for record in records[at - RECORDS:at]) / RECORDS <= loss:
            reached = records[at - 1]["seconds"] - start
            break
    return reached, records[-1]["seconds"] - start


def beside(real, simulated):
    if real is None or simulated is None:
        return "not reached | | "
    return f"{real:.2f} | {simulated:.2f} | {simulated / real:.2f}"


loss = float(sys.argv[2])
print("| workers | links | delay | alone, images/s | the second slower | messages, ms/MB | latency, ms "
      f"| to {loss:g}, s | simulated, s | ratio | all steps, s | simulated, s | ratio |")
print("|---" * 13 + "|")
for line in open(sys.argv[1]):
    count, rate, delay, speed, slower, work, latency, point = line.split()
    real, simulated = seconds(point + "-real", loss), seconds(point + "-simulated", loss)
    print(f"| {count} | {rate} | {delay} | {float(speed):.0f} | {slower} x | {float(work):.1f} | {float(latency):.2f} "
          f"| {beside(real[0], simulated[0])} | {beside(real[1], simulated[1])} |")
PYTHON
