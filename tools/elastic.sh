#!/usr/bin/env bash
# Trains with processes of mpirun, and resumes with fewer processes when one is lost. A process is lost if it was
# killed, if its host or link is down, or if it makes no progress (docs/hosts.md, "When a process fails"). The other
# processes then end. This script starts processes again from the latest checkpoint and splits rows and weights among
# them.
#
#   usage: tools/elastic.sh [OPTION]... PROGRAM train CONFIG --out RUN ...
#
#   --hosts HOST:N,...    hosts, and the number of processes on each; default localhost:<cores>
#   --least N             fewest processes to continue with; default 1
#   --mpirun "WORD ..."   the command that starts processes, with its options; default mpirun
#   --grace SECONDS       time for mpirun to end after a process was lost, before it is killed: it waits for hosts that
#                         cannot be reached; default 30
#
#   e.g. tools/elastic.sh --hosts node1:4,node2:4 build/owt train configs/cifar10_quick.toml --out /shared/runs/eight
#
# All hosts must see RUN under the same path. Steps after the last checkpoint are repeated: see
# run.checkpoint_every_steps. SIGTERM, SIGINT and SIGUSR1 stop the run with a checkpoint; this script then exits with
# 75. If the run ends by itself, also with an error, it exits with mpirun's status. It exits with 1 if too few processes
# are left, or if three in a row were lost without a new checkpoint.
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

# For the hosts in use: `names`, in their order; the number of processes of each; and the host's own name, which
# messages use.
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

# Asks all hosts at once for their names; removes hosts that do not answer.
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

# Prints the host name in the first message about a lost rank.
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
  {  # in a group, so that the shell does not report killed processes
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
  # mpirun also exits with 0 if the signal came before there was a run to stop.
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
