#include "src/system/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace owt {

InputFile::InputFile(const std::string& path) : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}

InputFile::~InputFile() {
  if (is_open()) ::close(file_);
}

int64_t InputFile::size() const {
  struct stat status {};
  return ::fstat(file_, &status) == 0 && S_ISREG(status.st_mode) ? status.st_size : -1;
}

void InputFile::expect_random_access() const { ::posix_fadvise(file_, 0, 0, POSIX_FADV_RANDOM); }

std::string InputFile::read(uint64_t offset, std::span<char> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(file_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::strerror(errno);
    if (got == 0) return "it ends early";
    offset += static_cast<uint64_t>(got);
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
  return "";
}

}  // namespace owt
