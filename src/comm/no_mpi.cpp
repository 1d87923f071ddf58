#include "src/comm/mpi.h"
#include "src/comm/processes.h"

namespace owt {

struct MpiProcess {};

std::string process_library() { return ""; }

Mpi::Mpi(const ProcessLaunch& launch, const LostRanks&, const std::string&, double) {
  fail(
      "started as rank ", launch.rank, " of ", launch.ranks, " processes (", launch.by,
      "), but this program was built without MPI; install libopenmpi-dev and build again, or start it without mpirun, ",
      "with --workers ", launch.ranks);
}

// The functions below are never called.
Mpi::~Mpi() = default;
std::unique_ptr<Communicator> Mpi::world(bool) { return nullptr; }
std::unique_ptr<Communicator> Mpi::world_of(std::vector<int>, int) { return nullptr; }
bool Mpi::finish(double) { return true; }

}  // namespace owt
