#!/bin/bash
# Training on a Slurm cluster: one rank per task, checkpoints before the time limit, resumed until the run is finished.
#
#   sbatch configs/cluster/slurm.sh                               trains $RECIPE into $OUT, see below
#   sbatch --nodes=4 configs/cluster/slurm.sh configs/my.toml runs/my --parallel auto
#   scancel JOB                                                   ends it for good; the last checkpoint stays
#   scancel --signal=TERM --batch JOB                             checkpoint now, go on in a new job of the same number
#
# Arguments: recipe, run folder, further options of owt train. The run folder, the data and the program must lie where
# every node sees them; rank 0 alone writes.
#
#SBATCH --job-name=owt
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4      # ranks of a node; with GPUs as many as GPUs
#SBATCH --cpus-per-task=8        # threads of a rank
##SBATCH --gpus-per-node=4       # one # less: rank i of a node takes GPU i
#SBATCH --time=08:00:00
#SBATCH --requeue                # also after a node has failed or the job was preempted
#SBATCH --open-mode=append       # one log for all parts of the run
#SBATCH --output=owt-%j.log
#SBATCH --signal=B:TERM@120      # this script gets SIGTERM two minutes before the limit; make it longer than a
                                 # step and a checkpoint take
set -u

go_on_in_a_new_job() {
  echo "slurm.sh: stopped; the job goes back into the queue and on from its last checkpoint"
  scontrol requeue "$SLURM_JOB_ID"
}
# On a SIGTERM of their own both launchers kill the ranks, srun at once and mpirun after a second.
stop_ranks() {
  asked=yes stopping=yes
  case ${!:+$launcher} in
    srun) scancel --signal=TERM "$SLURM_JOB_ID" ;;
    mpirun) kill -USR1 "$!" ;;  # passed on to every rank, for which it is the same as SIGTERM
    *) # the ranks have not been started yet
      go_on_in_a_new_job
      exit 75
      ;;
  esac
}
asked='' stopping=''
trap stop_ranks TERM

recipe=${1:-${RECIPE:-configs/quickstart.toml}}
out=${2:-${OUT:-runs/slurm}}
[ $# -lt 1 ] || shift
[ $# -lt 1 ] || shift
owt=${OWT:-build/owt}
launcher=${LAUNCHER:-srun}       # srun | mpirun

# srun does not take the threads of a task from the job by itself (Slurm 22.05 and later).
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
# On a cluster with several networks, name the one to use, else Open MPI and NCCL try each:
#   export OMPI_MCA_btl_tcp_if_include=10.1.0.0/16 NCCL_SOCKET_IFNAME=eth1
# Over TCP, large messages then travel in both directions at a time:
#   export OMPI_MCA_btl_tcp_flags=1

run=("$owt" train "$recipe" --out "$out" --resume auto "$@")
case $launcher in
  srun)
    # `srun --mpi=list` shows what Slurm was built with; it must be the PMIx of the MPI library. When a rank is lost the
    # others say so and end; srun must not end them before they have.
    srun --mpi=pmix --kill-on-bad-exit=0 --cpu-bind=cores "${run[@]}" &
    ;;
  mpirun)
    mpirun --map-by "ppr:${SLURM_NTASKS_PER_NODE:-1}:node:PE=${SLURM_CPUS_PER_TASK:-1}" --bind-to core \
      "${run[@]}" &
    ;;
  *)
    echo "slurm.sh: error: LAUNCHER is '$launcher', wanted srun or mpirun" >&2
    exit 2
    ;;
esac

# A signal ends `wait` with 143 before the ranks have ended; waiting once more gives their own status, also when they
# end meanwhile.
until
  asked=
  wait "$!"
  status=$?
  [ "$status" != 143 ] || [ -z "$asked" ]
do :; done

# Ranks and launchers that are only starting die of the signal itself (143, 138); nothing is lost then either.
case $status in
  75) go_on_in_a_new_job ;;
  138 | 143) [ -z "$stopping" ] || go_on_in_a_new_job ;;
esac
exit "$status"
