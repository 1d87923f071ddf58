// The processes that a launcher has started together (launch.h): how they join, and how the program ends.
//
// A process that was started alone, or as the only one, has no others: MPI is not touched, and everything here returns
// at once. Otherwise the first call of from_rank_0(), from_every_rank() or run_ranks() (threads.h) starts MPI and the
// watch (watch.h).
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/communicator.h"

namespace owt {

// Runs make() on one rank of the launch and returns its result on all of them. Where it throws, that rank throws the
// same and the others Aborted with its text. All ranks must come here, in the same order with other collectives.
std::string from_rank(int maker, const std::function<std::string()>& make);
inline std::string from_rank_0(const std::function<std::string()>& make) { return from_rank(0, make); }
// Every rank's text, by rank; of any length. All ranks must come here, in the same order with other collectives.
std::vector<std::string> from_every_rank(const std::string& mine);

// The loss of processes that is tolerated: the others go on without them, first in what they were doing, as far as it
// is no collective (LostRanks), then as a world of their own.
//
// `ranks`: numbers of the launch, this process's own among them or not. Throws Error where the launcher would end all
// processes all the same.
void tolerate_loss(const std::vector<int>& ranks);
// What happened to each process that is gone, in the order in which it became known here.
std::vector<std::string> tolerated_losses();
// Collective over the ranks of the newest world but `gone`, by their numbers in it, which agree on these: from now on
// they alone are the processes of from_rank() and so on. Returns a communicator of them, which none of an older world
// may be used beside but to end what goes on there.
std::unique_ptr<Communicator> go_on_without(const std::vector<int>& gone);
// This process's place in the newest world.
struct ProcessPlace {
  int rank = 0, ranks = 1;
};
ProcessPlace process_place();

// What carries processes, "Open MPI v4.1.4"; empty: this program was built without MPI.
std::string process_library();

// For run_ranks: a communicator of all processes, for tensors on the CPU. crowded: the compute threads of this host's
// ranks are more than its cores.
std::unique_ptr<Communicator> join_processes(bool crowded);
// A rank of the joined processes was lost or has failed, this one included; asked often, by any thread.
bool any_rank_failed();
// Tells the other ranks what this one has failed with, unless it is the consequence of another's failure. Returns what
// to throw on: the cause, as far as this rank knows it.
std::exception_ptr announce_failure(const std::exception_ptr& failure);

// The end of main(). Prints `owt: error: TEXT`, on rank 1 `owt: error: rank 1: TEXT` and so on, but
// a wrong command line (code 2), which all ranks have, on rank 0 only. Where processes are
// joined, the others are told. Where they are, or joining them has failed, the process ends here and now with the code:
// its partners will not come to the end of MPI. Otherwise returns the code.
int end_with_error(const std::exception& failure, const std::string& text, int code);
// The same without an error; collective where processes are joined. Throws where another rank fails before it has come
// here. When all have come but MPI does not end within the watch's timeout, warns, and ends the process with the code.
void end_together(int code);

}  // namespace owt
