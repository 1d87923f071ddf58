// How far owt prepare is.
#pragma once

#include <chrono>
#include <iostream>
#include <string>
#include <utility>

#include "data/prepare/prepare.h"
#include "src/core/log.h"
#include "src/train/progress.h"

namespace owt {

inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// After `seconds` in which this process came from `first` to where it is.
inline std::string progress_line(const std::string& what, const PrepareState& state, int64_t first, double seconds) {
  const double rate = static_cast<double>(state.done - first) / seconds,
               left = static_cast<double>(state.photos - state.done) / rate;
  return format("{}  {}/{}  {:.1f} %  {:.0f} images/s  left {}{}", what, state.done, state.photos,
                100.0 * static_cast<double>(state.done) / static_cast<double>(state.photos), rate, duration_text(left),
                state.skipped > 0 ? format("  skipped {}", state.skipped) : "");
}

// One line, redrawn on a terminal. For one thread at a time.
class PrepareProgress {
 public:
  explicit PrepareProgress(std::string what) : what_(std::move(what)), style_(progress_style()) {}
  ~PrepareProgress() {
    if (drawn_) std::cerr << "\r\x1b[K" << std::flush;
  }
  PrepareProgress(const PrepareProgress&) = delete;
  PrepareProgress& operator=(const PrepareProgress&) = delete;

  void update(const PrepareState& state) {
    const bool terminal = style_ == ProgressStyle::kTerminal;
    const double now = now_seconds();
    if (begun_ < 0) {
      begun_ = shown_ = now;
      first_ = state.done;
    }
    if (now - shown_ < (terminal ? kRedrawSeconds : kPlainSeconds)) return;
    shown_ = now;
    drawn_ = terminal;
    std::cerr << (terminal ? "\r\x1b[K" : "") << progress_line(what_, state, first_, now - begun_)
              << (terminal ? "" : "\n") << std::flush;
  }

 private:
  static constexpr double kRedrawSeconds = 0.2, kPlainSeconds = 5;

  const std::string what_;
  const ProgressStyle style_;
  double begun_ = -1, shown_ = 0;
  int64_t first_ = 0;  // done by an earlier process
  bool drawn_ = false;
};

}  // namespace owt
