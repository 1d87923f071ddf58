#include "src/comm/signals.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <ctime>

#include "src/comm/launch.h"
#include "src/system/log.h"

namespace owt {
namespace {

std::atomic<bool> stop{false}, leave{false};
std::atomic<const char*> answer_to_interrupt{nullptr};
std::atomic<int64_t> kept_step{-1};
Presses presses;
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<const char*>::is_always_lock_free &&
                  std::atomic<int64_t>::is_always_lock_free,
              "used in a signal handler");

// A single write, since other processes write to the same terminal. Nothing here allocates memory or takes locks.
void answer_interrupt() {
  const char* const answer = answer_to_interrupt;
  if (!answer) return;
  char line[256];
  char* end = line;
  const size_t length = std::min(std::strlen(answer), sizeof line - 32);
  end = std::copy(answer, answer + length, end);
  if (kept_step >= 0) end = std::to_chars(end, line + sizeof line - 1, kept_step.load()).ptr;
  *end++ = '\n';
  write_over_status({line, static_cast<size_t>(end - line)});
}

int64_t nanoseconds_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

extern "C" void on_stop_signal(int signal) {
  const int error = errno;  // preserved for the interrupted thread
  stop = true;
  if (signal == SIGINT) interrupt_at(nanoseconds_now());
  errno = error;
}

extern "C" void on_leave_signal(int) { leave = true; }

void stop_on(int signal) {
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  sigaction(signal, &action, nullptr);
}

bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

std::vector<int> stop_signals() {
  std::vector<int> signals{SIGTERM, SIGUSR1, SIGINT};
  if (!is_ignored(SIGHUP)) signals.push_back(SIGHUP);
  return signals;
}

Presses::Press Presses::press(int64_t now) {
  int64_t first = kNever;
  if (first_.compare_exchange_strong(first, now)) return Press::kFirst;
  return now - first < kSameFor ? Press::kSame : Press::kAgain;
}

void interrupt_at(int64_t now) {
  stop = true;
  const Presses::Press press = presses.press(now);
  if (press == Presses::Press::kFirst) answer_interrupt();
  if (press != Presses::Press::kAgain) return;
  drop_status();
  std::signal(SIGINT, SIG_DFL);
  std::raise(SIGINT);  // ends the process by default once the handler has returned
}

void catch_stop_signals(const char* answer) {
  presses.forget();
  kept_step = -1;
  answer_to_interrupt = launch().rank == 0 ? answer : nullptr;
  // mpirun sends another SIGTERM to ranks that end a little later than the first.
  for (const int signal : stop_signals()) stop_on(signal);
  std::signal(SIGPIPE, SIG_IGN);  // a closed pager causes a write error instead of ending the run
}

void catch_leave_signal() {
  struct sigaction action {};
  action.sa_handler = on_leave_signal;
  sigaction(SIGUSR2, &action, nullptr);
}

bool leave_requested() { return leave; }
void request_leave() { leave = true; }
bool stop_requested() { return stop; }
void request_stop(bool wish) { stop = wish; }
void note_kept_step(int64_t step) { kept_step = step; }

}  // namespace owt
