// The terminal that stderr may be, where people look at what goes on.
#pragma once

#include <string>

namespace owt {

// stderr is a terminal that redraws lines: TERM is set, and not "dumb".
bool terminal_redraws();
// Asked anew every time, since windows change; 80 where the system does not say.
int terminal_columns();

enum class Tint { kRed = 31, kYellow = 33 };
// In that colour where stderr is such a terminal, and NO_COLOR is not set (no-color.org); else as it is.
std::string tinted(Tint tint, const std::string& text);

}  // namespace owt
