// The progress of a run, for people: one line redrawn in place on a terminal, plain lines anywhere else.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

namespace owt {

struct ProgressState {
  int64_t step = 0;         // updates done
  int64_t total_steps = 0;  // of the whole run
  int64_t epoch = 0;        // of the last step, from 0
  int64_t epochs = 0;       // of the whole run
  double loss = 0, top1 = 0, lr = 0;
};

enum class ProgressStyle {
  kTerminal,  // redrawn at most five times a second
  kPlain,     // a line at most every five seconds, and at the end of each epoch
};
ProgressStyle progress_style();  // what suits this process's stderr

// "47 s", "3:07", "2:03:07"; anything that is no duration: "?".
std::string duration_text(double seconds);

// Used by one thread.
class Progress {
 public:
  // `seconds`: a clock that never goes back; `columns`: width of the terminal (0: ask the system).
  Progress(std::ostream& out, ProgressStyle style, std::function<double()> seconds, int columns = 0);
  Progress(std::ostream& out, ProgressStyle style);  // the system's clock
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // clears the line

  // After each step of `images` images.
  void update(const ProgressState& state, int64_t images);
  // After the last update() of an epoch: shows the state whatever the time.
  void end_epoch();
  // Takes the line off the terminal, so that something else can be printed; the next update() draws it again.
  void clear();
  // The time since the last update() was no training (an evaluation, a checkpoint): it does not count for the
  // rate.
  void skip_time();

  // Images per second, an average over the last ten seconds or so that forgets exponentially; 0 before it is
  // known.
  double images_per_second() const;
  std::string line() const;  // as shown

 private:
  double seconds_left() const;
  void show();

  std::ostream& out_;
  ProgressStyle style_;
  std::function<double()> seconds_;
  int columns_;
  ProgressState state_;
  double last_update_, last_shown_;
  double recent_images_ = 0, recent_steps_ = 0, recent_seconds_ = 0;  // faded sums
  bool drawn_ = false;                                                // the line is on the terminal
  bool shown_state_ = true;                                           // nothing happened since it was shown
};

}  // namespace owt
