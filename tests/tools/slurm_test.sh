#!/usr/bin/env bash
# Tests how configs/cluster/slurm.sh handles its ranks, signals and exit codes, with srun, mpirun, scancel and scontrol
# that only record their arguments. Prints each case; exits 1 at the first that fails.
set -euo pipefail

script=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/configs/cluster/slurm.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

program() {  # program NAME COMMANDS
  printf '#!%s\n%s\n' "$(command -v bash)" "$2" >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}
begin() {
  case_name=$1
  mkdir -p "$work/bin"
  : >"$work/calls"
  rm -f "$work/stop" "$work/ranks"
  program scontrol "echo \"scontrol \$*\" >>'$work/calls'"
  program scancel "echo \"scancel \$*\" >>'$work/calls'; touch '$work/stop'"
}
wrong() {
  echo "FAILED: $case_name: $*" >&2
  sed 's/^/  | /' "$work/output" "$work/calls" >&2
  exit 1
}
# Runs the script, sends it SIGTERM when the ranks run if TERM_IT=1, and checks its exit code.
ends_with() {
  local wanted=$1 status=0 child
  shift
  (cd "$work" && PATH=$work/bin:$PATH SLURM_JOB_ID=7 SLURM_CPUS_PER_TASK=3 exec bash "$script" "$@") \
    >"$work/output" 2>&1 &
  child=$!
  if [ -n "${TERM_IT:-}" ]; then
    until grep -q started "$work/calls" || ! kill -0 "$child"; do sleep 0.02; done
    kill -TERM "$child"
  fi
  wait "$child" || status=$?
  [ "$status" = "$wanted" ] || wrong "it ended with $status, wanted $wanted"
}
expect_call() { grep -qE -- "$1" "$work/calls" || wrong "no call matches '$1'"; }
expect_no_call() { if grep -qE -- "$1" "$work/calls"; then wrong "a call matches '$1'"; fi; }
passed() { echo "passed: $case_name"; }
# Ranks that run until they are stopped, and exit with a code.
ranks_until_stopped() {
  echo "echo \$\$ >'$work/ranks'; echo started \$* >>'$work/calls'
    until [ -e '$work/stop' ]; do sleep 0.02; done; exit $1"
}

begin "a run to the end is not put back into the queue"
program srun "echo \"srun \$* from \$MASTER_ADDR:\$MASTER_PORT\" >>'$work/calls'"
SLURMD_NODENAME=node1 ends_with 0 my.toml runs/my --parallel owt-c
expect_call "^srun .* --mpi=none build/owt train my.toml --out runs/my --resume auto --parallel owt-c from node1:20007$"
expect_no_call "^scontrol"
passed

begin "a failure is not put back into the queue"
program srun "exit 1"
ends_with 1
expect_no_call "^scontrol"
passed

begin "ranks that stopped after a checkpoint go on in a new job"
program srun "exit 75"
ends_with 75
expect_call "^scontrol requeue 7$"
passed

begin "under srun the ranks get SIGTERM through scancel"
program srun "$(ranks_until_stopped 75)"
TERM_IT=1 ends_with 75
expect_call "^scancel --signal=TERM 7$"
expect_call "^scontrol requeue 7$"
passed

begin "with MPI srun names PMIx, and the ranks get SIGTERM through scancel as well"
program srun "$(ranks_until_stopped 75)"
TERM_IT=1 LAUNCHER=pmix ends_with 75
expect_call "^started .* --mpi=pmix build/owt train"
expect_call "^scancel --signal=TERM 7$"
passed

begin "under mpirun the ranks get SIGUSR1 through mpirun"
program mpirun "trap 'touch \"$work/stop\"' USR1; $(ranks_until_stopped 75)"
TERM_IT=1 LAUNCHER=mpirun ends_with 75
expect_call "^started .*PE=3 .*build/owt train"
expect_no_call "^scancel"
expect_call "^scontrol requeue 7$"
passed

begin "a run that finishes in spite of SIGTERM stays finished"
program srun "$(ranks_until_stopped 0)"
TERM_IT=1 ends_with 0
expect_no_call "^scontrol"
passed

for code in 0 75; do
  begin "ranks that end with $code before the signal is passed on to all are asked for their exit code"
  program srun "$(ranks_until_stopped $code)"
  program scancel "touch '$work/stop'; while kill -0 \"\$(cat '$work/ranks')\" 2>/dev/null; do sleep 0.02; done"
  TERM_IT=1 ends_with $code
  passed
done

begin "ranks that the signal meets while they start go on in a new job"
program srun "kill -TERM \$PPID; $(ranks_until_stopped 143)"
ends_with 143
expect_call "^scontrol requeue 7$"
passed

begin "ranks that die of a signal that nobody asked for are a failure"
program srun "exit 143"
ends_with 143
expect_no_call "^scontrol"
passed

begin "SIGTERM before the ranks are started puts the job back into the queue"
program srun "echo started >>'$work/calls'"
# shellcheck disable=SC2016
echo 'trap '\''[[ $BASH_COMMAND != run=* ]] || kill -TERM $$'\'' DEBUG' >"$work/term_before_the_ranks"
BASH_ENV=$work/term_before_the_ranks ends_with 75
expect_no_call "^started"
expect_call "^scontrol requeue 7$"
passed

begin "an unknown launcher is an error"
LAUNCHER=prun ends_with 2
passed
