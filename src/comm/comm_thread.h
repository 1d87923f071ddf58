// The communication thread of a process: a queue of jobs, and waiting for messages. For files of
// this folder.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "src/comm/link_message.h"
#include "src/comm/links.h"
#include "src/comm/lost_ranks.h"
#include "src/core/stream.h"

namespace owt {

class CommThread {
 public:
  class QueuedJob;

  CommThread(std::unique_ptr<ProcessLinks> links, const LostRanks& lost_ranks);
  ~CommThread();  // ends at once if nothing is queued
  CommThread(const CommThread&) = delete;
  CommThread& operator=(const CommThread&) = delete;

  // Queues work(); messages call it `name`. The event ends with the work and throws what it throws. After a failure all
  // further jobs fail, and their memory is kept, because messages may still arrive. group: the processes that take
  // part; the job fails if one of them is gone (LostRanks).
  std::shared_ptr<QueuedJob> run(std::string name, std::function<void()> work,
                                 std::shared_ptr<const std::vector<int>> group = nullptr);
  // Starts a message as soon as possible, even during other work. The event ends with it. If the other process is gone,
  // only this message fails.
  std::shared_ptr<QueuedJob> post(std::string name, const LinkMessage& message);
  // Whether the event belongs to a run(), and therefore precedes everything that is queued later.
  static bool in_queue(const Event& event);
  void set_crowded(bool crowded) { crowded_.store(crowded); }

  // The functions below are for use in work().
  ProcessLinks& links() { return *links_; }
  // Returns when all requests are done, and empties the list. Throws if a rank was lost.
  void wait(Requests& requests);
  // Waits for all posted messages.
  void wait_for_messages();
  // Memory that is valid until the next call.
  std::byte* scratch(int64_t bytes);

 private:
  using Jobs = std::vector<std::shared_ptr<QueuedJob>>;

  std::shared_ptr<QueuedJob> call(std::shared_ptr<QueuedJob> job);  // queues it
  void loop();
  std::shared_ptr<QueuedJob> next();
  void execute(QueuedJob& job);
  template <class Work>
  void guarded(const std::string& name, const Work& work);
  void check(const std::string& name) const;
  bool move_messages();
  bool move(QueuedJob& job);
  void end_messages();
  void begin_wait();
  void end_wait() { --waiting_; }
  void pause();
  std::chrono::microseconds rest_without_links(bool asked, std::chrono::nanoseconds waited) const;
  void wake();

  const std::unique_ptr<ProcessLinks> links_;
  const LostRanks& lost_ranks_;
  std::atomic<bool> crowded_{false};
  std::atomic<int> waiting_{0};          // number of ranks that wait for a job
  std::atomic<bool> any_posted_{false};  // posted_ is not empty
  std::atomic<bool> rests_{false};       // in ProcessLinks::rest(), or about to be

  std::mutex mutex_;  // guards the members down to wake_
  std::deque<std::shared_ptr<QueuedJob>> queue_;
  Jobs posted_;  // messages that have not started
  bool stopped_ = false;
  int64_t calls_ = 0;  // calls of begin_wait(), by ranks that started to wait
  std::condition_variable wake_;

  // Only the communication thread uses the members below.
  int idle_ = 0;         // number of tests since the last progress
  int rests_taken_ = 0;  // since the last progress
  std::chrono::steady_clock::time_point idle_since_;
  int64_t calls_seen_ = 0;  // calls_ when idle_ was reset
  const QueuedJob* running_ = nullptr;
  Jobs messages_;  // in transit, in the order in which they were posted
  std::vector<std::byte> scratch_;
  std::exception_ptr failure_;
  Jobs failed_;

  std::thread thread_;
};

// A job of the queue, or a message, as an event.
class CommThread::QueuedJob : public Event::Pending, public std::enable_shared_from_this<QueuedJob> {
 public:
  QueuedJob(CommThread& thread, std::string name, std::function<void()> work, std::optional<LinkMessage> message = {},
            std::shared_ptr<const std::vector<int>> group = nullptr)
      : thread_(thread),
        name_(std::move(name)),
        work_(std::move(work)),
        message_(std::move(message)),
        group_(std::move(group)) {}

  void wait() override;
  bool done() const override { return done_.load(); }
  double ms() const override { return ms_; }
  bool wait_for(double seconds);  // false: not done within that time

 private:
  friend class CommThread;

  void finish(const std::exception_ptr& failure);

  CommThread& thread_;
  std::string name_;
  std::function<void()> work_;
  std::optional<LinkMessage> message_;
  std::shared_ptr<const std::vector<int>> group_;
  std::exception_ptr failure_;
  double ms_ = 0;  // duration of the work; written before done_
  std::atomic<bool> done_{false};
  std::mutex mutex_;
  std::condition_variable finished_;
};

}  // namespace owt
