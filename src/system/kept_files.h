// Replacing a file and keeping its old content.
#pragma once

#include <string>
#include <string_view>

namespace owt {

// Writes as write_file_atomically() (files.h), and keeps the old file as path.1, path.2 and so on, the first free name.
// Returns that name. Returns an empty name if there was no file, or if it had the same content and nothing was written.
std::string write_keeping_old(const std::string& path, std::string_view content);

}  // namespace owt
