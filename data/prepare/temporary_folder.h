// A folder to prepare files in before they are moved to their place; what is left in it goes when this object goes.
#pragma once

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "src/core/check.h"

namespace owt {

class TemporaryFolder {
 public:
  // Makes a new folder inside `parent` (made too where it is missing), so that a rename out of it stays on one disk.
  // Throws Error where it cannot be made.
  explicit TemporaryFolder(const std::string& parent) {
    std::error_code error;
    std::filesystem::create_directories(parent, error);
    if (error) fail("cannot make folder ", parent, ": ", error.message());
    path_ = (std::filesystem::path(parent) / ".owt-XXXXXX").string();
    if (!::mkdtemp(path_.data())) fail("cannot make a folder in ", parent, ": ", std::strerror(errno));
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace owt
