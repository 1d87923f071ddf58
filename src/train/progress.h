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
ProgressStyle progress_style();  // what suits this process's stderr

// "47 s", "3:07", "2:03:07"; anything that is no duration: "?".
std::string duration_text(double seconds);

struct ProgressField {
  std::string text;
  int rank;  // 0 is what people want to know first
};
// The fields in their order, two blanks between them. Where not all fit into so many columns, those are left out that
// do not fit beside all that matter more; none is cut.
std::string fitted(const std::vector<ProgressField>& fields, size_t columns = std::string::npos);

// Used by one thread.
class ProgressLine {
 public:
  // `seconds`: a clock that never goes back; `columns`: width of the terminal (0: ask the system every time).
  ProgressLine(ProgressStyle style, std::function<double()> seconds, int columns = 0);
  ProgressLine();  // what suits stderr, with the system's clock
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
  int64_t total_steps = 0;  // of the whole run
  int64_t epoch = 0;        // of the last step, from 0
  int64_t epochs = 0;       // of the whole run
  double loss = 0, top1 = 0, lr = 0;
  double data_wait_s = 0;  // of all steps of this process so far
};

// Used by one thread.
class Progress {
 public:
  explicit Progress(ProgressStyle style, std::function<double()> seconds, int columns = 0);  // ProgressLine's
  Progress();

  // After each step of `images` images.
  void update(const ProgressState& state, int64_t images);
  // After the last update() of an epoch: shows the state whatever the time.
  void end_epoch();
  // The time since the last update() was no training (an evaluation, a checkpoint): it does not count for the
  // rate.
  void skip_time();

  // Images per second, an average over the last ten seconds or so that forgets exponentially; 0 before it is
  // known.
  double images_per_second() const;
  std::vector<ProgressField> fields() const;  // as shown

 private:
  double seconds_left() const;
  void show();

  ProgressLine line_;
  ProgressState state_;
  double last_update_;
  double recent_images_ = 0, recent_steps_ = 0, recent_seconds_ = 0, recent_wait_ = 0;  // faded sums
  bool shown_state_ = true;  // nothing happened since it was shown
};

}  // namespace owt
