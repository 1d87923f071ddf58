// The processes that a launcher started together (launch.h): how they join, and how the program ends.
//
// A process that was started alone, or as the only one, does not start MPI; all functions here return at once.
// Otherwise the first call of from_rank_0(), from_every_rank() or run_ranks() (threads.h) starts MPI and the watch
// (watch.h).
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/comm/communicator.h"

namespace owt {

// Runs make() on one rank of the launch and returns its result on all ranks. If it throws, that rank throws the same
// exception, and the others throw Aborted with its text. All ranks must call it, in the same order as other
// collectives.
std::string from_rank(int maker, const std::function<std::string()>& make);
inline std::string from_rank_0(const std::function<std::string()>& make) { return from_rank(0, make); }
// The text of every rank, by rank; of any length. All ranks must call it, in the same order as other collectives.
std::vector<std::string> from_every_rank(const std::string& mine);

// Tolerates the loss of processes: the others continue without them. First they finish what they were doing, as far as
// it is no collective (LostRanks); then they form a new world. `ranks`: numbers in the launch, with or without this
// process. Throws Error if the launcher would still end all processes when one ends.
void tolerate_loss(const std::vector<int>& ranks);
// The reason for the loss of each process that is gone, in the order in which they became known here.
std::vector<std::string> tolerated_losses();
// Collective over the ranks of the current world except `gone` (numbers in it), on which they agree. Only these ranks
// are then the processes of from_rank() and so on. Returns a communicator of them. Communicators of older worlds may
// only be used to end their work.
std::unique_ptr<Communicator> continue_without(const std::vector<int>& gone);
// This process's place in the current world.
struct ProcessPlace {
  int rank = 0, ranks = 1;
};
ProcessPlace process_place();

// The MPI library, "Open MPI v4.1.4"; empty if this program was built without MPI.
std::string process_library();

// For run_ranks: a communicator of all processes, for tensors on the CPU. crowded: this host's ranks have more compute
// threads than the host has cores.
std::unique_ptr<Communicator> join_processes(bool crowded);
// Whether a joined process was lost or failed, including this one; asked often, by any thread.
bool any_rank_failed();
// Reports this rank's failure to the other ranks, unless it follows from another rank's failure. Returns the exception
// to throw: the cause, as far as this rank knows it.
std::exception_ptr announce_failure(const std::exception_ptr& failure);

// For a run whose workers change (ProcessLaunch::changes). What ends the work of these processes together, but not the
// run: a rank was lost, or the processes could not be connected. The rank, if it is known: its number in the launch.
bool is_loss(const std::exception& failure);
std::optional<int> lost_rank();
[[noreturn]] void lose_rank(int rank, const std::string& why);  // counts it as lost, and throws that
// Ends this process's part in the launch: its links and its watch. The next call that joins processes then joins the
// processes of launch() at that time. All communicators must be gone. in_order: collective; throws if a rank is lost.
void leave_processes(bool in_order);

// The end of main() after an error. Prints `owt: error: TEXT`; other ranks print `owt: error: rank 1: TEXT` and so on.
// A wrong command line (code 2) is the same on all ranks, and only rank 0 prints it. Joined processes are notified. If
// processes are joined, or joining failed, the process ends at once with the code, because its partners will not reach
// the end of MPI. Otherwise returns the code.
int end_with_error(const std::exception& failure, const std::string& text, int code);
// The end of main() without an error; collective if processes are joined. Throws if another rank fails before it gets
// here. If all ranks got here but MPI does not end within the watch's timeout, it warns and ends the process with the
// code.
void end_together(int code);

}  // namespace owt
