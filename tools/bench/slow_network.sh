#!/usr/bin/env bash
# Training over slow links: the time of a step on K hosts under each strategy, the bytes that each host sends, and the
# prediction of `owt plan`. The hosts are network namespaces of this machine (virtual_hosts.sh), one rank each.
#
#   usage: tools/bench/slow_network.sh [OPTION]...
#     --owt PROGRAM          default build/owt
#     --nets "NAME ..."      alexnet_small (96 % of the weights in dense layers), cifar10_quick (none); default both.
#                            Any recipe or model in configs, or a recipe's file NAME.toml
#     --hosts "K ..."        default "2 4"
#     --rates "RATE ..."     rate of every link in both directions, in tc's units; default "1gbit 100mbit"
#     --strategies "..."     default "dp dp-zero dp-star owt-a owt-b owt-c owt-d mp-dense pipeline auto"
#                            dp/8 is dp with parallel.average_every = 8, and more steps: a multiple of eight
#     --rows N               rows of a step over all hosts; default 32 for alexnet_small, otherwise 128
#     --steps N              timed steps of a run, at least 2; default 8
#     --links HOW            measured, the default: predict from the measurement of `owt bench-comm` between the hosts;
#                            given: predict from the rate and the latency
#     --probe S              seconds of `owt bench-comm` for each number of hosts; default 16
#     --latency TIME         latency of a message, with --links given; default 100us
#     --seconds S            start no measurement after this time; default 660
#     --quick                two hosts, four steps, dp, owt-c and auto: under two minutes
#     --keep DIR             keep all measurements in DIR
#
# Each point is two runs of `owt time` under mpirun; one is longer by --steps - 1 steps. The difference of the
# interfaces' counters is what these steps sent. The compute times for a prediction are measured by as many ranks at a
# time as there are hosts, because all share this machine's cores. Prints a table, and the predictions beside the
# measurements. Exits 0 whatever the results are, and 1 if something could not be run.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/virtual_hosts.sh"
configs=$(cd "$here/../../configs" && pwd)

owt=build/owt nets="alexnet_small cifar10_quick" hosts="2 4" rates="1gbit 100mbit"
strategies="dp dp-zero dp-star owt-a owt-b owt-c owt-d mp-dense pipeline auto" rows= steps=8 links=measured probe=16 latency=100us seconds=660 keep=
virtual_hosts_seconds=90

stop() {  # stop STATUS WORDS...
  local status=$1
  shift
  echo "slow_network: error: $*" >&2
  exit "$status"
}

read_options() {
  while [ $# -gt 0 ]; do
    case $1 in
      --help | -h)
        sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
        exit 0
        ;;
      --quick)
        hosts=2 steps=4 strategies="dp owt-c auto"
        shift
        continue
        ;;
      --owt | --nets | --hosts | --rates | --strategies | --rows | --steps | --links | --probe | --latency | --seconds | --keep) ;;
      *) stop 2 "no option '$1'; see --help" ;;
    esac
    [ $# -gt 1 ] || stop 2 "$1 wants a value; see --help"
    printf -v "${1#--}" %s "$2"
    shift 2
  done
  [[ $steps =~ ^[1-9][0-9]*$ && $steps != 1 ]] || stop 2 "--steps is '$steps', wanted a number of at least 2"
  [[ $rows =~ ^([1-9][0-9]*)?$ ]] || stop 2 "--rows is '$rows', wanted a number"
  [[ $seconds =~ ^[0-9]+$ ]] || stop 2 "--seconds is '$seconds', wanted a number"
  [[ $probe =~ ^[1-9][0-9]*$ ]] || stop 2 "--probe is '$probe', wanted seconds"
  [[ $links =~ ^(measured|given)$ ]] || stop 2 "--links is '$links', wanted measured or given"
  [[ $hosts =~ ^[2-9\ ]+$ ]] || stop 2 "--hosts is '$hosts', wanted numbers from 2 to 9"
  [ -x "$owt" ] || stop 1 "there is no program '$owt'; build it, or say where it is with --owt"
  owt=$(realpath "$owt")
}

config_of() {
  local net=$1
  for file in "$net" "$configs/$net.toml" "$configs/models/$net.toml"; do
    if [ -f "$file" ]; then
      echo "$file"
      return
    fi
  done
  stop 2 "no recipe or model '$net' in $configs"
}

# For alexnet_small the number corresponds to AlexNet's 128: see the model file.
rows_of() {
  case ${rows:-$1} in
    [1-9]*) echo "$rows" ;;
    alexnet_small) echo 32 ;;
    *) echo 128 ;;
  esac
}

