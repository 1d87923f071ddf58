#include "src/comm/comm_thread.h"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>

#include "src/core/threads.h"
#include "src/system/activity.h"
#include "src/system/joined_threads.h"

namespace owt {
namespace {

// For how long requests are tested before the thread rests.
constexpr auto kEager = std::chrono::microseconds(100);  // while a rank waits for the result: as long as a rest
constexpr auto kEagerBeforeLinksRest = std::chrono::microseconds(20);  // likewise; such a rest ends in time
constexpr auto kEagerCrowded = std::chrono::microseconds(5);   // the core is offered to others between the tests
constexpr auto kEagerUnasked = std::chrono::microseconds(10);  // the process computes, on cores that the tests take
constexpr auto kRest = std::chrono::microseconds(50);
// A parameter server waits for messages all the time, while its rank computes on the same core. Waking up for a test
// takes 10 microseconds of that core. The rests therefore grow by this amount each, so that a message is found late by
// a few percent of its waiting time. While more than a packet is expected, rests stay shorter, because sockets would
// fill up.
constexpr auto kRestGrowth = std::chrono::microseconds(10);
constexpr auto kLongestRest = std::chrono::microseconds(1000);
constexpr auto kLongestRestInTransfer = std::chrono::microseconds(250);
// A rank rests for a hundredth of the time that it has waited: it continues at most that much later, and leaves the
// core to the rank that it waits for.
constexpr int kPartsOfWait = 100;
// Links that can wait end a rest as soon as a message moves. Lost ranks are looked for in between.
constexpr auto kLongestRestOfLinks = std::chrono::milliseconds(5);
// How much earlier than the watch the links may notice that a process has ended.
constexpr auto kWatchIsLate = std::chrono::milliseconds(1000);

}  // namespace

CommThread::CommThread(std::unique_ptr<ProcessLinks> links, const LostRanks& lost_ranks)
    : links_(std::move(links)), lost_ranks_(lost_ranks) {
  thread_ = start_thread("the thread that talks to other ranks", "", [this] { loop(); });
}

CommThread::~CommThread() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  wake();
  thread_.join();
}

std::shared_ptr<CommThread::QueuedJob> CommThread::run(std::string name, std::function<void()> work,
                                                       std::shared_ptr<const std::vector<int>> group) {
  return call(std::make_shared<QueuedJob>(*this, std::move(name), std::move(work), std::nullopt, std::move(group)));
}

std::shared_ptr<CommThread::QueuedJob> CommThread::post(std::string name, const LinkMessage& message) {
  return call(std::make_shared<QueuedJob>(*this, std::move(name), nullptr, message));
}

std::shared_ptr<CommThread::QueuedJob> CommThread::call(std::shared_ptr<QueuedJob> job) {
  {
    const std::lock_guard lock(mutex_);
    if (job->message_)
      posted_.push_back(job), any_posted_.store(true);
    else
      queue_.push_back(job);
  }
  wake();
  return job;
}

void CommThread::wake() {
  wake_.notify_all();
  if (rests_.load()) links_->wake();
}

bool CommThread::in_queue(const Event& event) {
  const auto* const job = dynamic_cast<const QueuedJob*>(event.pending());
  return job && !job->message_;
}

void CommThread::loop() {
  set_team_size(1);
  prctl(PR_SET_TIMERSLACK, 1000);  // ns; otherwise rests would last twice as long
  while (const std::shared_ptr<QueuedJob> job = next()) {
    execute(*job);
    if (failure_) failed_.push_back(job);
  }
}

