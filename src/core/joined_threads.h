// Host threads, started with words for people where the system has no more of them, and joined together.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace owt {

// Throws Error where the thread cannot be started: "cannot start NAME: Resource temporarily unavailable; CURE, or ..."
// with the limits that may be the cause. `cure`: what the user can change, "use fewer --threads"; may be empty.
std::thread start_thread(const std::string& name, const std::string& cure, std::function<void()> work);

// Throws such an Error where `threads` threads more cannot run at the same time, which it tries.
void check_threads(int threads, const std::string& name, const std::string& cure);

class JoinedThreads {
 public:
  JoinedThreads() = default;
  ~JoinedThreads() { join(); }
  JoinedThreads(const JoinedThreads&) = delete;
  JoinedThreads& operator=(const JoinedThreads&) = delete;

  // work(0), work(1), ... work(count - 1), each on a thread of its own. Where one cannot be started, `stop` is called,
  // which must make those that run end; they are joined, and the Error of start_thread() is thrown: "cannot start NAME
  // 3 of 8: ...".
  void start(int count, const std::string& name, const std::string& cure, const std::function<void(int)>& work,
             const std::function<void()>& stop);
  bool empty() const { return threads_.empty(); }
  void join();  // all of them; whoever calls it has made them end

 private:
  std::vector<std::thread> threads_;
};

}  // namespace owt
