#include "src/train/progress.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <utility>

#include "src/system/log.h"
#include "src/system/log_level.h"
#include "src/system/terminal.h"

namespace owt {
namespace {

constexpr double kRedrawSeconds = 0.2, kPlainSeconds = 5, kMemorySeconds = 10;
constexpr int kRoomForCtrlC = 2;  // a terminal shows ^C after the line, which must not wrap

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

ProgressStyle progress_style() { return terminal_redraws() ? ProgressStyle::kTerminal : ProgressStyle::kPlain; }

std::string duration_text(double seconds) {
  if (!(seconds >= 0 && seconds < 1e9)) return "?";
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 60) return format("{} s", whole);
  if (whole < 3600) return format("{}:{:02}", whole / 60, whole % 60);
  return format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string fitted(const std::vector<ProgressField>& fields, size_t columns) {
  std::vector<size_t> by_rank(fields.size());
  std::iota(by_rank.begin(), by_rank.end(), size_t{0});
  std::ranges::stable_sort(by_rank, {}, [&](size_t i) { return fields[i].rank; });
  std::vector<bool> shown(fields.size());
  size_t width = 0;
  for (const size_t i : by_rank) {
    const size_t wider = width + (width > 0 ? 2 : 0) + fields[i].text.size();
    if (wider <= columns) shown[i] = true, width = wider;
  }
  std::string line;
  for (size_t i = 0; i < fields.size(); ++i)
    if (shown[i]) line += (line.empty() ? "" : "  ") + fields[i].text;
  return line;
}

// A terminal shows the first state at once; in a file the first line waits until the rate is known.
ProgressLine::ProgressLine(ProgressStyle style, std::function<double()> seconds, int columns)
    : style_(style),
      seconds_(std::move(seconds)),
      columns_(columns),
      last_shown_(style == ProgressStyle::kTerminal ? -INFINITY : seconds_()) {}

ProgressLine::ProgressLine() : ProgressLine(progress_style(), steady_seconds) {}

ProgressLine::~ProgressLine() { log_status(""); }

bool ProgressLine::due() const {
  return seconds_() - last_shown_ >= (style_ == ProgressStyle::kTerminal ? kRedrawSeconds : kPlainSeconds);
}

void ProgressLine::show(const std::vector<ProgressField>& fields) {
  last_shown_ = seconds_();
  if (shown_log() == LogLevel::kQuiet) return;
  if (style_ == ProgressStyle::kPlain) {
    // Not std::cerr, which writes nothing after a disk was full.
    std::fputs((fitted(fields) + '\n').c_str(), stderr);
    return;
  }
  const int columns = columns_ > 0 ? columns_ : terminal_columns();
  log_status(fitted(fields, static_cast<size_t>(std::max(columns - kRoomForCtrlC, 0))));
}

Progress::Progress(ProgressStyle style, std::function<double()> seconds, int columns)
    : line_(style, std::move(seconds), columns), last_update_(line_.seconds()) {}

Progress::Progress() : last_update_(line_.seconds()) {}

void Progress::update(const ProgressState& state, int64_t images) {
  const double now = line_.seconds(), passed = now - last_update_;
  last_update_ = now;
  const double keep = std::exp(-passed / kMemorySeconds);
  recent_images_ = keep * recent_images_ + static_cast<double>(images);
  recent_steps_ = keep * recent_steps_ + 1;
  recent_seconds_ = keep * recent_seconds_ + passed;
  recent_wait_ = keep * recent_wait_ + (state.data_wait_s - state_.data_wait_s);
  state_ = state;
  shown_state_ = false;
  if (state.step >= state.total_steps || line_.due()) show();
}

void Progress::end_epoch() {
  if (!shown_state_) show();
}

void Progress::skip_time() { last_update_ = line_.seconds(); }

double Progress::images_per_second() const { return recent_seconds_ > 0 ? recent_images_ / recent_seconds_ : 0; }

double Progress::seconds_left() const {
  return static_cast<double>(state_.total_steps - state_.step) * recent_seconds_ / recent_steps_;
}

std::vector<ProgressField> Progress::fields() const {
  const double percent =
      100.0 * static_cast<double>(state_.step) / static_cast<double>(std::max<int64_t>(state_.total_steps, 1));
  // A step that is under way has already waited.
  const double wait = recent_seconds_ > 0 ? std::min(100 * recent_wait_ / recent_seconds_, 100.0) : 0;
  return {{format("epoch {}/{}", state_.epoch + 1, state_.epochs), 0},
          {format("step {}/{}", state_.step, state_.total_steps), 7},
          {format("{:.1f} %", percent), 6},
          {format("{:.0f} images/s", images_per_second()), 3},
          {format("loss {:.4f}", state_.loss), 1},
          {format("top-1 {:.1f} %", 100 * state_.top1), 4},
          {format("left {}", duration_text(seconds_left())), 2},
          {format("wait {:.0f} %", wait), 5},
          {format("lr {:.3g}", state_.lr), 8}};
}

void Progress::show() {
  shown_state_ = true;
  line_.show(fields());
}

}  // namespace owt
