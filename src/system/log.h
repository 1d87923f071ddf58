// Log lines for people, and text formatting. Rank 0 of a run logs; every line goes to stderr and to the run's log.txt.
// On a terminal a status line may follow the log lines; it stays intact whichever thread logs.
#pragma once

#include <spdlog/fmt/fmt.h>

#include <string>
#include <string_view>
#include <utility>

#include "src/system/log_lines.h"

namespace owt {

// fmt::format as an object: a call of a function of this name with a std::string would also find std::format.
inline constexpr struct {
  template <class... Args>
  std::string operator()(fmt::format_string<Args...> text, Args&&... args) const {
    return fmt::format(text, std::forward<Args>(args)...);
  }
} format;

template <class... Args>
void log_info(fmt::format_string<Args...> text, Args&&... args) {
  log_line(fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void log_warn(fmt::format_string<Args...> text, Args&&... args) {
  log_warning(fmt::format(text, std::forward<Args>(args)...));
}

// Appends log lines to this file as well from then on. Throws Error if it cannot be written. An empty path closes it.
void log_to_file(const std::string& path);
// Sets the status line of a terminal that redraws lines; it must fit the width. Log lines appear above it. Empty: none.
void log_status(const std::string& line);
// Removes the status line before something else writes to the terminal or the process ends. May be called by any thread
// at any time, also in a signal handler.
void drop_status();
// Replaces the status line by this line of at most 500 characters. It is one write, because another thread could draw
// the status line between two writes.
void write_over_status(std::string_view line);
// While quiet, lines below warnings are dropped on this host thread.
void log_quiet(bool quiet);

}  // namespace owt
