#include "src/core/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <mutex>

#include "src/core/check.h"
#include "src/core/printable.h"

namespace owt {
namespace {

struct Sinks {
  std::mutex mutex;
  std::shared_ptr<spdlog::logger> console = [] {
    auto logger = std::make_shared<spdlog::logger>("owt", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    logger->set_pattern("%v");
    return logger;
  }();
  std::shared_ptr<spdlog::logger> file;
};

Sinks& sinks() {
  static Sinks all;
  return all;
}

thread_local bool quiet_thread = false;

void write(spdlog::level::level_enum level, const std::string& line) {
  const std::string text = printable(line);
  const std::lock_guard lock(sinks().mutex);
  sinks().console->log(level, text);
  if (sinks().file) sinks().file->log(level, text);
}

}  // namespace

void log_line(const std::string& text) {
  if (!quiet_thread) write(spdlog::level::info, text);
}

void log_warning(const std::string& text) { write(spdlog::level::warn, "warning: " + text); }

void log_to_file_only(const std::string& text) {
  const std::lock_guard lock(sinks().mutex);
  if (sinks().file) sinks().file->info(printable(text));
}

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
    // A disk that fills up shows where data is lost, in checkpoints and metrics; a log line may go missing.
    logger->set_error_handler([](const std::string&) {});
  }
  const std::lock_guard lock(sinks().mutex);
  sinks().file = logger;
}

void log_quiet(bool quiet) { quiet_thread = quiet; }

}  // namespace owt
