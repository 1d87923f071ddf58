// The communication thread of a process: a queue of jobs, and how to wait for messages. For mpi*.cpp of this folder.
#pragma once

#include <mpi.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "src/comm/losses.h"
#include "src/core/stream.h"

// Every call of MPI goes through this: throws Error with the call and MPI's text.
#define OWT_MPI(call) ::owt::detail::check_mpi((call), #call)

namespace owt {

namespace detail {
void check_mpi(int result, const char* call);
}

using Requests = std::vector<MPI_Request>;

class MpiThread {
 public:
  class Job;

  explicit MpiThread(const Losses& losses);
  ~MpiThread();  // ends at once when nothing is queued
  MpiThread(const MpiThread&) = delete;
  MpiThread& operator=(const MpiThread&) = delete;

  // Queues work(); `name` stands for it in messages. The event ends with it, and throws what it
  // throws. After a failure all further jobs fail, and what they hold stays in memory, because messages may still come.
  std::shared_ptr<Job> run(std::string name, std::function<void()> work);
  static bool is_job(const Event& event);
  void set_crowded(bool crowded) { crowded_.store(crowded); }
  std::string place() const;

  // For work. Ends when all requests are done, and empties the list; throws where a rank was lost.
  void wait(Requests& requests);
  // Memory that lasts until the next call.
  std::byte* scratch(int64_t bytes);

 private:
  void loop();
  void execute(Job& job);
  void begin_wait();
  void end_wait() { --waiting_; }
  void pause();
  void note_place(std::string place);

  const Losses& losses_;
  std::atomic<bool> crowded_{false};
  std::atomic<int> waiting_{0};  // threads that wait for a job

  mutable std::mutex mutex_;  // guards what follows, as far as wake_
  std::deque<std::shared_ptr<Job>> queue_;
  std::string place_;  // see place()
  bool stopped_ = false;
  int64_t calls_ = 0;  // of begin_wait(): somebody has begun to wait
  std::condition_variable wake_;

  // Of the thread itself.
  int idle_ = 0;            // tests since something last was done
  int64_t calls_seen_ = 0;  // when idle_ began
  const Job* running_ = nullptr;
  std::vector<int> arrived_;
  std::vector<std::byte> scratch_;
  std::exception_ptr failure_;
  std::vector<std::shared_ptr<Job>> failed_;

  std::thread thread_;
};

// Work of the queue as an event.
class MpiThread::Job : public Event::Pending {
 public:
  Job(MpiThread& thread, std::string name, std::function<void()> work)
      : thread_(thread), name_(std::move(name)), work_(std::move(work)) {}

  void wait() override;
  bool done() const override { return done_.load(); }
  double ms() const override { return ms_; }
  bool wait_for(double seconds);  // false: not done by then

 private:
  friend class MpiThread;

  void finish(const std::exception_ptr& failure);

  MpiThread& thread_;
  std::string name_;
  std::function<void()> work_;
  std::exception_ptr failure_;
  double ms_ = 0;  // of the work; written before done_
  std::atomic<bool> done_{false};
  std::mutex mutex_;
  std::condition_variable finished_;
};

}  // namespace owt
