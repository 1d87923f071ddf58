#include "src/files/growing_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "src/system/log.h"
#include "src/system/no_room.h"

namespace owt {

GrowingFile::GrowingFile(const std::string& path)
    : path_(path), descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) fail_to_write(path, errno, "; choose another --out");
}

GrowingFile::~GrowingFile() { ::close(descriptor_); }

void GrowingFile::append(std::string_view bytes) {
  const bool waited = !waiting_.empty();
  waiting_ += bytes;
  while (!waiting_.empty()) {
    const ssize_t wrote = ::write(descriptor_, waiting_.data(), waiting_.size());
    if (wrote >= 0) {
      waiting_.erase(0, static_cast<size_t>(wrote));
    } else if (says_no_room(errno)) {
      if (!waited) log_warn("cannot write {}: {}; its lines wait until there is room", path_, std::strerror(errno));
      return;
    } else if (errno != EINTR) {
      fail_to_write(path_, errno);
    }
  }
}

}  // namespace owt
