// How this process was started: alone, or as one of several by mpirun or srun.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace owt {

struct Launch {
  int rank = 0, ranks = 1;              // among the processes that were started together
  int local_rank = 0, local_ranks = 1;  // among those on this host; 1 of them where the launcher does not say
  bool bound = false;                   // the launcher gave this process cores of its own
  std::string by;                       // what the environment is that of: "Open MPI", "PMI", "Slurm"; empty: none

  bool several() const { return ranks > 1; }
};

// Value of an environment variable, or null.
using Environment = std::function<const char*(const char* name)>;

// From the variables that Open MPI (OMPI_COMM_WORLD_*), MPICH and Intel MPI (PMI_*, MPI_LOCAL*) and Slurm (SLURM_*, in
// a process that srun started, not in a batch script or a shell of salloc) set. Throws Error where they make no sense.
Launch launch_from(const Environment& environment);

// Whether this process may run on fewer cores than the nearest of its ancestors that has one of these names (those of
// ps -o comm); false where none has. Open MPI 5 does not say otherwise whether it has bound a process.
bool has_fewer_cores_than(const std::vector<std::string>& launchers);

// This process's own, read once.
const Launch& launch();

// This machine's name, for messages.
std::string host_name();

// Cores for each of `ranks` ranks of this process, at least 1: those it may run on, shared with the other processes of
// the launch on this host unless it is bound.
int cores_per_rank(int ranks, const Launch& process = launch());

// The compute threads of one of `ranks` ranks, which are threads of this process unless they are processes of the
// launch: its part of `threads` for all ranks of this host, at least 1. 0: $OMP_NUM_THREADS for each process, else all
// cores of the host.
int threads_per_rank(int threads, int ranks, const Launch& process = launch());

}  // namespace owt
