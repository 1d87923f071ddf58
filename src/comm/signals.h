// SIGINT, SIGTERM, SIGHUP and SIGUSR1 ask a run to stop after the current step. A SIGINT more than two seconds after
// the first one ends the process at once. SIGUSR1 is for mpirun, which forwards it to all ranks; after a SIGTERM mpirun
// kills its ranks within a second. SIGHUP stays ignored if it was ignored at the start, e.g. under nohup.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace owt {

std::vector<int> stop_signals();
// answer: the line that the first SIGINT prints on rank 0, a string literal; null: none. After note_kept_step() has
// been called, the line ends with that step.
void catch_stop_signals(const char* answer = nullptr);
bool stop_requested();
// SIGUSR2, where workers may leave (owt launch --elastic): this one leaves after the current step.
void catch_leave_signal();
bool leave_requested();
void request_leave();          // has the effect of the signal
void request_stop(bool stop);  // has the effect of a signal; false withdraws the request

// The answer of a run that writes checkpoints. It ends with the step of the last one.
inline constexpr char kCheckpointFollows[] =
    "stopping after this step; a checkpoint follows; press again to end at once and lose the steps since step ";
void note_kept_step(int64_t step);

// Presses of Ctrl-C, by their times in nanoseconds. Presses within two seconds of the first count as one, since people
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

// The action of the SIGINT handler at this time.
void interrupt_at(int64_t now);

}  // namespace owt
