#!/usr/bin/env bash
# A simulated parameter server against a real one: `owt simulate --servers workers` says how long training takes until a
# loss is reached, and `owt train --parallel ps` does it between network namespaces of this machine (virtual_hosts.sh),
# one worker each, the second of which shares its core with a busy loop and so computes half as fast.
#
#   usage: tools/bench/async_reality.sh --data DIR [OPTION]...
#     --data DIR        CIFAR-10
#     --owt PROGRAM     default build/owt
#     --net NAME        a recipe; default cifar10_quick
#     --hosts "K ..."   default "2"; with more than there are cores several workers share one
#     --rates "RATE ..."   of every link, both ways, in tc's words; default "1gbit 100mbit"
#     --delays "D ..."  ps.delay; default "0 4"
#     --steps N         default 200
#     --loss L          that is to be reached, by the mean of five records of five steps; default 2.0
#     --keep DIR        keep all runs there
#
# How fast a worker is the simulation is told: what one trains by itself, on a core as busy as the others' will be.
# Prints a table, of seconds from the first record on; exits 1 where a run failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR
source "$here/virtual_hosts.sh"

owt=build/owt data='' net=cifar10_quick hosts=2 rates="1gbit 100mbit" delays="0 4" steps=200 loss=2.0 keep=''
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

busy_on() {  # busy_on CORE: until `kill`
  taskset -c "$1" sh -c 'while :; do :; done' &
  busy+=($!)
}

quiet() {
  [ ${#busy[@]} -eq 0 ] || kill "${busy[@]}"
  busy=()
}

# Words of every run; `rows` of each worker and step.
words=("$here/../../configs/$net.toml" --data "$data" --set run.log_every=5 --set run.eval_every_epochs=0
  --set run.checkpoint_every_epochs=0 --set run.conv_algorithm=direct --set optimizer.momentum=0
  --set optimizer.learning_rate=0.005)
rows=

together() {  # together K: words of K workers
  printf '%s\n' --workers "$1" --set "data.batch=$((rows * $1))" --steps "$steps"
}

logged() {  # logged NAME COMMAND...
  local log=$folder/$1.log
  shift
  "$@" >"$log" 2>&1 || stop "$(tail -n 1 "$log"); see $log"
}

# Images a second of one worker with its rows, by the median of its records.
alone() {
  local count=$1 core
  for ((core = 1; core * cores < count; core++)); do busy_on 0; done
  rm -rf "$folder/alone-$count"
  logged "alone-$count" taskset -c 0 "$owt" train "${words[@]}" --out "$folder/alone-$count" --workers 1 --threads 1 \
    --device cpu --set "data.batch=$rows" --steps 100
  quiet
  sed -n 's/.*"kind":"train".*"images_per_second":\([0-9.]*\).*/\1/p' "$folder/alone-$count/metrics.jsonl" |
    sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'
}

in_earnest() {
  local count=$1 delay=$2 out=$3
  busy_on $((1 % cores))
  # shellcheck disable=SC2016,SC2046
  logged "$(basename "$out")" mpirun_on_hosts "$count" sh -c \
    'exec taskset -c $((OMPI_COMM_WORLD_RANK % '"$cores"')) "$@"' sh "$owt" train "${words[@]}" --out "$out" \
    $(together "$count") --threads 1 --device cpu --parallel ps --set "ps.delay=$delay"
  quiet
}

busy=()
for count in $hosts; do
  rows=$((128 / count))
  speed=$(alone "$count")
  for rate in $rates; do
    make_hosts "$count" "$rate"
    for delay in $delays; do
      point=$folder/$net-$count-$rate-$delay
      rm -rf "$point-real" "$point-simulated"
      in_earnest "$count" "$delay" "$point-real"
      # shellcheck disable=SC2046
      logged "$(basename "$point")-simulated" "$owt" simulate "${words[@]}" --out "$point-simulated" $(together "$count") \
        --servers workers --delay "$delay" --straggler 1:2 --bandwidth "$rate" --latency 100us \
        --images-per-second "$speed" --device cpu
      echo "$count $rate $delay $speed $point" >>"$folder/points"
    done
    remove_hosts
  done
done
python3 - "$folder/points" "$loss" <<'PYTHON'
import json, sys

RECORDS = 5


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
print(f"| workers | links | delay | alone, images/s | to {loss:g}, s | simulated, s | ratio | all steps, s | "
      "simulated, s | ratio |")
print("|---|---|---|---|---|---|---|---|---|---|")
for line in open(sys.argv[1]):
    count, rate, delay, speed, point = line.split()
    real, simulated = seconds(point + "-real", loss), seconds(point + "-simulated", loss)
    print(f"| {count} | {rate} | {delay} | {float(speed):.0f} | {beside(real[0], simulated[0])} | "
          f"{beside(real[1], simulated[1])} |")
PYTHON
