#!/usr/bin/env bash
# Trains under stress and checks that nothing is lost. The processes of a run (mpirun, four at first) are killed,
# stopped and asked to end. They resume with other numbers of processes and other strategies, and meet damaged images,
# full disks and cut links.
#
#   usage: tools/bench/soak.sh [MINUTES] [OPTION]...          default: 20 minutes
#     --owt PROGRAM      default build/owt
#     --seed N           seed of the first round; the next rounds have N + 1, N + 2, ...; default: from the clock
#     --rounds N         largest number of rounds
#     --legs N           disturbances in a round; default 3
#     --kinds "KIND ..." kinds of disturbances; default all of them
#     --timeout S        parallel.timeout_s of the runs; default 5
#     --grace S          time beyond --timeout after which a run that should end counts as stuck; default 30
#     --keep DIR         folder for a failed round; default owt-soak-SEED in the folder for temporary files
#
# A round is one run. It begins with four processes; each leg of it ends with a disturbance at a random step:
#   kill    a rank gets SIGKILL           stop   a rank gets SIGSTOP; the others give it up after --timeout
#   term    a rank gets SIGTERM           usr1   mpirun or a rank gets SIGUSR1
#   disk    the disk of the run folder is full at checkpoints; the run continues, and is stopped, or has space again
#   link    a link between virtual hosts goes down (virtual_hosts.sh)
#   blink   a link goes down for one second only; the run trains to its last step
#   finish  no disturbance; the run trains to its last step
# The next leg resumes with a random number of processes under a random strategy. The last leg finishes. Some rounds
# have damaged images: under `some` fewer than data.max_corrupt allows, and under `many` more, so that their first leg
# ends with an error and the next allows them.
#
# After each leg it checks: the exit codes and the one error line of each process fit the disturbance; no process is
# left; the checksums of the latest checkpoint match, and it is not older than it should be; metrics.jsonl has every
# step once and in order. The losses must agree with an undisturbed run of one process: to 1e-4 in the first 100 steps,
# to 1e-2 later.
#
# Exits 0 with a table; or 1 at the first violation, with the round's folder, seed and command. `disk`, `link` and
# `blink` need namespaces; a line reports if they are skipped because namespaces cannot be made.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR
source "$here/virtual_hosts.sh"

minutes=20 owt=build/owt seed="" rounds=1000000 legs=3 timeout=5 grace=30 keep=""
kinds="kill stop term usr1 finish some many disk blink link"
need_namespaces='disk|blink|link'
strategies=(dp dp-zero dp-star owt-a owt-b owt-c owt-d mp mp-dense)
checkpoint_every=10
place="(during|after) [a-z_]+( of '[^']+')?"  # in errors: a collective and its data
start_seconds=150  # limit for a leg to reach its step
virtual_hosts_seconds=$((2 * start_seconds))
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none                   # Open MPI 4
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none  # Open MPI 5

stop() {  # stop STATUS WORDS...
  local status=$1
  shift
  echo "soak: error: $*" >&2
  exit "$status"
}

read_options() {
  while [ $# -gt 0 ]; do
    case $1 in
      --help | -h)
        sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
        exit 0
        ;;
      --owt | --seed | --rounds | --legs | --kinds | --timeout | --grace | --keep)
        [ $# -gt 1 ] || stop 2 "$1 wants a value; see --help"
        printf -v "${1#--}" %s "$2"
        shift 2
        ;;
      -*) stop 2 "no option '$1'; see --help" ;;
      *)
        minutes=$1
        shift
        ;;
    esac
  done
  seed=${seed:-$(date +%s)}
  local name kind
  for name in minutes seed rounds legs timeout grace; do
    [[ ${!name} =~ ^(0|[1-9][0-9]{0,9})$ ]] || stop 2 "$name is '${!name}', wanted a whole number"
  done
  for kind in $kinds; do
    [[ $kind =~ ^(kill|stop|term|usr1|finish|some|many|disk|blink|link)$ ]] || stop 2 "no kind '$kind'; see --help"
  done
  [ -x "$owt" ] || stop 1 "there is no program '$owt'; build it, or say where it is with --owt"
  command -v mpirun >/dev/null || stop 1 "there is no mpirun here; install what Debian calls openmpi-bin"
  "$owt" devices | grep -q '^mpi .*Open MPI' || stop 1 "'$owt' was built without Open MPI"
  owt=$(realpath "$owt")
  keep=${keep:-${TMPDIR:-/tmp}/owt-soak-$seed}
}

