// The progress of a run, for people: one line redrawn in place on a terminal, plain lines anywhere else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace owt {

enum class ProgressStyle {
  kTerminal,  // redrawn at most five times a second
  kPlain,     // a line at most every five seconds, and at the end of each epoch
};
ProgressStyle progress_style();  // suitable for this process's stderr

// "47 s", "3:07", "2:03:07"; "?" for values that are no duration.
std::string duration_text(double seconds);

struct ProgressField {
  std::string text;
  int rank;  // 0 is the most important
};
// The fields in order, separated by two blanks. If not all fit into `columns`, a field is left out if it does not fit
// beside all more important ones; no field is cut.
std::string fitted(const std::vector<ProgressField>& fields, size_t columns = std::string::npos);

// Used by one thread.
class ProgressLine {
 public:
  // seconds: a monotonic clock. columns: width of the terminal; 0: ask the system every time.
  ProgressLine(ProgressStyle style, std::function<double()> seconds, int columns = 0);
  ProgressLine();  // for stderr, with the system's clock
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine();  // clears the line

  double seconds() const { return seconds_(); }
  bool due() const;  // the last line was shown long enough ago
  void show(const std::vector<ProgressField>& fields);

 private:
  ProgressStyle style_;
  std::function<double()> seconds_;
  int columns_;
  double last_shown_;
};

struct ProgressState {
  int64_t step = 0;         // updates done
  int64_t total_steps = 0;  // in the whole run
  int64_t epoch = 0;        // epoch of the last step, from 0
  int64_t epochs = 0;       // in the whole run
  double loss = 0, top1 = 0, lr = 0;
  double data_wait_s = 0;  // all steps of this process so far
};

// Used by one thread.
class Progress {
 public:
  explicit Progress(ProgressStyle style, std::function<double()> seconds, int columns = 0);  // see ProgressLine
  Progress();

  // Call after each step of `images` images.
  void update(const ProgressState& state, int64_t images);
  // Call after the last update() of an epoch: shows the state at once.
  void end_epoch();
  // Excludes the time since the last update() (an evaluation, a checkpoint) from the rate.
  void skip_time();

  // Images per second, an exponential moving average over about ten seconds; 0 before it is known.
  double images_per_second() const;
  std::vector<ProgressField> fields() const;  // the displayed fields

 private:
  double seconds_left() const;
  void show();

  ProgressLine line_;
  ProgressState state_;
  double last_update_;
  double recent_images_ = 0, recent_steps_ = 0, recent_seconds_ = 0, recent_wait_ = 0;  // exponentially decaying sums
  bool shown_state_ = true;                                                             // no change since it was shown
};

}  // namespace owt
