// Code shared by the fuzz targets.
//
// A target gets any bytes. It must end with an Error, or with a result that holds the promises of its reader. Anything
// else is a bug: a crash, a sanitizer report, a broken promise, too much time or memory.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "src/system/check.h"

namespace owt {

// Ends the process if a reader's promise is broken.
inline void promise(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

// Runs read(), which may refuse the input.
template <class Read>
void try_reading(const Read& read) {
  try {
    read();
  } catch (const Error& e) {
    promise(*e.what() != '\0', "an Error says something");
  }
}

// A file in memory, under a path.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* bytes, size_t count) : file_(memfd_create("fuzz", 0)) {
    promise(file_ >= 0 && write(file_, bytes, count) == static_cast<ssize_t>(count), "a file in memory");
  }
  ~MemoryFile() { close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

inline std::string_view text_of(const uint8_t* bytes, size_t count) {
  return {reinterpret_cast<const char*>(bytes), count};
}

}  // namespace owt