// The next job; messages move until there is one. None at the end.
std::shared_ptr<CommThread::QueuedJob> CommThread::next() {
  while (true) {
    std::string message;
    {
      std::unique_lock lock(mutex_);
      const auto called = [&] { return stopped_ || !queue_.empty() || !posted_.empty(); };
      if (messages_.empty()) wake_.wait(lock, called);
      if (calls_seen_ != calls_) idle_ = 0;
      calls_seen_ = calls_;
      if (!queue_.empty()) {
        const std::shared_ptr<QueuedJob> job = queue_.front();
        queue_.pop_front();
        idle_ = 0;
        return job;
      }
      if (stopped_) return nullptr;
      message = (messages_.empty() ? posted_ : messages_).front()->name_;
    }
    guarded(message, [&] {
      if (move_messages())
        idle_ = 0;
      else if (!messages_.empty())
        pause();
    });
    end_messages();
  }
}

void CommThread::execute(QueuedJob& job) {
  note_collective(job.name_, /*under_way=*/true);
  running_ = &job;
  guarded(job.name_, [&] {
    const auto begin = std::chrono::steady_clock::now();
    job.work_();
    job.ms_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    job.work_ = nullptr;
    job.finish(nullptr);
  });
  running_ = nullptr;
  note_end_of_collective();
  if (failure_) job.finish(failure_);
  end_messages();
}

