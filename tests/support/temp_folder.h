// Files of a test: a folder that is removed with its contents, and a disk that becomes full.
#pragma once

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "src/system/check.h"

namespace owt {

class TempFolder {
 public:
  TempFolder() : path_((std::filesystem::temp_directory_path() / "owt_test_XXXXXX").string()) {
    OWT_CHECK(mkdtemp(path_.data()) != nullptr, "cannot make ", path_);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// While it lives, no file of this process can grow beyond `bytes`: writes fail as on a full disk.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t bytes) : old_handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit small{bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallDisk() {
    setrlimit(RLIMIT_FSIZE, &old_);
    signal(SIGXFSZ, old_handler_);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

 private:
  rlimit old_{};
  void (*old_handler_)(int);
};

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  OWT_CHECK(file.good(), "cannot write ", path);
}

// Nested JSON lists; deep nesting overflows the stack of a recursive reader.
inline std::string nested(size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); }

}  // namespace owt
