// Lets process_failures hang in MPI, through MPI's profiling interface: calls of the program go through here.
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <thread>

// In process_failures.cpp.
extern std::atomic<bool> hangs_at_the_end;

extern "C" int MPI_Finalize() {
  while (hangs_at_the_end) std::this_thread::sleep_for(std::chrono::hours(1));
  return PMPI_Finalize();
}