// The failure of all later jobs is the exception of work(), or the cause that is found for it.
template <class Work>
void CommThread::guarded(const std::string& name, const Work& work) {
  try {
    check(name);
    if (failure_) std::rethrow_exception(failure_);
    work();
  } catch (const Aborted&) {
    failure_ = std::current_exception();
  } catch (const LinkError&) {
    failure_ = std::current_exception();
    // An error of the links may mean that another process has ended.
    const auto give_up = std::chrono::steady_clock::now() + kWatchIsLate;
    while (!lost_ranks_.any() && std::chrono::steady_clock::now() < give_up) std::this_thread::sleep_for(kRest);
    try {
      check(name);
    } catch (const Aborted&) {
      failure_ = std::current_exception();
    }
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void CommThread::check(const std::string& name) const {
  lost_ranks_.check(name);
  if (running_ && running_->group_) lost_ranks_.check_group(*running_->group_, name);
}

// Starts messages that were posted, and ends messages that are done. False: there was nothing to do.
bool CommThread::move_messages() {
  bool any = any_posted_.load();
  if (any) {
    const std::lock_guard lock(mutex_);
    any_posted_.store(false);
    messages_.insert(messages_.end(), posted_.begin(), posted_.end());
    posted_.clear();
  }
  for (const std::shared_ptr<QueuedJob>& job : messages_) {
    any = move(*job) || any;
    if (job->done() || !job->message_->over()) continue;
    job->ms_ = job->message_->ms();
    job->finish(nullptr);
  }
  std::erase_if(messages_, [](const std::shared_ptr<QueuedJob>& job) { return job->done(); });
  return any;
}

// A message with a process that is gone fails. So does a message for which the links report an error shortly before the
// loss is known. Otherwise it may stay in transit forever.
bool CommThread::move(QueuedJob& job) {
  const int peer = job.message_->peer();
  const auto fail_if_gone = [&] {
    try {
      lost_ranks_.check_peer(peer, job.name_);
      return false;
    } catch (const PeerGone&) {
      job.finish(std::current_exception());
      failed_.push_back(job.shared_from_this());
      return true;
    }
  };
  if (fail_if_gone()) return true;
  try {
    return job.message_->move(*links_);
  } catch (const LinkError&) {
    const auto give_up = std::chrono::steady_clock::now() + kWatchIsLate;
    while (lost_ranks_.tolerates(peer) && !lost_ranks_.any() && std::chrono::steady_clock::now() < give_up) {
      if (fail_if_gone()) return true;
      std::this_thread::sleep_for(kRest);
    }
    throw;
  }
}

// After a failure no message ends by itself.
void CommThread::end_messages() {
  if (!failure_) return;
  {
    const std::lock_guard lock(mutex_);
    messages_.insert(messages_.end(), posted_.begin(), posted_.end());
    posted_.clear();
    any_posted_.store(false);
  }
  for (const std::shared_ptr<QueuedJob>& message : messages_)
    if (!message->done()) message->finish(failure_);
  failed_.insert(failed_.end(), messages_.begin(), messages_.end());
  messages_.clear();
}

void CommThread::wait(Requests& requests) {
  for (size_t left = requests.size(); left > 0;) {
    const std::vector<ProcessLinks::Ended>& ended = links_->test(requests);
    for (const ProcessLinks::Ended& part : ended)
      if (part.bytes < 0) throw LinkError("a message of another rank is larger than the one that this rank waits for");
    left -= ended.size();
    if (!ended.empty())
      note_work();
    else if (!move_messages())
      pause();
  }
  requests.clear();
  idle_ = 0;
}

void CommThread::wait_for_messages() {
  while (move_messages() || !messages_.empty()) pause();
}

void CommThread::pause() {
  check(running_ ? running_->name_ : messages_.front()->name_);
  const bool crowded = crowded_.load(), asked = waiting_.load() > 0, links_rest = links_->can_rest();
  const auto eager = !asked ? kEagerUnasked : crowded ? kEagerCrowded : links_rest ? kEagerBeforeLinksRest : kEager;
  const auto now = std::chrono::steady_clock::now();
  if (idle_++ == 0) idle_since_ = now, rests_taken_ = 0;
  if (now - idle_since_ < eager) {
    if (crowded) sched_yield();
    return;
  }
  ++rests_taken_;
  std::unique_lock lock(mutex_);
  const auto called = [&] { return calls_ != calls_seen_ || !posted_.empty() || (!running_ && !queue_.empty()); };
  if (!links_rest) {
    wake_.wait_for(lock, rest_without_links(asked, now - idle_since_), called);
  } else {
    rests_.store(true);
    const bool rests = !called();
    lock.unlock();
    if (rests) links_->rest(kLongestRestOfLinks);
    rests_.store(false);
    lock.lock();
  }
  if (!called()) return;
  calls_seen_ = calls_;
  idle_ = 0;
}

std::chrono::microseconds CommThread::rest_without_links(bool asked, std::chrono::nanoseconds waited) const {
  if (asked || running_)
    return std::clamp(std::chrono::duration_cast<std::chrono::microseconds>(waited) / kPartsOfWait, kRest,
                      kLongestRestInTransfer);
  const bool small = std::ranges::all_of(messages_, [](const auto& job) { return job->message_->awaits_packet(); });
  return std::min(kRest + rests_taken_ * kRestGrowth, small ? kLongestRest : kLongestRestInTransfer);
}

std::byte* CommThread::scratch(int64_t bytes) {
  if (static_cast<int64_t>(scratch_.size()) < bytes) scratch_.resize(static_cast<size_t>(bytes));
  return scratch_.data();
}

void CommThread::begin_wait() {
  {
    const std::lock_guard lock(mutex_);
    ++waiting_;
    ++calls_;
  }
  wake();
}

// Threads of a server, which are no rank, wait for any message: they need no eager tests.
void CommThread::QueuedJob::wait() {
  if (!done()) {
    const Waits waits(WaitsFor::kOthers);
    const bool is_rank = is_this_thread_the_rank();
    std::optional<WaitsForMessage> message;
    if (message_ && is_rank) message.emplace(name_, message_->peer());
    if (is_rank) thread_.begin_wait();
    {
      std::unique_lock lock(mutex_);
      finished_.wait(lock, [&] { return done(); });
    }
    if (is_rank) thread_.end_wait();
  }
  if (failure_) std::rethrow_exception(failure_);
}

bool CommThread::QueuedJob::wait_for(double seconds) {
  std::unique_lock lock(mutex_);
  return finished_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return done(); });
}

void CommThread::QueuedJob::finish(const std::exception_ptr& failure) {
  {
    const std::lock_guard lock(mutex_);
    failure_ = failure;
    done_.store(true);
  }
  finished_.notify_all();
}

}  // namespace owt
