// Log lines that are already formatted. Separate from log.h because nvcc cannot compile the formatting library.
#pragma once

#include <string>

namespace owt {

void log_line(const std::string& text);          // "info"
void log_warning(const std::string& text);       // printed with "warning: " in front
void log_to_file_only(const std::string& text);  // not for the terminal

}  // namespace owt
