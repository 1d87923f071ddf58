// The first call in the main() of every owt program.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>

namespace owt {

// Opens /dev/null for each standard stream that the process was started without. Otherwise the next file that is opened
// would take its number and receive the lines for the terminal. Ignores SIGXFSZ, so that a file at the size limit
// (ulimit -f) is a write error, like a full disk. Raises the limit of open files as far as the system allows, because
// each shard of a data set is one. Programs that this process becomes (exec) inherit all three.
inline void start_process() {
  for (int stream = 0; stream <= 2; ++stream)
    if (::fcntl(stream, F_GETFD) == -1 && ::open("/dev/null", O_RDWR) != stream) std::_Exit(1);  // nowhere to say why
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace owt
