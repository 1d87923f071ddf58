// How much of the log stderr shows. Log files get every line.
#pragma once

namespace owt {

enum class LogLevel {
  kQuiet,  // only warnings; no progress
  kNormal,
  kVerbose,  // also the lines of log_to_file_only()
};
void show_log(LogLevel level);
LogLevel shown_log();

}  // namespace owt
