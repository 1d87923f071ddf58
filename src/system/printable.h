// Untrusted text for terminals: names of classes, tensors, files, members and keys come from files of any origin, and a
// terminal executes control characters.
#pragma once

#include <string>
#include <string_view>

namespace owt {

// The text on one line. Control characters (also Unicode's, line ends and tabs) and bytes that are not UTF-8 become
// \x1b and so on. Errors and log lines pass through this function; code that prints names in other ways must call it.
std::string printable(std::string_view text);

}  // namespace owt
