// How this process was started: alone, or as one of several by mpirun, srun, torchrun or owt launch.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace owt {

struct ProcessLaunch {
  int rank = 0, ranks = 1;              // among the processes that were started together
  int local_rank = 0, local_ranks = 1;  // among the processes on this host; 0 of 1 if the launcher does not say
  bool bound = false;                   // the launcher bound this process to its own cores
  std::string by;                       // the launcher: "Open MPI", "PMI", "Slurm", "torchrun"; empty: none
  bool by_mpi = false;                  // the launcher belongs to MPI
  std::string address{};                // the host of rank 0, for TCP; empty: not given
  int port = 0;                         // where rank 0 listens
  bool shares_gpu = false;              // all processes use the host's first GPU (owt launch --share-gpu)
  int door = -1;                        // rank 0: the socket where it listens; -1: it listens at the address
  // With a roster (src/roster) the workers change. Whether others have taken the place of these processes; null: never.
  std::function<bool()> is_over{};

  bool several() const { return ranks > 1; }
  bool changes() const { return is_over != nullptr; }
};

// Value of an environment variable, or null.
using Environment = std::function<const char*(const char* name)>;

// Reads the variables of Open MPI (OMPI_COMM_WORLD_*), of MPICH and Intel MPI (PMI_*, MPI_LOCAL*), and of Slurm
// (SLURM_*, in a process started by srun, not in a batch script or a shell of salloc), and of torchrun, which
// others set too: RANK, or Kubernetes' JOB_COMPLETION_INDEX; WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE. MASTER_ADDR
// and MASTER_PORT (29500) are the address for TCP. Throws Error if they are inconsistent.
ProcessLaunch launch_from(const Environment& environment);

// Whether this process may run on fewer cores than its nearest ancestor with one of these names (as in ps -o comm).
// False if there is no such ancestor. Open MPI 5 does not say in any other way whether it has bound a process.
bool has_fewer_cores_than(const std::vector<std::string>& launchers);

// This process's launch, read once.
const ProcessLaunch& launch();
// Replaces it, while this process has no other threads that use it.
void set_launch(ProcessLaunch now);

// This machine's name, for messages.
std::string host_name();

// Cores for each of `ranks` ranks of this process, at least 1. They are the cores that the process may use, shared with
// the other processes of the launch on this host unless the process is bound.
int cores_per_rank(int ranks, const ProcessLaunch& process = launch());

// Compute threads of one of `ranks` ranks, at least 1: this rank's part of `threads`, the number for all ranks of this
// host. The ranks are threads of this process, or the processes of the launch. 0: $OMP_NUM_THREADS for each process, or
// all cores of the host if it is not set.
int threads_per_rank(int threads, int ranks, const ProcessLaunch& process = launch());

}  // namespace owt
