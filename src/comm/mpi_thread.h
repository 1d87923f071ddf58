// The communication thread of a process: a queue of jobs, and how to wait for messages. For mpi*.cpp of this folder.
#pragma once

#include <atomic>
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

#include "src/comm/lost_ranks.h"
#include "src/comm/mpi_message.h"
#include "src/core/stream.h"

namespace owt {

class MpiThread {
 public:
  class Job;

  explicit MpiThread(const LostRanks& lost_ranks);
  ~MpiThread();  // ends at once when nothing is queued
  MpiThread(const MpiThread&) = delete;
  MpiThread& operator=(const MpiThread&) = delete;

  // Queues work(); `name` stands for it in messages. The event ends with it, and throws what it
  // throws. After a failure all further jobs fail, and what they hold stays in memory, because messages may still come.
  // group: the processes that it is done with; it fails where one of them is gone (LostRanks).
  std::shared_ptr<Job> run(std::string name, std::function<void()> work,
                           std::shared_ptr<const std::vector<int>> group = nullptr);
  // Begins a message as soon as the thread can, even while work is under way. The event ends with it. Where the other
  // process is gone it fails, and nothing else does.
  std::shared_ptr<Job> post(std::string name, const MpiMessage& message);
  // The event is that of some run(), and so comes before whatever is queued from now on.
  static bool in_queue(const Event& event);
  void set_crowded(bool crowded) { crowded_.store(crowded); }

  // For work. Ends when all requests are done, and empties the list; throws where a rank was lost.
  void wait(Requests& requests);
  // The same for all messages that were posted.
  void wait_for_messages();
  // Memory that lasts until the next call.
  std::byte* scratch(int64_t bytes);

 private:
  using Jobs = std::vector<std::shared_ptr<Job>>;

  std::shared_ptr<Job> call(std::shared_ptr<Job> job);  // queues it
  void loop();
  std::shared_ptr<Job> next();
  void execute(Job& job);
  template <class Work>
  void guarded(const std::string& name, const Work& work);
  void check(const std::string& name) const;
  bool move_messages();
  bool move(Job& job);
  void end_messages();
  void begin_wait();
  void end_wait() { --waiting_; }
  void pause();

  const LostRanks& lost_ranks_;
  std::atomic<bool> crowded_{false};
  std::atomic<int> waiting_{0};          // ranks that wait for a job
  std::atomic<bool> any_posted_{false};  // posted_ is not empty

  std::mutex mutex_;  // guards what follows, as far as wake_
  std::deque<std::shared_ptr<Job>> queue_;
  Jobs posted_;  // messages that have not begun
  bool stopped_ = false;
  int64_t calls_ = 0;  // calls of begin_wait(): a rank has begun to wait
  std::condition_variable wake_;

  // What follows is the thread's own.
  int idle_ = 0;            // tests since something last was done
  int64_t calls_seen_ = 0;  // when idle_ began
  const Job* running_ = nullptr;
  Jobs messages_;  // under way, in the order in which they were posted
  std::vector<int> arrived_;
  std::vector<std::byte> scratch_;
  std::exception_ptr failure_;
  Jobs failed_;

  std::thread thread_;
};

// Work of the queue, or a message, as an event.
class MpiThread::Job : public Event::Pending, public std::enable_shared_from_this<Job> {
 public:
  Job(MpiThread& thread, std::string name, std::function<void()> work, std::optional<MpiMessage> message = {},
      std::shared_ptr<const std::vector<int>> group = nullptr)
      : thread_(thread),
        name_(std::move(name)),
        work_(std::move(work)),
        message_(std::move(message)),
        group_(std::move(group)) {}

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
  std::optional<MpiMessage> message_;
  std::shared_ptr<const std::vector<int>> group_;
  std::exception_ptr failure_;
  double ms_ = 0;  // what the work took; written before done_
  std::atomic<bool> done_{false};
  std::mutex mutex_;
  std::condition_variable finished_;
};

}  // namespace owt
