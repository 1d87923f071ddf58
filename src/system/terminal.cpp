#include "src/system/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "src/system/check.h"
#include "src/system/utf8.h"

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

std::string folded(const std::string& text, size_t columns, size_t indent, size_t begin) {
  std::string out;
  size_t column = begin, blank = std::string::npos;  // column: length of the last line; blank: place of its last blank
  for (const char c : text) {
    out += c;
    column += begins_character(c);
    if (c == ' ' && column > indent) blank = out.size() - 1;
    if (column <= columns || blank == std::string::npos) continue;
    const std::string next = out.substr(blank + 1);
    out.erase(blank);
    out += concat("\n", std::string(indent, ' '), next);
    column = indent + static_cast<size_t>(std::ranges::count_if(next, begins_character)), blank = std::string::npos;
  }
  return out;
}

std::string tinted(Tint tint, const std::string& text) {
  if (!terminal_redraws() || !terminal_variable("NO_COLOR").empty()) return text;
  return concat("\x1b[", static_cast<int>(tint), "m", text, "\x1b[0m");
}

}  // namespace owt
