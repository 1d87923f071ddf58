// Host threads that are joined together. If a thread cannot be started, the error says why and what to do.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace owt {

// Throws Error if the thread cannot be started: "cannot start NAME: Resource temporarily unavailable; CURE, or ..."
// with the limits that may be the cause. `cure`: what the user can change, "use fewer --threads"; may be empty.
std::thread start_thread(const std::string& name, const std::string& cure, std::function<void()> work);

// Throws the same Error unless `threads` more threads can run at the same time, which it tries.
void check_threads(int threads, const std::string& name, const std::string& cure);

class JoinedThreads {
 public:
  JoinedThreads() = default;
  ~JoinedThreads() { join(); }
  JoinedThreads(const JoinedThreads&) = delete;
  JoinedThreads& operator=(const JoinedThreads&) = delete;

  // Runs work(0), work(1), ... work(count - 1), each on its own thread. If one cannot be started, it calls `stop`,
  // which must end the running threads, joins them, and throws the Error of start_thread(): "cannot start NAME 3 of 8:
  // ...".
  void start(int count, const std::string& name, const std::string& cure, const std::function<void(int)>& work,
             const std::function<void()>& stop);
  bool empty() const { return threads_.empty(); }
  void join();  // joins all threads; the caller has made them end

 private:
  std::vector<std::thread> threads_;
};

}  // namespace owt