may() { [[ " $kinds " = *" $1 "* ]]; }  # may KIND: happen

# If virtual hosts can be made, all of the soak runs among them. Then mounts and processes disappear with it, however it
# ends.
enter_or_leave_out() {
  local reason
  if ! grep -qwE "$need_namespaces" <<<"$kinds"; then return; fi
  if [ -n "${inside_virtual_hosts:-}" ] || reason=$(virtual_hosts_possible 2>&1); then
    enter_virtual_hosts "${BASH_SOURCE[0]}" "$minutes" --owt "$owt" --seed "$seed" --rounds "$rounds" --legs "$legs" \
      --kinds "$kinds" --timeout "$timeout" --grace "$grace" --keep "$keep"
    ip link set lo up
    return
  fi
  echo "skipped: full disks and cut links: $reason"
  # shellcheck disable=SC2086
  kinds=$(without "$need_namespaces" $kinds)
}

without() {  # without PATTERN WORD...: the words that do not match, and `finish` if none are left
  local pattern=$1
  shift
  printf '%s\n' "$@" | grep -vxE "$pattern" | xargs | grep . || echo finish
}

# -- Results and violations

declare -A count resumed worst

wrong() {
  trap - ERR
  echo "FAILED: round $round, seed $round_seed, leg $leg ($kind, $ranks processes, $strategy): $*" >&2
  tail -n 15 "$work"/leg/* 2>/dev/null | sed 's/^/  | /' >&2
  kill_ranks
  mkdir -p "$keep"
  cp -a "$work/." "$keep"
  echo "kept: $keep" >&2
  echo "once more: tools/bench/soak.sh --seed $round_seed --rounds 1 --legs $legs --kinds '$kinds' --timeout $timeout" >&2
  print_table
  exit 1
}

note_leg() {  # note_leg DIFFERENCE: the leg ended correctly
  count[$kind]=$((${count[$kind]:-0} + 1))
  resumed[$kind]=$((${resumed[$kind]:-0} + (newest > 0)))
  worst[$kind]=$(printf '%s\n' "${worst[$kind]:-0}" "$1" | sort -g | tail -n 1)
}

print_table() {
  local each
  printf '\n%-8s %22s %16s %24s\n' legs "ended as expected" "had resumed" "worst loss difference"
  for each in kill stop term usr1 finish some many disk blink link; do
    [ -z "${count[$each]:-}" ] ||
      printf '%-8s %22s %16s %24s\n' "$each" "${count[$each]}" "${resumed[$each]}" "${worst[$each]}"
  done
}

# -- The data, the recipe, and the losses of an undisturbed run

make_data() {
  "$here/soak.py" photos "$work/photos/train" 120 1
  "$here/soak.py" photos "$work/photos/val" 6 2
  {
    "$owt" prepare folder "$work/photos/train" "$work/clean" --size 0 --shard-images 100
    "$owt" prepare folder "$work/photos/val" "$work/clean" --split val --size 0
    "$owt" prepare stats "$work/clean"
  } >"$work/prepare.log" 2>&1 || stop 1 "the data could not be made: $(cat "$work/prepare.log")"
  rm -r "$work/photos"
  cat >"$work/recipe.toml" <<'END'
[model]
name = "soak"
input = [3, 16, 16]
classes = 4
layer = [
  { name = "conv1", type = "conv", out = 8, kernel = 3, pad = 1, init = { type = "msra" } },
  { name = "relu1", type = "relu" },
  { name = "pool1", type = "max_pool", kernel = 2 },
  { name = "drop1", type = "dropout", rate = 0.2 },
  { name = "fc1", type = "dense", out = 30 },
  { name = "relu2", type = "relu" },
  { name = "fc2", type = "dense", out = 4 },
]
[data]
format = "shards"
batch = 24
max_corrupt = 0.01
augment = { crop = 16, short_side = 20, mirror = true, mean = "channel", std = "channel" }
[optimizer]
learning_rate = 0.0005
momentum = 0.9
[schedule]
max_steps = 1000000
[run]
device = "cpu"
log_every = 1
seed = 5
equality_every = 10
END
  echo "checkpoint_every_steps = $checkpoint_every" >>"$work/recipe.toml"
}

# damage_data RECORDS: a copy of the data for this round; data.max_corrupt allows 4 of its 480 images.
damage_data() {
  cp -r "$work/clean" "$work/damaged"
  "$here/soak.py" damage "$work/damaged/train" "$1" "$round_seed"
  data=$work/damaged
}

# Sets `reference` to the metrics of an undisturbed run of one process, with at least this many steps on the round's
# data.
refer_to() {
  local steps=50 folder=$data-reference
  reference=$folder/metrics.jsonl
  while [ "$steps" -lt "$1" ]; do steps=$((steps * 2)); done
  if [ "$(last_step_of "$reference")" -ge "$steps" ]; then return; fi
  rm -rf "$folder"
  "$owt" train "$work/recipe.toml" --data "$data" --out "$folder" --threads 1 --steps "$steps" "${allow[@]}" \
    --set run.checkpoint_every_steps=100000 >"$folder.log" 2>&1 || wrong "the reference run failed: $(cat "$folder.log")"
}

# -- A leg

last_step_of() {
  { tail -n 6 "$1" | sed -n 's/^{"kind":"train","step":\([0-9]*\),.*/\1/p' | tail -n 1 | grep .; } 2>/dev/null || echo 0
}

