#!/usr/bin/env bash
# Tests owt launch, and processes that other launchers start over TCP: the same losses and weights as among threads,
# several hosts, exit codes, Ctrl-C, and a lost worker. Prints each case; exits 1 at the first that fails.
#
#   usage: launch_test.sh OWT
set -euo pipefail

owt=$(realpath "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR/../support
source "$here/../support/small_processes.sh"
# shellcheck source-path=SCRIPTDIR/../support
source "$here/../support/lanes.sh"
export OMP_NUM_THREADS=1
work=$(mktemp -d)
job=
clean_up() {
  end_lanes
  [ -z "$job" ] || kill -TERM "$job" 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT
wrong() {
  echo "FAILED: $*" >&2
  [ ! -e "$work/out" ] || tail -n 20 "$work/out" | sed 's/^/  | /' >&2
  exit 1
}
passed() { echo "passed: $*"; }
train=("$owt" train "$small_recipe" --set run.log_every=1 --set run.eval_every_epochs=0)
steps=(--steps 20)
losses() { sed -n 's/.*"kind":"train".*"loss":\([^,]*\),.*/\1/p' "$1/metrics.jsonl"; }
same_run() {  # same_run RUN: losses and weights of the run among threads
  [ "$(losses "$threads" | wc -l)" = 20 ] && diff <(losses "$threads") <(losses "$1") ||
    wrong "other losses than among threads"
  cmp -s "$threads"/checkpoints/step-*20/weights.safetensors "$1"/checkpoints/step-*20/weights.safetensors ||
    wrong "other weights than among threads"
}
wait_for() {  # wait_for COMMAND...: until it succeeds, while the job runs
  until "$@"; do
    kill -0 "$job" 2>/dev/null || wrong "it ended too early"
    sleep 0.05
  done
}
ended() {  # its exit code is in $code
  code=0
  wait "$job" || code=$?
  job=
}
has_step() { grep -qs "\"kind\":\"train\",\"step\":$1," "$work/run/metrics.jsonl"; }

threads=$work/threads
"${train[@]}" "${steps[@]}" --workers 2 --threads 2 --parallel owt-d --out "$threads" >/dev/null 2>&1 ||
  wrong "owt train among threads"

on_this_host() {
  "$owt" launch --workers 2 "${train[@]}" "${steps[@]}" --parallel owt-d --out "$work/run" >"$work/out" 2>&1 ||
    wrong "exit code $?"
  same_run "$work/run"
  grep -q '2 processes, started by owt launch, communicate over TCP' "$work/out" || wrong "no line names the transport"
  [ "$(grep -c '^test accuracy' "$work/out")" = 1 ] || wrong "not one result"
  passed "two processes of this host"
}

# The command that stands for ssh runs the line here.
on_two_hosts() {
  printf '#!/bin/sh\necho "$1" >>"%s"\nexec sh -c "$2"\n' "$work/reached" >"$work/ssh"
  chmod +x "$work/ssh"
  port=$((20000 + RANDOM % 10000))
  "$owt" launch --hosts localhost,elsewhere --port "$port" --ssh "$work/ssh" \
    "${train[@]}" "${steps[@]}" --parallel owt-d --out "$work/run" >"$work/out" 2>&1 || wrong "exit code $?"
  same_run "$work/run"
  grep -q '^warning: --hosts begins with localhost, ' "$work/out" || wrong "no warning of localhost"
  [ "$(cat "$work/reached")" = elsewhere ] || wrong "it reached other hosts: $(cat "$work/reached")"
  "$owt" launch --hosts localhost,elsewhere --ssh "$work/none" true >"$work/out" 2>&1 && wrong "it succeeds without ssh"
  grep -q 'type this line on each host, with its name: .* --host elsewhere ' "$work/out" || wrong "no line to type"
  passed "two hosts"
}

# torchrun, Slurm and Kubernetes start processes like this.
by_variables() {
  export MASTER_ADDR=localhost MASTER_PORT=$((30000 + RANDOM % 2000)) WORLD_SIZE=2
  RANK=1 "${train[@]}" "${steps[@]}" --parallel owt-d --out "$work/run" >"$work/other" 2>&1 &
  job=$!
  RANK=0 "${train[@]}" "${steps[@]}" --parallel owt-d --out "$work/run" >"$work/out" 2>&1 || wrong "exit code $?"
  ended
  [ "$code" = 0 ] || wrong "exit code $code of rank 1: $(cat "$work/other")"
  same_run "$work/run"
  [ ! -s "$work/other" ] || wrong "rank 1 prints: $(cat "$work/other")"
  passed "processes started with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
}

codes() {
  code=0
  "$owt" launch --workers 3 sh -c 'exit $((RANK == 2 ? 7 : 0))' >"$work/out" 2>&1 || code=$?
  [ "$code" = 7 ] || wrong "exit code $code, wanted 7"
  grep -qE '^warning: rank 2 \(process [0-9]+\) ended with exit code 7' "$work/out" || wrong "nothing names rank 2"
  code=0
  "$owt" launch --workers 2 "$owt" train "$work/none.toml" >"$work/out" 2>&1 || code=$?
  [ "$code" = 1 ] && [ "$(grep -c '^owt: error: ' "$work/out")" -ge 1 ] || wrong "exit code $code of a missing recipe"
  code=0
  "$owt" launch --workers 2 sh -c 'echo "$RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR"' |
    sort >"$work/out" || code=$?
  [ "$code" = 0 ] && diff "$work/out" <(printf '%s 2 %s 2 127.0.0.1\n' 0 0 1 1) || wrong "other variables"
  "$owt" launch --hosts localhost,127.0.0.1:2 sh -c 'echo "$RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE"' |
    sort >"$work/out" || code=$?
  [ "$code" = 0 ] && diff "$work/out" <(printf '%s 3 %s 3\n' 0 0 1 1 2 2) || wrong "other variables with two names"
  passed "exit codes and variables"
}

# NCCL takes each process for another host.
shared_gpu() {
  "$owt" launch --workers 2 --share-gpu sh -c 'echo "$OWT_SHARE_GPU $NCCL_HOSTID $NCCL_SOCKET_IFNAME"
    [ "$NCCL_P2P_DISABLE$NCCL_SHM_DISABLE$NCCL_IB_DISABLE" = 111 ]' | sort >"$work/out" || wrong "other variables"
  diff "$work/out" <(printf '1 owt-rank-%s lo\n' 0 1) || wrong "other variables"
  "$owt" launch --workers 2 --share-gpu "${train[@]}" "${steps[@]}" --device cpu --parallel owt-d --out "$work/run" \
    >"$work/out" 2>&1 || wrong "exit code $?"
  same_run "$work/run"
  [ "$(grep -c -- '--share-gpu changes nothing, because the workers use the CPU' "$work/out")" = 1 ] ||
    wrong "not one line says that the CPU is used"
  simulated=$(dirname "$owt")/tests/simulated_gpu/owt_on_simulated_gpu
  if [ -x "$simulated" ]; then
    train_there=("$simulated" "${train[@]:1}" --device cuda --steps 2 --parallel dp)
    export OWT_CACHE=$work/plans
    "$simulated" launch --workers 2 --share-gpu "${train_there[@]}" --out "$work/shared" >"$work/out" 2>&1 ||
      wrong "exit code $? on the simulated GPU"
    [ "$(grep -c '2 workers share GPU .* times say nothing about several GPUs' "$work/out")" = 1 ] ||
      wrong "not one line says that the GPU is shared"
    code=0
    "$simulated" launch --workers 2 --share-gpu env -u NCCL_HOSTID "${train_there[@]}" --out "$work/same" \
      >"$work/out" 2>&1 || code=$?
    [ "$code" = 1 ] && grep -q 'NCCL: .*Duplicate GPU detected' "$work/out" || wrong "exit code $code of one host"
    code=0
    "$simulated" launch --workers 2 "${train_there[@]}" --out "$work/apart" >"$work/out" 2>&1 || code=$?
    [ "$code" = 1 ] && grep -q 'ranks 0 and 1 have the same GPU, .* or owt launch --share-gpu' "$work/out" ||
      wrong "exit code $code of two processes on one GPU"
  fi
  passed "processes that share a GPU"
}

refused() {  # refused TEXT WORD...: the command line fails with the text and starts nothing
  code=0
  "$owt" launch "${@:2}" touch "$work/started" >"$work/out" 2>&1 || code=$?
  [ "$code" != 0 ] && [ ! -e "$work/started" ] || wrong "$*: exit code $code"
  grep -qF -- "$1" "$work/out" || wrong "$*"
}
refusals() {
  refused "'node1' is named twice" --hosts node1:2,node2,node1:2
  refused "from 1 to 4096" --hosts node1:5000
  refused "--ssh is empty" --hosts node1 --ssh ' '
  refused "--share-gpu has an effect only with --workers" --hosts node1 --share-gpu
  refused "one worker shares the GPU with nobody; use --workers 2" --workers 1 --share-gpu
  passed "wrong hosts"
}

# Under nohup the end of the session is no wish to stop, after which the ends of processes are not reported.
without_session() {
  (
    trap '' HUP
    exec "$owt" launch --workers 1 sh -c 'touch "$1/runs"; until [ -e "$1/end" ]; do sleep 0.05; done; exit 3' \
      sh "$work" >"$work/out" 2>&1
  ) &
  job=$!
  wait_for test -e "$work/runs"
  kill -HUP "$job"
  touch "$work/end"
  ended
  [ "$code" = 3 ] && grep -q 'ended with exit code 3' "$work/out" || wrong "exit code $code"
  passed "nohup"
}

# The launcher passes the signal on, and the processes write a checkpoint.
interrupted() {
  "$owt" launch --workers 2 "${train[@]}" --out "$work/run" >"$work/out" 2>&1 &
  job=$!
  wait_for has_step 3
  kill -TERM "$job"
  ended
  [ "$code" = 75 ] || wrong "exit code $code, wanted 75"
  ls "$work"/run/checkpoints/step-* >/dev/null || wrong "no checkpoint"
  passed "a signal to the launcher"
}

# A worker of a parameter server is killed; the others train on.
tolerated() {
  run=("${train[@]}" --parallel ps --set ps.servers=1 --set ps.delay=1 --tolerate-loss
    --set data.train_images=4800 --set data.batch=4 --set run.checkpoint_every_steps=10000 --out "$work/run")
  code=0
  "$owt" launch --workers 3 "${run[@]}" --steps 5 >"$work/out" 2>&1 || code=$?
  [ "$code" = 1 ] && grep -q 'owt launch ends all processes when one is lost' "$work/out" || wrong "not refused"
  "$owt" launch --enable-recovery --workers 3 sh -c '[ "$RANK" != 1 ] || echo $$ >'"$work/one"'; exec "$@"' sh \
    "${run[@]}" >"$work/out" 2>&1 &
  job=$!
  wait_for has_step 5
  kill -KILL "$(cat "$work/one")"
  wait_for grep -q 'training continues without it' "$work/out"
  kill -TERM "$job"
  ended
  [ "$code" = 75 ] || wrong "exit code $code, wanted 75"
  passed "a lost worker"
}

# The last step of an epoch has one image, so some ranks have no rows for the teacher.
taught() {
  for ranks in "--workers 3 --parallel dp" "--workers 3 --parallel owt-a" \
    "--workers 3 --parallel ps --set ps.servers=1"; do
    read -ra of <<<"$ranks"
    run=(train "$small_recipe" --set run.log_every=1 --set loss.distill.run="$threads" --set data.train_images=25
      --set data.batch=8 --steps 8 "${of[@]}")
    rm -rf "$work/run" "$work/alone"
    "$owt" "${run[@]}" --threads 3 --out "$work/alone" >"$work/out" 2>&1 || wrong "among threads: exit code $?"
    "$owt" launch --workers 3 "$owt" "${run[@]}" --out "$work/run" >"$work/out" 2>&1 || wrong "$ranks: exit code $?"
    [ "$(losses "$work/run" | wc -l)" = 8 ] && diff <(losses "$work/alone") <(losses "$work/run") ||
      wrong "$ranks: other losses than among threads"
  done
  passed "a teacher"
}

for cases in on_this_host on_two_hosts by_variables shared_gpu codes refusals interrupted without_session tolerated taught; do beside "$cases"; done
all_ended
