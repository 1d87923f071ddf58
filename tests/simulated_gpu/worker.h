// The thread and queue of a simulated GPU's stream.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace simulated_gpu {

// A point in a queue of work.
class Mark {
 public:
  using Clock = std::chrono::steady_clock;

  void set();
  void wait() const;
  bool done() const;
  Clock::time_point time() const;  // when it was set

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool done_ = false;
  Clock::time_point time_;
};

// A host thread that runs operations one after another.
class Worker {
 public:
  Worker();
  ~Worker();  // does not wait: the thread ends once the queue is empty
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void push(std::function<void()> work);       // may touch device memory
  void push_set(std::shared_ptr<Mark> mark);   // done when all before it is
  void push_wait(std::shared_ptr<Mark> mark);  // holds up all after it
  void drain() const;                          // blocks until all that is queued now is done
  bool idle() const;

 private:
  struct Operation {
    std::function<void()> run;
    bool touches_memory;
  };
  // Shared with the thread, which may outlive the worker.
  struct Queue {
    mutable std::mutex mutex;
    std::condition_variable grown;    // for the thread: there is work, or no more
    std::condition_variable reached;  // for drain(): `wanted` operations are finished; each wake-up costs a switch
    std::deque<Operation> waiting;
    uint64_t pushed = 0, finished = 0;
    static constexpr uint64_t kNone = ~uint64_t{0};
    uint64_t wanted = kNone;
    bool closed = false;
    uint64_t number = 0;
  };

  static void work(Queue& queue);
  void push_operation(Operation operation);

  std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
};

}  // namespace simulated_gpu
