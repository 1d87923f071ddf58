#include "src/train/signals.h"

#include <atomic>
#include <csignal>

#include "src/core/log.h"

namespace owt {
namespace {

std::atomic<bool> stop{false}, interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set in a signal handler");

// The second Ctrl-C acts as by default.
extern "C" void on_stop_signal(int signal) {
  stop = true;
  if (signal != SIGINT || !interrupted.exchange(true)) return;
  drop_status();
  std::signal(SIGINT, SIG_DFL);
  std::raise(SIGINT);
}

}  // namespace

void catch_stop_signals() {
  interrupted = false;
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  // mpirun sends SIGTERM once more to the ranks that end a little later than the first.
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGUSR1, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // a closed pager is an error of the write, not the end of the run
}

bool stop_requested() { return stop; }
void request_stop(bool wish) { stop = wish; }

}  // namespace owt
