#include "src/system/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "src/system/check.h"

namespace owt {
namespace {

std::string terminal_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

bool terminal_redraws() {
  const std::string kind = terminal_variable("TERM");
  return isatty(STDERR_FILENO) && !kind.empty() && kind != "dumb";
}

int terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string tinted(Tint tint, const std::string& text) {
  if (!terminal_redraws() || !terminal_variable("NO_COLOR").empty()) return text;
  return concat("\x1b[", static_cast<int>(tint), "m", text, "\x1b[0m");
}

}  // namespace owt
