// What the main() of every program of owt does before anything else.
#pragma once

#include <fcntl.h>

#include <csignal>
#include <cstdlib>

namespace owt {

// Opens /dev/null for each standard stream that the process was started without: the next file that is opened would
// take its number, and get the lines that are meant for the terminal. Ignores SIGXFSZ, so that a file which reaches the
// limit of sizes (ulimit -f) is an error of the write, as a full disk is. Programs that this one becomes (exec) inherit
// both.
inline void start_process() {
  for (int stream = 0; stream <= 2; ++stream)
    if (::fcntl(stream, F_GETFD) == -1 && ::open("/dev/null", O_RDWR) != stream) std::_Exit(1);  // nowhere to say why
  std::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace owt
