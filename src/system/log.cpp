#include "src/system/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "src/system/check.h"
#include "src/system/kept_log.h"
#include "src/system/log_level.h"
#include "src/system/own_words.h"
#include "src/system/printable.h"
#include "src/system/terminal.h"

namespace owt {
namespace {

constexpr char kClearLine[] = "\r\x1b[K";
std::atomic<bool> status_shown{false};  // possibly: clearing a line that is not there does no harm
static_assert(std::atomic<bool>::is_always_lock_free, "read in a signal handler");

struct Sinks {
  std::mutex mutex;
  std::string status;
  std::shared_ptr<spdlog::logger> file;
  using TimedLine = std::pair<spdlog::log_clock::time_point, std::string>;
  std::optional<std::vector<TimedLine>> kept;  // for a file that is not open yet

  void to_file(const std::string& line) {
    if (file) file->info(line);
    if (kept) kept->emplace_back(spdlog::log_clock::now(), line);
  }

  // One write, since other processes write to the same terminal.
  void show(const std::string& line) const {
    const std::string text = concat(status_shown.load() ? kClearLine : "", line, status);
    if (!status.empty()) status_shown = true;  // set before the line is drawn: a signal may arrive in between
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
    if (status.empty()) status_shown = false;
  }
};

Sinks& sinks() {
  static Sinks all;
  return all;
}

thread_local bool quiet_thread = false;
std::atomic<LogLevel> shown{LogLevel::kNormal};

std::string on_terminal(const std::string& head, const std::string& text) {
  if (!terminal_redraws()) return head + text;
  const std::string lines = folded(head + text, static_cast<size_t>(terminal_columns()));
  return (head.empty() ? head : tinted(Tint::kYellow, head)) + lines.substr(head.size());
}

// Writes a line to the file, and to stderr if the log is shown from `level` on.
void write(LogLevel level, const std::string& head, const std::string& line) {
  const std::string text = printable(fit_for_message(line));
  const std::lock_guard lock(sinks().mutex);
  if (level <= shown && !(quiet_thread && level == LogLevel::kVerbose)) sinks().show(on_terminal(head, text) + '\n');
  sinks().to_file(head + text);
}

}  // namespace

void log_line(const std::string& text) {
  if (!quiet_thread) write(LogLevel::kNormal, "", text);
}

void log_warning(const std::string& text) { write(LogLevel::kQuiet, "warning: ", text); }

void log_to_file_only(const std::string& text) { write(LogLevel::kVerbose, "", text); }

void show_log(LogLevel level) { shown = level; }
LogLevel shown_log() { return shown; }

void log_status(const std::string& line) {
  const std::lock_guard lock(sinks().mutex);
  if (line.empty() && sinks().status.empty()) return;
  sinks().status = line;
  sinks().show("");
}

void write_over_status(std::string_view line) {
  char text[512];
  char* end = text;
  if (status_shown) end = std::copy_n(kClearLine, sizeof kClearLine - 1, end);
  end = std::copy_n(line.data(), std::min(line.size(), static_cast<size_t>(text + sizeof text - end)), end);
  const ssize_t unused [[maybe_unused]] = ::write(STDERR_FILENO, text, static_cast<size_t>(end - text));
}

void drop_status() { write_over_status(""); }

void log_to_file(const std::string& path) {
  std::shared_ptr<spdlog::logger> logger;
  if (!path.empty()) {
    try {
      logger = std::make_shared<spdlog::logger>("file", std::make_shared<spdlog::sinks::basic_file_sink_mt>(path));
    } catch (const spdlog::spdlog_ex& e) {
      fail("cannot write the log ", path, ": ", e.what(), "; choose another --out");
    }
    logger->set_pattern("%Y-%m-%d %H:%M:%S %v");
    logger->flush_on(spdlog::level::info);
    // A full disk is reported where it loses data, for checkpoints and metrics; a log line may be lost.
    logger->set_error_handler([](const std::string&) {});
  }
  const std::lock_guard lock(sinks().mutex);
  const auto kept = std::exchange(sinks().kept, std::nullopt);
  if (logger && kept)
    for (const auto& [time, line] : *kept) logger->log(time, spdlog::source_loc{}, spdlog::level::info, line);
  sinks().file = logger;
}

void keep_log_for_file() {
  const std::lock_guard lock(sinks().mutex);
  sinks().kept.emplace();
}

void log_quiet(bool quiet) { quiet_thread = quiet; }

}  // namespace owt
