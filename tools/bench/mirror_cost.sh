#!/usr/bin/env bash
# The cost of the mirror of a run with changing workers (docs/elastic.md) over slow links: the bytes that a worker sends
# for a renewal, and the time of a step with a renewal every 10 steps and without. The hosts are network namespaces of
# this machine (virtual_hosts.sh), one worker each.
#
#   usage: tools/bench/mirror_cost.sh [OPTION]...
#     --owt PROGRAM          default build/owt
#     --model NAME           of configs/models; default alexnet_small (96 % of the weights in dense layers)
#     --hosts "K ..."        default "2 4"
#     --rate RATE            of every link in both directions, in tc's units; default 1gbit
#     --strategies "..."     default "dp dp-zero owt-a"
#     --rows N               of a step; default 32
#     --steps N              of a run, a multiple of 10; default 60
#     --turns N              default 3
#
# Prints, for each number of hosts and strategy, the medians of the times over all intervals of 10 steps; the runs with
# and without take turns. Bytes are the difference of the interfaces' counters, so they have the headers of all packets.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/virtual_hosts.sh"
owt=build/owt model=alexnet_small hosts="2 4" rate=1gbit strategies="dp dp-zero owt-a" rows=32 steps=60 turns=3
stop() {
  echo "mirror_cost: error: $*" >&2
  exit 1
}
arguments=("$@")
while [ $# -gt 0 ]; do
  case $1 in
    --help | -h)
      sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    --owt | --model | --hosts | --rate | --strategies | --rows | --steps | --turns) ;;
    *) stop "no option '$1'; see --help" ;;
  esac
  [ $# -gt 1 ] || stop "$1 wants a value; see --help"
  printf -v "${1#--}" %s "$2"
  shift 2
done
owt=$(realpath "$owt")
configs=$(cd "$here/../../configs" && pwd)
[ -f "$configs/models/$model.toml" ] || stop "no model '$model' in $configs/models"
enter_virtual_hosts "${BASH_SOURCE[0]}" "${arguments[@]}" || exit 1
export OMP_WAIT_POLICY=PASSIVE virtual_hosts_output=$TMPDIR

cat >"$TMPDIR/recipe.toml" <<END
model = "$configs/models/$model.toml"
[data]
format = "synthetic"
train_images = 512
test_images = 16
batch = $rows
[optimizer]
learning_rate = 0.0001
momentum = 0.9
[schedule]
max_steps = $steps
[run]
device = "cpu"
conv_algorithm = "direct"
log_every = 10
eval_every_epochs = 0
checkpoint_every_epochs = 0
END

sent_by_all() {
  local total=0 i
  for ((i = 1; i <= $1; i++)); do total=$((total + $(sent_bytes "h$i"))); done
  echo "$total"
}
# run HOSTS STRATEGY EVERY: appends the times of steps, in ms, to ms.EVERY; sets `sent`, the bytes of all hosts.
run() {
  local list=10.99.0.1 i before
  for ((i = 2; i <= $1; i++)); do list+=,10.99.0.$i; done
  rm -rf "$TMPDIR/run" "$TMPDIR"/h?
  before=$(sent_by_all "$1")
  "$TMPDIR/by_address" 10.99.0.1 "exec $owt launch --hosts $list --ssh $TMPDIR/by_address --elastic $1:$1 \
    $owt train $TMPDIR/recipe.toml --out $TMPDIR/run --threads 1 --parallel $2 --set elastic.mirror_every=$3" ||
    stop "$2 on $1 hosts: $(tail -n 3 "$TMPDIR/h1")"
  sent=$(($(sent_by_all "$1") - before))
  # The first interval has the start.
  sed -n 's/.*"kind":"train".*"images_per_second":\([0-9.e+]*\).*/\1/p' "$TMPDIR/run/metrics.jsonl" |
    awk -v rows="$rows" 'NR > 2 { print 1000 * rows / $1 }' >>"$TMPDIR/ms.$3"
}
median() { sort -g "$1" | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }

never=1000000
echo "| hosts | strategy | MB per renewal | ms per step without | every 10 steps | more |"
echo "|---|---|---|---|---|---|"
for count in $hosts; do
  make_hosts "$count" "$rate"
  for strategy in $strategies; do
    rm -f "$TMPDIR"/ms.*
    renewals=0 more=0
    for ((turn = 0; turn < turns; turn++)); do
      run "$count" "$strategy" $never
      more=$((more - sent))
      run "$count" "$strategy" 10
      more=$((more + sent)) renewals=$((renewals + steps / 10))
    done
    awk -v more="$more" -v messages=$((renewals * count)) -v off="$(median "$TMPDIR/ms.$never")" \
      -v on="$(median "$TMPDIR/ms.10")" -v hosts="$count" -v strategy="$strategy" 'BEGIN {
        printf "| %d | %s | %.2f | %.0f | %.0f | %.1f %% |\n", hosts, strategy, more / messages / 1e6, off, on,
          100 * (on / off - 1) }'
  done
  remove_hosts
done
