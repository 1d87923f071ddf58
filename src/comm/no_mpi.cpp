#include "src/comm/mpi.h"
#include "src/comm/processes.h"

namespace owt {

std::string process_library() { return ""; }

std::unique_ptr<Mpi> start_mpi(const Launch& launch, const LostRanks&, double) {
  fail(
      "started as rank ", launch.rank, " of ", launch.ranks, " processes (", launch.by,
      "), but this program was built without MPI; install libopenmpi-dev and build again, or start it without mpirun, ",
      "with --workers ", launch.ranks);
}

}  // namespace owt
