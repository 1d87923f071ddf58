#include "src/train/growing_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "src/core/check.h"

namespace owt {

GrowingFile::GrowingFile(const std::string& path)
    : path_(path), descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) fail("cannot write ", path, ": ", std::strerror(errno), "; choose another --out");
}

GrowingFile::~GrowingFile() { ::close(descriptor_); }

void GrowingFile::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(descriptor_, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail("cannot write ", path_, ": ", std::strerror(errno), "; free some space, then resume the run");
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
}

}  // namespace owt
