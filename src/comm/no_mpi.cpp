#include "src/comm/links.h"
#include "src/comm/processes.h"

namespace owt {

std::string process_library() { return ""; }

std::unique_ptr<ProcessLinks> make_mpi_links(const ProcessLaunch& launch) {
  fail("started as rank ", launch.rank, " of ", launch.ranks, " processes (", launch.by,
       "), but this program was built without MPI; set MASTER_ADDR to the name of rank 0's host, start the processes ",
       "with owt launch, or start one process with --workers ", launch.ranks);
}

}  // namespace owt
