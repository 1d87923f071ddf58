// A machine on which few more threads can be started.
#pragma once

#include <sys/resource.h>

#include <fstream>
#include <string>
#include <thread>

namespace owt {

// While it lives, about `threads` threads can be started at a time. Each has a stack of 1 GB, and the address space of
// this process is limited to that.
class FewThreads {
 public:
  explicit FewThreads(int threads) {
    pthread_getattr_default_np(&stacks_before_);
    getrlimit(RLIMIT_AS, &addresses_before_);
    pthread_attr_t large;
    pthread_attr_init(&large);
    pthread_attr_setstacksize(&large, kStack);
    pthread_setattr_default_np(&large);
    pthread_attr_destroy(&large);
    const rlimit few{addresses() + static_cast<rlim_t>(threads) * kStack + kStack / 2, addresses_before_.rlim_max};
    setrlimit(RLIMIT_AS, &few);
  }
  ~FewThreads() {
    setrlimit(RLIMIT_AS, &addresses_before_);
    pthread_setattr_default_np(&stacks_before_);
    pthread_attr_destroy(&stacks_before_);
  }
  FewThreads(const FewThreads&) = delete;
  FewThreads& operator=(const FewThreads&) = delete;

 private:
  static constexpr rlim_t kStack = rlim_t{1} << 30;

  static rlim_t addresses() {
    std::ifstream status("/proc/self/status");
    rlim_t kilobytes = 0;
    for (std::string word; status >> word;)
      if (word == "VmSize:") status >> kilobytes;
    return 1024 * kilobytes;
  }

  pthread_attr_t stacks_before_;
  rlimit addresses_before_{};
};

}  // namespace owt
