#include "src/train/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "src/core/log.h"

namespace owt {
namespace {

constexpr double kRedrawSeconds = 0.2, kPlainSeconds = 5, kMemorySeconds = 10;
constexpr const char* kClearLine = "\r\x1b[K";

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

ProgressStyle progress_style() { return isatty(STDERR_FILENO) ? ProgressStyle::kTerminal : ProgressStyle::kPlain; }

std::string duration_text(double seconds) {
  if (!(seconds >= 0 && seconds < 1e9)) return "?";
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 60) return format("{} s", whole);
  if (whole < 3600) return format("{}:{:02}", whole / 60, whole % 60);
  return format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

Progress::Progress(std::ostream& out, ProgressStyle style, std::function<double()> seconds, int columns)
    : out_(out), style_(style), seconds_(std::move(seconds)), columns_(columns) {
  last_update_ = seconds_();
  // A terminal shows the first step at once; a file begins with a line that already knows the rate.
  last_shown_ = style == ProgressStyle::kTerminal ? -INFINITY : last_update_;
}

Progress::Progress(std::ostream& out, ProgressStyle style) : Progress(out, style, steady_seconds) {}

Progress::~Progress() { clear(); }

void Progress::update(const ProgressState& state, int64_t images) {
  const double now = seconds_(), passed = now - last_update_;
  last_update_ = now;
  const double keep = std::exp(-passed / kMemorySeconds);
  recent_images_ = keep * recent_images_ + static_cast<double>(images);
  recent_steps_ = keep * recent_steps_ + 1;
  recent_seconds_ = keep * recent_seconds_ + passed;
  state_ = state;
  shown_state_ = false;
  const bool last = state.step >= state.total_steps;
  if (last || now - last_shown_ >= (style_ == ProgressStyle::kTerminal ? kRedrawSeconds : kPlainSeconds)) show();
}

void Progress::end_epoch() {
  if (!shown_state_) show();
}

void Progress::clear() {
  if (!drawn_) return;
  out_ << kClearLine << std::flush;
  drawn_ = false;
  last_shown_ = -INFINITY;  // back on the terminal with the next step
}

void Progress::skip_time() { last_update_ = seconds_(); }

double Progress::images_per_second() const { return recent_seconds_ > 0 ? recent_images_ / recent_seconds_ : 0; }

double Progress::seconds_left() const {
  return static_cast<double>(state_.total_steps - state_.step) * recent_seconds_ / recent_steps_;
}

std::string Progress::line() const {
  const double percent =
      100.0 * static_cast<double>(state_.step) / static_cast<double>(std::max<int64_t>(state_.total_steps, 1));
  return format("epoch {}/{}  step {}/{}  {:.1f} %  {:.0f} images/s  loss {:.4f}  top-1 {:.1f} %  left {}  lr {:.3g}",
                state_.epoch + 1, state_.epochs, state_.step, state_.total_steps, percent, images_per_second(),
                state_.loss, 100 * state_.top1, duration_text(seconds_left()), state_.lr);
}

void Progress::show() {
  last_shown_ = last_update_;
  shown_state_ = true;
  if (style_ == ProgressStyle::kPlain) {
    out_ << line() << '\n' << std::flush;
    return;
  }
  // A line that wraps could not be redrawn in place.
  const int columns = columns_ > 0 ? columns_ : terminal_columns();
  out_ << kClearLine << line().substr(0, static_cast<size_t>(std::max(columns - 1, 1))) << std::flush;
  drawn_ = true;
}

}  // namespace owt
