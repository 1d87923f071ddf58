#!/bin/bash
# Trains on a Slurm cluster with one rank per task. The job writes a checkpoint before its time limit and is requeued
# until the run is finished.
#
#   sbatch configs/cluster/slurm.sh                               trains configs/quickstart.toml, writes runs/slurm
#   sbatch --nodes=4 configs/cluster/slurm.sh configs/my.toml runs/my --parallel auto
#   scancel JOB                                                   ends the run; the last checkpoint stays
#   scancel --signal=TERM --batch JOB                             writes a checkpoint now and requeues the job
#
# Arguments: recipe, run folder, further options of owt train. All nodes must see the program, the data and the run
# folder under the same paths. Environment variables: RECIPE and OUT are used if the first two arguments are missing;
# OWT is the program (build/owt, or the wheel's owt); LAUNCHER is one of
#   srun     (default) the ranks find each other over TCP, without MPI
#   pmix     the ranks use MPI; `srun --mpi=list` must show a PMIx that fits the MPI library
#   mpirun   the same, if srun and the MPI library do not fit
#
#SBATCH --job-name=owt
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4      # ranks of a node; with GPUs one rank for each GPU
#SBATCH --cpus-per-task=8        # threads of a rank
##SBATCH --gpus-per-node=4       # for GPUs remove one #: rank i of a node takes GPU i
#SBATCH --time=08:00:00
#SBATCH --requeue                # also after a failure of a node or a preemption
#SBATCH --open-mode=append       # one log for all parts of the run
#SBATCH --output=owt-%j.log
#SBATCH --signal=B:TERM@120      # this script gets SIGTERM 120 seconds before the time limit; make this time longer
                                 # than a step and a checkpoint take
set -u

resume_in_a_new_job() {
  echo "slurm.sh: stopped; the job is queued again and resumes from its last checkpoint"
  scontrol requeue "$SLURM_JOB_ID"
}
# The launchers must not get SIGTERM: srun would kill the ranks at once, mpirun after a second.
stop_ranks() {
  asked=yes stopping=yes
  case ${!:+$launcher} in
    srun | pmix) scancel --signal=TERM "$SLURM_JOB_ID" ;;
    mpirun) kill -USR1 "$!" ;;  # mpirun passes SIGUSR1 on to every rank; owt treats it like SIGTERM
    *) # the ranks have not been started
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
launcher=${LAUNCHER:-srun}

# From Slurm 22.05 on srun does not take --cpus-per-task from the job; it reads this variable.
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
# On a cluster with several networks, name the one to use; otherwise Open MPI and NCCL try each:
#   export OMPI_MCA_btl_tcp_if_include=10.1.0.0/16 NCCL_SOCKET_IFNAME=eth1

run=("$owt" train "$recipe" --out "$out" --resume auto "$@")
# If a rank is lost, the others report it and end. srun must not end them earlier.
srun=(srun --kill-on-bad-exit=0 --cpu-bind=cores)
case $launcher in
  srun)
    # This script and rank 0 run on the first node. Jobs that share the node get different ports.
    export MASTER_ADDR=${MASTER_ADDR:-${SLURMD_NODENAME:-$(hostname)}}
    export MASTER_PORT=${MASTER_PORT:-$((20000 + SLURM_JOB_ID % 10000))}
    "${srun[@]}" --mpi=none "${run[@]}" &
    ;;
  pmix) "${srun[@]}" --mpi=pmix "${run[@]}" & ;;
  mpirun)
    mpirun --map-by "ppr:${SLURM_NTASKS_PER_NODE:-1}:node:PE=${SLURM_CPUS_PER_TASK:-1}" --bind-to core \
      "${run[@]}" &
    ;;
  *)
    echo "slurm.sh: error: LAUNCHER is '$launcher', wanted srun, pmix or mpirun" >&2
    exit 2
    ;;
esac

# A signal ends `wait` with 143 before the ranks have ended. A second `wait` returns their own status, even if they have
# ended meanwhile.
until
  asked=
  wait "$!"
  status=$?
  [ "$status" != 143 ] || [ -z "$asked" ]
do :; done

# The signal itself ends ranks and launchers that are still starting (143, 138). Nothing is lost in this case either.
case $status in
  75) resume_in_a_new_job ;;
  138 | 143) [ -z "$stopping" ] || resume_in_a_new_job ;;
esac
exit "$status"
