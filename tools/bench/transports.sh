#!/usr/bin/env bash
# Compares processes over MPI and over TCP (owt launch): the time of a step between hosts, which are network namespaces
# of this machine (virtual_hosts.sh). The two take turns; the table has the medians of all turns, and their ratio.
#
#   usage: tools/bench/transports.sh [OPTION]...
#     --owt PROGRAM          default build/owt
#     --nets "NAME ..."      default "alexnet_small cifar10_quick"
#     --hosts "K ..."        default "2 4"
#     --rates "RATE ..."     of every link in both directions, in tc's units; none: no limit; default "1gbit none"
#     --strategies "..."     default "dp owt-d"
#     --steps N              timed steps of a run; default 8
#     --turns N              runs over each; default 5
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/virtual_hosts.sh"
configs=$(cd "$here/../../configs" && pwd)
owt=build/owt nets="alexnet_small cifar10_quick" hosts="2 4" rates="1gbit none" strategies="dp owt-d" steps=8 turns=5
virtual_hosts_seconds=120
stop() {
  echo "transports: error: $*" >&2
  exit 1
}
arguments=("$@")
while [ $# -gt 0 ]; do
  case $1 in
    --help | -h)
      sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    --owt | --nets | --hosts | --rates | --strategies | --steps | --turns) ;;
    *) stop "no option '$1'; see --help" ;;
  esac
  [ $# -gt 1 ] || stop "$1 wants a value; see --help"
  printf -v "${1#--}" %s "$2"
  shift 2
done
owt=$(realpath "$owt")
enter_virtual_hosts "${BASH_SOURCE[0]}" "${arguments[@]}" || exit 1
export OMP_WAIT_POLICY=PASSIVE

over_mpi() { mpirun_on_hosts "$@"; }
over_tcp() {
  local count=$1 list=$virtual_network.1 i
  shift
  for ((i = 2; i <= count; i++)); do list+=,$virtual_network.$i; done
  timeout -s KILL "$virtual_hosts_seconds" "$owt" launch --hosts "$list" --ssh "$TMPDIR/by_address" "$@"
}
config_of() {
  local file
  for file in "$configs/$1.toml" "$configs/models/$1.toml"; do
    [ ! -f "$file" ] || { echo "$file" && return; }
  done
}
median() { sort -g | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }

echo "| network | hosts | rate | strategy | MPI, ms | TCP, ms | TCP / MPI |"
echo "|---|---|---|---|---|---|---|"
for count in $hosts; do
  for rate in $rates; do
    make_hosts "$count" "${rate/none/100gbit}"
    if [ "$rate" = none ]; then
      for ((i = 1; i <= count; i++)); do tc qdisc del dev "v$i" root && tc -n "h$i" qdisc del dev e0 root; done
    fi
    for net in $nets; do
      rows=128
      [ "$net" != alexnet_small ] || rows=32
      for strategy in $strategies; do
        rm -f "$TMPDIR"/times_*
        for ((turn = 0; turn < turns; turn++)); do
          for over in mpi tcp; do
            "over_$over" "$count" "$owt" time "$(config_of "$net")" --device cpu --set data.batch=$rows \
              --set run.conv_algorithm=direct --workers "$count" --threads 1 --parallel "$strategy" --steps "$steps" \
              >"$TMPDIR/out" 2>&1 || stop "$net, $strategy over $over: $(tail -n 3 "$TMPDIR/out")"
            sed -n 's/^step \([0-9.]*\) ms, .*/\1/p' "$TMPDIR/out" >>"$TMPDIR/times_$over"
          done
        done
        mpi=$(median <"$TMPDIR/times_mpi") tcp=$(median <"$TMPDIR/times_tcp")
        echo "| $net | $count | $rate | $strategy | $mpi | $tcp | $(awk "BEGIN { printf \"%.2f\", $tcp / $mpi }") |"
      done
    done
    remove_hosts
  done
done
