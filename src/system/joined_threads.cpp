#include "src/system/joined_threads.h"

#include <latch>
#include <system_error>

#include "src/system/check.h"

namespace owt {

std::thread start_thread(const std::string& name, const std::string& cure, std::function<void()> work) {
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error& e) {
    fail("cannot start ", name, ": ", e.code().message(), "; ", cure, cure.empty() ? "" : ", or ",
         "raise the limit of processes (ulimit -u, a container's pids limit) or of memory (ulimit -v)");
  }
}

void check_threads(int threads, const std::string& name, const std::string& cure) {
  std::latch all_tried(1);
  JoinedThreads tried;
  const auto end = [&] { all_tried.count_down(); };
  tried.start(
      threads, name, cure, [&](int) { all_tried.wait(); }, end);
  end();
  tried.join();
}

void JoinedThreads::start(int count, const std::string& name, const std::string& cure,
                          const std::function<void(int)>& work, const std::function<void()>& stop) {
  threads_.reserve(threads_.size() + static_cast<size_t>(count));
  try {
    for (int i = 0; i < count; ++i)
      threads_.push_back(start_thread(concat(name, " ", i + 1, " of ", count), cure, [work, i] { work(i); }));
  } catch (...) {
    stop();
    join();
    throw;
  }
}

void JoinedThreads::join() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace owt
