// Log lines for people, and text formatting. Rank 0 of a run logs; every line goes to stderr and to the run's log.txt.
// On a terminal a status line may stand below them, which no line of any thread tears.
#pragma once

#include <spdlog/fmt/fmt.h>

#include <string>
#include <string_view>
#include <utility>

#include "src/core/log_lines.h"

namespace owt {

// fmt::format. An object, because a call of a function by this name with a std::string would find std::format as well.
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

// From now on also to this file (appended). Throws Error where it cannot be written. An empty path closes it.
void log_to_file(const std::string& path);
// The status line, on a terminal that redraws lines, as wide as it at most; log lines come above it. Empty: none.
void log_status(const std::string& line);
// Takes the status line away before something else writes to the terminal, or the process ends. For any thread at any
// time: a signal handler, too.
void drop_status();
// The same, and writes this line, of at most 500 characters, in its place. All of it is one piece: between two pieces
// another thread could draw the status line again.
void write_over_status(std::string_view line);
// Lines below warnings are dropped on this host thread while quiet.
void log_quiet(bool quiet);

}  // namespace owt
