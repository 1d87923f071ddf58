// SIGINT, SIGTERM, SIGHUP and SIGUSR1 ask a run to stop at the next step; a SIGINT more than two seconds after the
// first ends the process at once.
// SIGUSR1 is for mpirun, which passes it on to all ranks; on a SIGTERM of its own it kills them after a second. SIGHUP
// stays ignored where it was ignored at the start, as under nohup.
#pragma once

#include <atomic>
#include <cstdint>

namespace owt {

// `answer`: the line that the first SIGINT prints on rank 0, a string literal; null: none. A step stands behind it once
// note_kept_step() has been called.
void catch_stop_signals(const char* answer = nullptr);
bool stop_requested();
void request_stop(bool stop);  // as the signal would; false forgets it

// The answer of a run that writes checkpoints, which keep everything up to a step.
inline constexpr char kCheckpointFollows[] =
    "stopping after this step; a checkpoint follows; press again to end at once and lose the steps since step ";
void note_kept_step(int64_t step);

// Presses of Ctrl-C by their times in nanoseconds. Those within two seconds of the first are the same wish: people
// press twice. Lock-free, for a signal handler.
class Presses {
 public:
  enum class Press { kFirst, kSame, kAgain };
  Press press(int64_t now);
  void forget() { first_ = kNever; }

 private:
  static constexpr int64_t kNever = -1, kSameFor = 2'000'000'000;
  std::atomic<int64_t> first_{kNever};
};

// What the handler of SIGINT does at this time.
void interrupt_at(int64_t now);

}  // namespace owt