# Sets `words`, the options of every run of a net on this many hosts with equal numbers of rows. The convolution
# algorithm is fixed, so that no run measures it.
set_words() {
  local all
  all=$(rows_of "$1")
  words=("$(config_of "$1")" --device cpu --set "data.batch=$((all / $2 * $2))" --set run.conv_algorithm=direct)
}

sent_by_all() {  # sent_by_all HOSTS COUNTER
  local total=0 i
  for ((i = 1; i <= $1; i++)); do total=$((total + $("$2" "h$i"))); done
  echo "$total"
}

# The parameter average_every under dp/8.
every_of() { [[ $1 == */* ]] && echo "${1#*/}" || echo 1; }

# Runs `steps` steps on all hosts; prints the bytes sent, by the interfaces' counters and with all headers.
run_steps() {
  local count=$1 strategy=$2 steps=$3 table=$4 bytes wire
  bytes=$(sent_by_all "$count" sent_bytes)
  wire=$(sent_by_all "$count" sent_on_wire)
  mpirun_on_hosts "$count" "$owt" time "${words[@]}" --workers "$count" --threads 1 --parallel "${strategy%/*}" \
    --set parallel.average_every="$(every_of "$strategy")" --steps "$steps" --csv "$table" >"$table.log" 2>&1 || return 1
  echo $(($(sent_by_all "$count" sent_bytes) - bytes)) $(($(sent_by_all "$count" sent_on_wire) - wire))
}

measure() {
  local net=$1 count=$2 rate=$3 strategy=$4 point every more short long failed=
  point=$folder/$net-$count-$rate-${strategy//\//_}
  every=$(every_of "$strategy")
  more=$(((steps - 2 + every) / every * every))
  short=$(run_steps "$count" "$strategy" "$every" "$point.short.csv") || failed=$point.short.csv.log
  if [ -z "$failed" ]; then
    long=$(run_steps "$count" "$strategy" $((every + more)) "$point.csv") || failed=$point.csv.log
  fi
  if [ -n "$failed" ]; then
    status=1
    echo "FAILED: $net, $count hosts, $rate, $strategy: $(grep -m 1 'owt: error' "$failed" || tail -n 1 "$failed")" >&2
    return
  fi
  echo "$net $count $rate $strategy $more $short $long" >>"$folder/counters"
}

# Sets `network`, the options of `owt plan` for the links between this many hosts.
measure_links() {
  local count=$1 rate=$2 file=$folder/links-$1-$2.json
  network=(--bandwidth "$rate" --latency "$latency")
  [ "$links" = measured ] || return 0
  mpirun_on_hosts "$count" "$owt" bench-comm --threads 1 --sizes 4K..1M --seconds "$probe" --json "$file" \
    >"$file.log" 2>&1 || stop 1 "owt bench-comm failed: $(tail -n 1 "$file.log")"
  network=(--links "$file")
}

# Runs once for all strategies with the same average_every.
predict() {
  local net=$1 count=$2 rate=$3 every result
  every=$(every_of "$4")
  result=$folder/$net-$count-$rate
  [ "$every" = 1 ] || result+=-every$every
  [ ! -f "$result.json" ] || return 0
  "$owt" plan "${words[@]}" --workers "$count" --hosts "$count" "${network[@]}" \
    --measure --ranks-here "$count" --threads "$count" --set parallel.average_every="$every" --json "$result.json" \
    >"$result.plan" 2>&1 || stop 1 "owt plan failed: $(tail -n 1 "$result.plan")"
}

measure_all() {
  local recipe net count rate strategy words network
  for count in $hosts; do
    for rate in $rates; do
      make_hosts "$count" "$rate"
      measure_links "$count" "$rate"
      for recipe in $nets; do
        net=$(basename "$recipe" .toml)
        set_words "$recipe" "$count"
        for strategy in $strategies; do
          predict "$net" "$count" "$rate" "$strategy"
          if [ $SECONDS -ge "$seconds" ]; then
            echo "not measured, the time is up: $net, $count hosts, $rate, $strategy"
          else
            measure "$net" "$count" "$rate" "$strategy"
          fi
        done
      done
      remove_hosts
    done
  done
}

read_options "$@"
enter_virtual_hosts "${BASH_SOURCE[0]}" "$@" || exit 1
status=0
folder=${keep:-$TMPDIR/measurements}
mkdir -p "$folder"
: >"$folder/counters"
measure_all
python3 "$here/slow_network.py" "$folder" || status=1
exit "$status"
