// Files that are replaced and kept.
#pragma once

#include <string>
#include <string_view>

namespace owt {

// write_file_atomically() (files.h), but what stands there is kept as path.1, path.2 and so on, the first name that is
// free. Returns that name; empty where nothing stood there, or the same content, and then nothing is written.
std::string write_keeping_old(const std::string& path, std::string_view content);

}  // namespace owt
