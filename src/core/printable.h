// Texts of strangers, for people: names of classes, tensors, files, members and keys come from files that anyone may
// have made, and a terminal does what control characters say.
#pragma once

#include <string>
#include <string_view>

namespace owt {

// The text on one line, with \x1b and so on in place of control characters (those of Unicode, line ends and tabs among
// them) and of bytes that are no UTF-8. Errors and log lines go through this; whoever prints names otherwise calls it.
std::string printable(std::string_view text);

}  // namespace owt
