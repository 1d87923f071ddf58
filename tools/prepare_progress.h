// The progress of owt prepare.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "data/prepare/prepare.h"
#include "src/system/log.h"
#include "src/train/progress.h"

namespace owt {

inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// seconds: the time in which this process advanced from `first` to the current state.
inline std::vector<ProgressField> progress_fields(const std::string& what, const PrepareState& state, int64_t first,
                                                  double seconds) {
  const double rate = static_cast<double>(state.done - first) / seconds,
               left = static_cast<double>(state.photos - state.done) / rate;
  std::vector<ProgressField> fields{
      {what, 0},
      {format("{}/{}", state.done, state.photos), 4},
      {format("{:.1f} %", 100.0 * static_cast<double>(state.done) / static_cast<double>(state.photos)), 1},
      {format("{:.0f} images/s", rate), 3},
      {format("left {}", duration_text(left)), 2}};
  if (state.skipped > 0) fields.push_back({format("skipped {}", state.skipped), 5});
  return fields;
}

// One line, redrawn on a terminal. Not thread-safe.
class PrepareProgress {
 public:
  explicit PrepareProgress(std::string what) : what_(std::move(what)) {}

  void update(const PrepareState& state) {
    const double now = line_.seconds();
    if (begun_ < 0) {
      begun_ = now;
      first_ = state.done;
    } else if (line_.due()) {
      line_.show(progress_fields(what_, state, first_, now - begun_));
    }
  }

 private:
  const std::string what_;
  ProgressLine line_;
  double begun_ = -1;
  int64_t first_ = 0;  // images done by an earlier process
};

}  // namespace owt
