#!/usr/bin/env bash
# Trains by the processes of mpirun and goes on with those that are left when one is lost: when it was killed, its host
# or its link is down, or it makes no progress (docs/hosts.md, "When a process fails"). The others end then, and this
# script starts as many again from the newest checkpoint, among which the rows and weights are dealt anew.
#
#   usage: tools/elastic.sh [OPTION]... PROGRAM train CONFIG --out RUN ...
#
#   --hosts HOST:N,...    hosts, and how many processes each has; default localhost:<cores>
#   --least N             fewest processes to go on with; default 1
#   --mpirun "WORD ..."   what starts processes, and options of its own; default mpirun
#   --grace SECONDS       in which mpirun may end once a process is lost, before it is killed: it waits for hosts that
#                         cannot be reached; default 30
#
#   e.g. tools/elastic.sh --hosts node1:4,node2:4 build/owt train configs/cifar10_quick.toml --out /shared/runs/eight
#
# All hosts must see RUN in the same place. What was learnt since the last checkpoint is learnt once more: see
# run.checkpoint_every_steps. SIGTERM, SIGINT and SIGUSR1 stop the run with a checkpoint, and this with 75. Ends with
# mpirun's status when the run ends by itself, be it with an error; with 1 where too few processes are left, or three
# were lost in turn without a new checkpoint.
set -euo pipefail

hosts=localhost:$(nproc) least=1 mpirun=(mpirun) grace=30

say() { echo "elastic: $*" >&2; }
stop() {
  say "error: $*"
  exit 1
}

while [ $# -gt 0 ]; do
  case $1 in
    --help | -h)
      sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    --hosts | --least | --mpirun | --grace)
      [ $# -gt 1 ] || stop "$1 wants a value; see --help"
      case $1 in
        --hosts) hosts=$2 ;;
        --least) least=$2 ;;
        --mpirun) read -ra mpirun <<<"$2" ;;
        --grace) grace=$2 ;;
      esac
      shift 2
      ;;
    -*) stop "no option '$1'; see --help" ;;
    *) break ;;
  esac
done
[[ $least =~ ^[1-9][0-9]*$ ]] || stop "--least '$least': wanted a number of processes"
[[ $grace =~ ^[1-9][0-9]*$ ]] || stop "--grace '$grace': wanted seconds"
if [ $# -lt 3 ] || [ "$2" != train ]; then
  stop "wanted PROGRAM train CONFIG --out RUN behind the options; see --help"
fi
command -v "${mpirun[0]}" >/dev/null || stop "there is no '${mpirun[0]}'; install what Debian calls openmpi-bin"

words=("$@") run=''
for ((at = 3; at < ${#words[@]}; at++)); do
  case ${words[at]} in
    --out) run=${words[at + 1]:-} ;;
    --out=*) run=${words[at]#*=} ;;
    --resume | --resume=*) stop "no --resume: a run that is in RUN already goes on, and another begins" ;;
  esac
done
[ -n "$run" ] || stop "the run folder is not given: --out RUN"

# Of the hosts in use, in their order: `names`, how many processes each has, and what it calls itself, which is how
# messages name it.
names=()
declare -A slots own_name
IFS=, read -ra listed <<<"$hosts"
for each in "${listed[@]}"; do
  [[ $each =~ ^([^:]+):([1-9][0-9]*)$ ]] || stop "--hosts: '$each' is not HOST:NUMBER"
  [ -z "${slots[${BASH_REMATCH[1]}]:-}" ] || stop "--hosts: '${BASH_REMATCH[1]}' is there twice"
  names+=("${BASH_REMATCH[1]}")
  slots[${BASH_REMATCH[1]}]=${BASH_REMATCH[2]}
done

work=$(mktemp -d)
launched='' stopped=false
end() {
  [ -z "$launched" ] || kill -KILL "$launched" 2>/dev/null || true
  rm -rf "$work"
}
trap end EXIT
pass_on() {
  stopped=true
  [ -z "$launched" ] || kill -USR1 "$launched" 2>/dev/null || true
}
trap pass_on TERM INT USR1

# Asks all hosts at once for their names; drops those that do not answer.
ask_hosts() {
  local host reached=()
  for host in "${names[@]}"; do
    timeout -k 5 60 "${mpirun[@]}" --host "$host:1" -np 1 hostname >"$work/name-$host" 2>"$work/why-$host" &
  done
  wait
  for host in "${names[@]}"; do
    if [ -s "$work/name-$host" ]; then
      own_name[$host]=$(tail -n 1 "$work/name-$host")
      reached+=("$host")
    else
      say "$host does not answer: $(grep -m 1 '[^ -]' "$work/why-$host" || echo 'nothing in 60 seconds')"
    fi
  done
  names=("${reached[@]}")
}

processes() {
  local host sum=0
  for host in "${names[@]}"; do sum=$((sum + slots[$host])); done
  echo "$sum"
}

# Prints the name that the first message about a lost rank has for its host.
host_of_lost() {
  sed -nE 's/.*rank [0-9]+ on ([^ ]+) \(process [0-9]+\) (was lost|makes no progress).*/\1/p' "$work/errors" | head -n 1
}

# Runs until mpirun ends; sets `status`.
launch() {
  local host list='' lost_at='' shown
  for host in "${names[@]}"; do list+=,$host:${slots[$host]}; done
  : >"$work/errors"
  "${mpirun[@]}" --host "${list#,}" -np "$(processes)" "${words[@]}" --resume auto 2>>"$work/errors" &
  launched=$!
  tail -n +1 -s 0.2 -f --pid="$launched" "$work/errors" >&2 &
  shown=$!
  status=0
  {  # where the shell says nothing of whom it killed
    while kill -0 "$launched"; do
      sleep 0.2
      if [ -z "$lost_at" ] && [ -n "$(host_of_lost)" ]; then lost_at=$SECONDS; fi
      if [ -n "$lost_at" ] && [ $((SECONDS - lost_at)) -gt "$grace" ]; then kill -KILL "$launched" || true; fi
    done
    wait "$launched" || status=$?
  } 2>/dev/null
  launched=
  wait "$shown" || true
}

newest_checkpoint() { cat "$run/checkpoints/latest" 2>/dev/null || true; }

ask_hosts
[ "${#names[@]}" = "${#listed[@]}" ] || stop "start with hosts that can be reached"
in_vain=0
while :; do
  [ "$(processes)" -ge "$least" ] || stop "processes left: $(processes), fewer than --least $least"
  if "$stopped"; then exit 75; fi
  before=$(newest_checkpoint)
  launch
  lost_on=$(host_of_lost)
  # mpirun ends with 0 also where the signal came before there was anything to stop.
  if "$stopped" && [ "$status" = 0 ]; then exit 75; fi
  if "$stopped" || [ "$status" = 0 ] || [ -z "$lost_on" ]; then exit "$status"; fi

  after=$(newest_checkpoint)
  if [ "$after" = "$before" ]; then in_vain=$((in_vain + 1)); else in_vain=0; fi
  [ "$in_vain" -lt 3 ] || stop "three processes in turn were lost before a new checkpoint was written;" \
    "see run.checkpoint_every_steps"
  for host in "${names[@]}"; do
    if [ "${own_name[$host]}" = "$lost_on" ]; then slots[$host]=$((slots[$host] - 1)) && break; fi
  done
  for at in "${!names[@]}"; do
    if [ "${slots[${names[at]}]}" = 0 ]; then unset "names[at]"; fi
  done
  ask_hosts
  say "a process on $lost_on was lost; $(processes) go on from ${after:-the start}"
done