# Step of the latest checkpoint; 0: none.
newest_step() {
  local name
  name=$(cat "$run/checkpoints/latest" 2>/dev/null) || name=step-0
  echo $((10#${name#step-}))
}

# The script that mpirun starts. It records the rank's messages and exit code, and exits when LEAVERS ranks have,
# because mpirun kills the others as soon as one has exited. 0: the rank is mpirun's direct child, which matters when it
# is killed.
write_rank_script() {
  cat >"$work/rank.sh" <<'END'
#!/bin/sh
leg=$1 leavers=$2
shift 2
exec 2>"$leg/errors.$OMPI_COMM_WORLD_RANK"
[ "$leavers" != 0 ] || exec "$@"
trap : TERM USR1
"$@"
code=$?
echo $code >"$leg/code.$OMPI_COMM_WORLD_RANK"
tries=0
while [ "$(ls "$leg" | grep -c '^code')" -lt "$leavers" ] && [ $tries -lt 200 ]; do
  tries=$((tries + 1))
  sleep 0.1
done
exit $code
END
  chmod +x "$work/rank.sh"
}

# launch LEAVERS STEPS: the round's run on `ranks` processes under `strategy`, up to step STEPS.
launch() {
  local leavers=$1 launcher=(mpirun -np "$ranks")
  case $kind in link | blink) launcher=(mpirun_on_hosts "$ranks" -x OWT_TEST_MARK) ;; esac
  rm -rf "$work/leg"
  mkdir "$work/leg"
  OWT_TEST_MARK=$ranks_mark "${launcher[@]}" "$work/rank.sh" "$work/leg" "$leavers" \
    "$owt" train "$work/recipe.toml" --data "$data" --out "$run" --resume auto --parallel "$strategy" --threads 1 \
    --steps "$2" --set "parallel.timeout_s=$timeout" "${allow[@]}" "${grid[@]}" >"$work/leg/launcher" 2>&1 &
  launched=$!
}

# Waits until metrics.jsonl has the line of this step.
wait_for_step() {
  local begun=$SECONDS
  while [ "$(last_step_of "$run/metrics.jsonl")" -lt "$1" ]; do
    kill -0 "$launched" 2>/dev/null || wrong "it ended before step $1"
    [ $((SECONDS - begun)) -le "$start_seconds" ] || wrong "no step $1 within $start_seconds s"
    sleep 0.05
  done
  expect_resumed
}

expect_resumed() {
  [ "$newest" = 0 ] || grep -q "^resumed from .* at step $newest of " "$work/leg/errors.0" ||
    wrong "it did not go on from step $newest"
}

# wait_for_end SECONDS: waits for the launcher and all ranks; sets `status`. mpirun does not notice if it cannot reach
# the processes on the other side of a link.
wait_for_end() {
  local begun=$SECONDS running
  while running=$(ranks_running) && { [ -n "$running" ] || { [ "$kind" != link ] && kill -0 "$launched" 2>/dev/null; }; }; do
    [ $((SECONDS - begun)) -le "$1" ] || wrong "not ended after $1 s; still there: ${running:-mpirun}"
    sleep 0.1
  done
  if [ "$kind" = link ]; then kill -KILL "$launched" 2>/dev/null || true; fi
  status=0
  wait "$launched" 2>/dev/null || status=$?
  launched=
}

# expect_line RANK PATTERN: the rank printed one error line, and it matches.
expect_line() {
  local file=$work/leg/errors.$1 lines
  lines=$(grep -c 'owt: error: ' "$file" 2>/dev/null || true)
  [ "$lines" = 1 ] || wrong "rank $1 printed ${lines:-0} lines of error, wanted one: $2"
  grep -qE "owt: error: .*$2" "$file" || wrong "rank $1 printed '$(grep 'owt: error: ' "$file")', wanted: $2"
}

expect_codes() {  # expect_codes CODE [BUT_RANK]
  local rank code
  for ((rank = 0; rank < ranks; rank++)); do
    [ "$rank" != "${2:-}" ] || continue
    code=$(cat "$work/leg/code.$rank" 2>/dev/null || echo none)
    [ "$code" = "$1" ] || wrong "rank $rank ended with $code, wanted $1"
  done
}

expect_lost() {  # expect_lost RANK: all others report it
  local rank
  [ "$status" != 0 ] || wrong "mpirun ended with 0"
  for ((rank = 0; rank < ranks; rank++)); do
    [ "$rank" = "$1" ] || expect_line "$rank" "rank $1 .*was lost: .*; $place, step [0-9]+"
  done
}

expect_failed() {  # expect_failed PATTERN: every rank failed for this reason
  local rank
  [ "$status" != 0 ] || wrong "mpirun ended with 0"
  for ((rank = 0; rank < ranks; rank++)); do expect_line "$rank" "$1"; done
  expect_codes 1
}

expect_stopped() {
  local rank
  expect_codes 75
  for ((rank = 0; rank < ranks; rank++)); do
    if grep -q 'owt: error' "$work/leg/errors.$rank"; then wrong "rank $rank printed an error"; fi
  done
  [ "$(newest_step)" = "$(last_step_of "$run/metrics.jsonl")" ] ||
    wrong "the checkpoint is of step $(newest_step), the last step was $(last_step_of "$run/metrics.jsonl")"
}

# -- Kinds of legs. Each begins where the run is, at `logged` steps, and adds some steps.

leg_kill() {
  launch 0 1000000
  wait_for_step "$target"
  kill -KILL "$(pid_of_rank "$victim")"
  wait_for_end $((timeout + grace))
  expect_lost "$victim"
}

leg_stop() {
  launch $((ranks - 1)) 1000000
  wait_for_step "$target"
  kill -STOP "$(pid_of_rank "$victim")"
  wait_for_end $((timeout + grace))
  expect_lost "$victim"
  expect_codes 1 "$victim"
}

leg_term() {
  launch "$ranks" 1000000
  wait_for_step "$target"
  kill -TERM "$(pid_of_rank "$victim")"
  wait_for_end "$grace"
  expect_stopped
}

leg_usr1() {
  launch "$ranks" 1000000
  wait_for_step "$target"
  if [ $((victim % 2)) = 0 ]; then kill -USR1 "$launched"; else kill -USR1 "$(pid_of_rank "$victim")"; fi
  wait_for_end "$grace"
  expect_stopped
}

# The run continues without checkpoints, and writes them again when there is space. If it is stopped before, it ends
# with an error.
leg_disk() {
  launch "$ranks" 1000000
  wait_for_step "$target"
  dd if=/dev/zero of="$disk/ballast" bs=1k 2>/dev/null || true
  truncate -s "-${spare}K" "$disk/ballast"  # less than the size of a checkpoint
  wait_until "no checkpoint missed" grep -q "there is no checkpoint of step .*No space left on device" "$work/leg/errors.0"
  if [ $((spare % 2)) = 0 ]; then
    kill -USR1 "$launched"
    wait_for_end "$grace"
    expect_failed "could not be written: .*No space left on device"
    rm "$disk/ballast"
  else
    local missed
    missed=$(newest_step)
    rm "$disk/ballast"
    wait_until "no checkpoint after the disk had room again" has_checkpoint_after "$missed"
    kill -USR1 "$launched"
    wait_for_end "$grace"
    expect_stopped
  fi
}

has_checkpoint_after() { [ "$(newest_step)" -gt "$1" ]; }

# wait_until WRONG COMMAND...: until the command succeeds; the run must not end
wait_until() {
  local begun=$SECONDS
  until "${@:2}"; do
    kill -0 "$launched" 2>/dev/null || wrong "it ended: $1"
    [ $((SECONDS - begun)) -le "$start_seconds" ] || wrong "$1 within $start_seconds s"
    sleep 0.05
  done
}

leg_link() {
  local rank
  make_hosts "$ranks" 1gbit
  launch 0 1000000
  wait_for_step "$target"
  ip -n "h$((victim + 1))" link set e0 down
  wait_for_end $((timeout + grace))
  for ((rank = 0; rank < ranks; rank++)); do ip netns pids "h$((rank + 1))" | xargs -r kill -KILL 2>/dev/null || true; done
  remove_hosts
  for ((rank = 0; rank < ranks; rank++)); do
    if [ "$rank" != "$victim" ]; then
      expect_line "$rank" "rank $victim .*was lost: .*; $place, step [0-9]+"
    else
      expect_line "$rank" "rank $([ "$victim" = 0 ] && echo '[1-3]' || echo 0) .*was lost: .*; $place, step [0-9]+"
    fi
  done
}

leg_blink() {
  make_hosts "$ranks" 1gbit
  launch "$ranks" $((target + 20))
  wait_for_step "$target"
  ip -n "h$((victim + 1))" link set e0 down
  sleep 1
  ip -n "h$((victim + 1))" link set e0 up
  target=$((target + 20))
  expect_finished
  remove_hosts
}

leg_finish() {
  launch "$ranks" "$target"
  expect_finished
}

expect_finished() {
  wait_for_end "$start_seconds"
  expect_codes 0
  expect_resumed
  [ "$(grep -c '^test accuracy' "$work/leg/launcher")" = 1 ] || wrong "not one result on stdout"
  [ "$(last_step_of "$run/metrics.jsonl")" = "$target" ] || wrong "it did not train to step $target"
  [ "$(newest_step)" = "$target" ] || wrong "the newest checkpoint is of step $(newest_step), wanted $target"
  [ -z "$(find "$run" -name '*.tmp' -o -name '*.old')" ] || wrong "it left $(find "$run" -name '*.tmp' -o -name '*.old')"
}

leg_some() {
  target=$((target + 20))  # a whole epoch reads every image
  leg_finish
  grep -q 'warning: damaged record 1 of at most 4' "$work"/leg/errors.* || wrong "nobody warns of a damaged record"
}

# The processes add up their counts, here in every step (run.log_every).
leg_many() {
  launch "$ranks" 1000000
  wait_for_end "$start_seconds"
  expect_failed 'damaged record\(s\) among the training images, at most 4 allowed \(data.max_corrupt\)'
  allow=(--set data.max_corrupt=1)
}

# -- A round

# choose_processes LEAST MOST: sets `ranks`, `strategy` and `grid` at random.
choose_processes() {
  ranks=$(($1 + RANDOM % ($2 - $1 + 1)))
  strategy=${strategies[RANDOM % ${#strategies[@]}]}
  grid=()
  if [ $((RANDOM % 3)) = 0 ] && [ "$ranks" = 4 ]; then grid=(--set parallel.model_ranks=2); fi
}

check_files() {  # check_files [whole]: whole: no line may be cut off
  local compared
  if [ -e "$run/checkpoints/latest" ]; then
    "$owt" inspect "$run" >"$work/leg/inspected" 2>&1 || wrong "owt inspect: $(cat "$work/leg/inspected")"
    grep -q 'all checksums match' "$work/leg/inspected" || wrong "owt inspect does not say that all checksums match"
  fi
  refer_to "$(last_step_of "$run/metrics.jsonl")"
  compared=$("$here/soak.py" compare "$run/metrics.jsonl" "$reference" "$@" 2>&1) || wrong "$compared"
  [ "$(newest_step)" -ge "$newest" ] || wrong "the newest checkpoint was of step $newest, now of $(newest_step)"
  # The line of a step is written when the checkpoint of the previous step is complete.
  [ "$(newest_step)" -ge $(((${compared#* } - 1) / checkpoint_every * checkpoint_every)) ] ||
    wrong "the newest checkpoint is of step $(newest_step), though ${compared#* } steps are done"
  note_leg "${compared% *}"
}

run_leg() {  # run_leg KIND
  local whole=()
  kind=$1
  leg=$((leg + 1))
  logged=$(last_step_of "$run/metrics.jsonl")
  newest=$(newest_step)
  target=$((logged + 2 + RANDOM % 30))
  victim=$((RANDOM % ranks)) spare=$((RANDOM % 120))
  "leg_$kind"
  case $kind in term | usr1 | finish | blink | some) whole=(whole) ;; esac
  check_files "${whole[@]}"
  printf '  %-6s %s processes %-8s %-6s steps %s to %s\n' "$kind" "$ranks" "$strategy" "${grid:+grid}" "$newest" \
    "$(last_step_of "$run/metrics.jsonl")"
}

run_round() {
  local disturbances
  # Random numbers are drawn in this shell only; a subshell would draw others. Neighbouring seeds begin with equal
  # numbers.
  RANDOM=$round_seed
  : $((RANDOM + RANDOM + RANDOM))
  leg=0 data=$work/clean allow=()
  rm -rf "$run" "$work"/damaged*
  case $((RANDOM % 4)) in
    0) if may some; then damaged_leg some 1 4; fi ;;
    1) if may many; then damaged_leg many 20 30; fi ;;
  esac
  # shellcheck disable=SC2086
  read -ra disturbances <<<"$(without 'some|many' $kinds)"
  while [ "$leg" -lt "$legs" ]; do
    if [ "$leg" = 0 ]; then choose_processes 4 4; else choose_processes 2 4; fi
    run_leg "${disturbances[RANDOM % ${#disturbances[@]}]}"
  done
  choose_processes 1 4
  run_leg finish
}

damaged_leg() {  # damaged_leg KIND LEAST MOST: with LEAST to MOST damaged images
  damage_data $(($2 + RANDOM % ($3 - $2 + 1)))
  choose_processes 4 4
  run_leg "$1"
}

make_disk() {
  disk=$work/disk
  mkdir "$disk"
  if may disk; then mount -t tmpfs -o size=6m none "$disk"; fi
  run=$disk/run
}

clean_up() {
  if [ -n "$launched" ]; then kill -KILL "$launched" && wait "$launched"; fi 2>/dev/null || true
  kill_ranks
  if mountpoint -q "$disk"; then umount -l "$disk"; fi
  rm -rf "$work"
}

read_options "$@"
# shellcheck source-path=SCRIPTDIR
source "$here/ranks.sh"
enter_or_leave_out
round=0 launched="" kind=none ranks=0 strategy=none leg=0
work=$(mktemp -d) disk=""
export TMPDIR=$work  # mpirun leaves files here when it is killed
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
make_disk
write_rank_script
make_data
while [ "$round" -lt "$rounds" ] && [ "$SECONDS" -lt $((minutes * 60)) ]; do
  round_seed=$((seed + round))
  round=$((round + 1))
  echo "round $round, seed $round_seed, ${SECONDS} s"
  run_round
done
print_table
