#!/bin/bash
# Training on a Slurm cluster: one rank per task. The job writes a checkpoint before its time limit and resumes in a new
# job until the run is finished.
#
#   sbatch configs/cluster/slurm.sh                               trains $RECIPE into $OUT, see below
#   sbatch --nodes=4 configs/cluster/slurm.sh configs/my.toml runs/my --parallel auto
#   scancel JOB                                                   ends the run; the last checkpoint stays
#   scancel --signal=TERM --batch JOB                             checkpoint now, resume in a new job of the same number
#
# Arguments: recipe, run folder, further options of owt train. Every node must see the run folder, the data and the
# program. Only rank 0 writes.
#
#SBATCH --job-name=owt
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4      # ranks on each node; with GPUs, one for each GPU
#SBATCH --cpus-per-task=8        # threads of a rank
##SBATCH --gpus-per-node=4       # remove one # to use GPUs: rank i of a node uses GPU i
#SBATCH --time=08:00:00
#SBATCH --requeue                # also after a node failure or preemption
#SBATCH --open-mode=append       # one log for all parts of the run
#SBATCH --output=owt-%j.log
#SBATCH --signal=B:TERM@120      # SIGTERM to this script two minutes before the limit; must be longer than a step and
                                 # a checkpoint
set -u

resume_in_a_new_job() {
  echo "slurm.sh: stopped; the job is queued again and resumes from its last checkpoint"
  scontrol requeue "$SLURM_JOB_ID"
}
# On SIGTERM both launchers kill the ranks, srun at once and mpirun after a second. This sends it to the ranks alone.
stop_ranks() {
  asked=yes stopping=yes
  case ${!:+$launcher} in
    srun) scancel --signal=TERM "$SLURM_JOB_ID" ;;
    mpirun) kill -USR1 "$!" ;;  # mpirun forwards it to every rank, which treats it like SIGTERM
    *) # the ranks have not been started yet
      resume_in_a_new_job
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

# Since Slurm 22.05 srun does not inherit the threads of a task from the job.
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
# On a cluster with several networks, name the one to use. Otherwise Open MPI and NCCL try each:
#   export OMPI_MCA_btl_tcp_if_include=10.1.0.0/16 NCCL_SOCKET_IFNAME=eth1
# With TCP, this sends large messages in both directions at the same time:
#   export OMPI_MCA_btl_tcp_flags=1

run=("$owt" train "$recipe" --out "$out" --resume auto "$@")
case $launcher in
  srun)
    # `srun --mpi=list` shows the PMIx versions of Slurm; the MPI library must use one of them. When a rank is lost, the
    # others report it and exit; srun must not kill them before.
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

# A signal ends `wait` with 143 before the ranks have exited. Waiting again returns their own status, even if
# they exit in the meantime.
until
  asked=
  wait "$!"
  status=$?
  [ "$status" != 143 ] || [ -z "$asked" ]
do :; done

# The signal kills ranks and launchers that are still starting (143, 138). Nothing is lost in that case either.
case $status in
  75) resume_in_a_new_job ;;
  138 | 143) [ -z "$stopping" ] || resume_in_a_new_job ;;
esac
exit "$status"
