#include "src/train/signals.h"

#include <atomic>
#include <csignal>

namespace owt {
namespace {

std::atomic<bool> stop{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set in a signal handler");

extern "C" void on_stop_signal(int) { stop = true; }

}  // namespace

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  // mpirun sends SIGTERM once more to the ranks that end a little later than the first.
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGUSR1, &action, nullptr);
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second Ctrl-C acts as by default
  sigaction(SIGINT, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // a closed pager is an error of the write, not the end of the run
}

bool stop_requested() { return stop; }
void request_stop(bool wish) { stop = wish; }

}  // namespace owt
