// The terminal that stderr may be connected to.
#pragma once

#include <string>

namespace owt {

// Whether stderr is a terminal that redraws lines: TERM is set and not "dumb".
bool terminal_redraws();
// Asks the system at every call, since windows change; 80 if the system does not know.
int terminal_columns();

// The text broken at blanks into lines of at most so many columns, if its words allow that; lines after the first are
// indented. begin: length of the line that the text continues.
std::string folded(const std::string& text, size_t columns, size_t indent = 2, size_t begin = 0);

enum class Tint { kRed = 31, kYellow = 33 };
// The text in that colour if stderr is a terminal that redraws lines and NO_COLOR is not set (no-color.org).
std::string tinted(Tint tint, const std::string& text);

}  // namespace owt
