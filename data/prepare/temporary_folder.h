// A folder for files before they are moved to their place. It is removed with its remaining contents by the destructor.
#pragma once

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "src/system/check.h"

namespace owt {

class TemporaryFolder {
 public:
  // Makes a new folder inside `parent`, which is created if it is missing, so that a rename out of it stays on one
  // disk. Throws Error if it cannot be made.
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
