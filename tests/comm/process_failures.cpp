// A program whose ranks fail, for process_failures_test.sh. To be started by mpirun or owt launch.
//
//   usage: process_failures WHAT
//
//   loop       endless collectives, until a rank is killed or stopped from outside; timeout 2 s
//   compute    rank 0 computes endlessly while the others are in collectives
//   error      rank 1 fails by itself while the others are in collectives
//   before     rank 1 fails before the others have met it
//   from0      rank 0 fails in from_rank_0
//   start      rank 1 never comes to the start; the limit is 3 s
//   late       rank 0 computes endlessly after the others have finished
//   finalize   rank 1 does not return from MPI_Finalize, if the ranks use MPI
//   data       rank 1 waits endlessly for data while the others are in a collective
//   mismatch   rank 1 is in another collective than the others
//   ring       endless messages around a ring, until a rank is killed from outside
//   unsent     rank 0 waits for a message of rank 1, which is in a collective with rank 2
//   circle     each rank waits for a message of the next one
//   sizes      rank 0 wants a larger message than rank 1 sends
//   stall      rank 1 computes endlessly; the limit for that is 4 s
//   slow       rank 1 computes for longer than the timeout; then all ranks finish normally
//   leave      all ranks finish normally
// Prints `rank R process P` for each rank when it is in its loop.
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>

#include "src/comm/launch.h"
#include "src/comm/processes.h"
#include "src/comm/threads.h"
#include "src/comm/watch.h"
#include "src/system/activity.h"

// Whether this process never returns from MPI_Finalize; mpi_hangs.cpp asks.
std::atomic<bool> hangs_at_the_end{false};

namespace owt {
namespace {

[[noreturn]] void hang() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

void all_reduce_for_ever(Communicator& comm) {
  Tensor sum({100'000}), large({3'000'000});
  sum.zero();
  large.zero();
  for (int64_t step = 0;; ++step) {
    note_step(step);
    comm.all_reduce(step % 4 == 3 ? large : sum, {}).wait();
    if (step == 10) std::cout << concat("rank ", comm.rank(), " process ", getpid(), '\n') << std::flush;
  }
}

// Receives chunks larger than any of the initial sum of 100,000 that the others send here, so that it causes no error.
void receive_for_ever(Communicator& comm) {
  Tensor share({400'000});
  while (true) comm.broadcast(share, share, 2, {}).wait();
}

void send_around_for_ever(Communicator& comm) {
  const int next = (comm.rank() + 1) % comm.ranks(), before = (comm.rank() + comm.ranks() - 1) % comm.ranks();
  Tensor mine({3'000'000}), got({3'000'000});
  mine.zero();
  for (int64_t step = 0;; ++step) {
    const Event sent = comm.send(mine, next, {});
    comm.receive(got, before, {}).wait();
    sent.wait();
    if (step == 10) std::cout << concat("rank ", comm.rank(), " process ", getpid(), '\n') << std::flush;
  }
}

void run(const std::string& what) {
  set_watch_timeout(2);
  if (what == "stall") set_stall_timeout(4);
  std::signal(SIGTERM, SIG_IGN);  // like owt; mpirun sends SIGTERM when the first process has ended
  if (what == "start") {
    setenv("OWT_START_TIMEOUT", "3", 1);
    if (launch().rank == 1) {
      std::cout << concat("rank 1 process ", getpid(), '\n') << std::flush;
      hang();
    }
  }
  hangs_at_the_end = what == "finalize" && launch().rank == 1;
  if (what == "from0") from_rank_0([]() -> std::string { fail("nothing to be had"); });
  if (what == "before" && launch().rank == 1) fail("no such folder");
  run_ranks(launch().ranks, 1, [&](Communicator& comm) {
    Tensor sum({1000});
    sum.zero();
    comm.all_reduce(sum, {}).wait();
    std::vector<Route> routes;
    for (int r = 0; r < comm.ranks(); ++r)
      for (const int to : {r + 1, r + comm.ranks() - 1}) routes.push_back({r, to % comm.ranks(), 12'000'000});
    comm.connect(routes);
    if (what == "ring") send_around_for_ever(comm);
    if (what == "circle" || (what == "unsent" && comm.rank() == 0))
      comm.receive(sum, (comm.rank() + 1) % comm.ranks(), {}).wait();
    if (what == "sizes" && comm.rank() == 1) comm.send(Tensor({999}), 0, {}).wait();
    if (what == "sizes" && comm.rank() == 0) comm.receive(sum, 1, {}).wait();
    if (what == "late" || what == "finalize" || what == "compute")
      std::cout << concat("rank ", comm.rank(), " process ", getpid(), '\n') << std::flush;
    if (what == "leave" || what == "late" || what == "finalize") return;
    if (what == "error" && comm.rank() == 1) fail("enough is enough");
    if (what == "data" && comm.rank() == 1) {
      const Waits waits(WaitsFor::kData);
      hang();
    }
    if (what == "stall" && comm.rank() == 1) hang();
    if (what == "mismatch" && comm.rank() == 1) receive_for_ever(comm);
    if (what == "slow") {
      if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(7));
      comm.all_reduce(sum, {}).wait();
      return;
    }
    if (what == "compute" && comm.rank() == 0) hang();
    all_reduce_for_ever(comm);
  });
  if (what == "late" && launch().rank == 0) hang();
}

}  // namespace
}  // namespace owt

int main(int count, char** words) {
  try {
    owt::run(count > 1 ? words[1] : "");
    owt::end_together(0);
    std::cout << "the end\n" << std::flush;
    return 0;
  } catch (const std::exception& e) {
    return owt::end_with_error(e, e.what(), 1);
  }
}
