#include "src/comm/mpi_thread.h"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>

#include "src/core/activity.h"
#include "src/core/threads.h"

namespace owt {
namespace {

// Tests of requests, of about half a microsecond each, that follow each other without a rest.
constexpr int kEagerTests = 200;        // while a thread waits for the result: about as long as a rest costs
constexpr int kEagerTestsCrowded = 10;  // with the core offered to others between them
constexpr int kEagerTestsUnasked = 20;  // while the process computes, on cores that this thread takes away
constexpr auto kRest = std::chrono::microseconds(50);
// How much earlier MPI may notice that a process has ended than the watch.
constexpr auto kWatchIsLate = std::chrono::milliseconds(1000);

}  // namespace

void detail::check_mpi(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(result, text, &length);
  fail("MPI: ", std::string(text, static_cast<size_t>(length)), " in ", call,
       "; look at the logs of the other ranks and at the network");
}

MpiThread::MpiThread(const Losses& losses) : losses_(losses) {
  thread_ = std::thread([this] { loop(); });
}

MpiThread::~MpiThread() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

std::shared_ptr<MpiThread::Job> MpiThread::run(std::string name, std::function<void()> work) {
  auto job = std::make_shared<Job>(*this, std::move(name), std::move(work));
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(job);
  }
  wake_.notify_all();
  return job;
}

bool MpiThread::is_job(const Event& event) { return dynamic_cast<const Job*>(event.pending()) != nullptr; }

std::string MpiThread::place() const {
  const std::lock_guard lock(mutex_);
  return place_;
}

void MpiThread::loop() {
  set_team_size(1);
  prctl(PR_SET_TIMERSLACK, 1000);  // ns; rests would last twice as long
  while (true) {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return stopped_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::shared_ptr<Job> job = queue_.front();
    queue_.pop_front();
    calls_seen_ = calls_;
    lock.unlock();
    idle_ = 0;
    execute(*job);
    if (failure_) failed_.push_back(job);
  }
}

void MpiThread::execute(Job& job) {
  note_place(job.name_);
  note_collective(job.name_);
  running_ = &job;
  try {
    losses_.check(job.name_);
    if (failure_) std::rethrow_exception(failure_);
    const auto begin = std::chrono::steady_clock::now();
    job.work_();
    job.ms_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    job.work_ = nullptr;
    job.finish(nullptr);
  } catch (const Aborted&) {
    failure_ = std::current_exception();
  } catch (...) {
    failure_ = std::current_exception();
    // What MPI complains about may be the end of another process.
    const auto give_up = std::chrono::steady_clock::now() + kWatchIsLate;
    while (!losses_.any() && std::chrono::steady_clock::now() < give_up) std::this_thread::sleep_for(kRest);
    try {
      losses_.check(job.name_);
    } catch (const Aborted&) {
      failure_ = std::current_exception();
    }
  }
  note_place(concat("after ", job.name_));
  if (failure_) job.finish(failure_);
}

void MpiThread::wait(Requests& requests) {
  arrived_.resize(requests.size());
  for (size_t left = requests.size(); left > 0;) {
    int arrived = 0;
    OWT_MPI(MPI_Testsome(static_cast<int>(requests.size()), requests.data(), &arrived, arrived_.data(),
                         MPI_STATUSES_IGNORE));
    if (arrived == MPI_UNDEFINED) break;  // nothing is under way
    left -= static_cast<size_t>(arrived);
    if (arrived > 0)
      note_work();
    else
      pause();
  }
  requests.clear();
  idle_ = 0;
}

void MpiThread::pause() {
  losses_.check(running_->name_);
  const bool crowded = crowded_.load();
  const int eager = waiting_.load() == 0 ? kEagerTestsUnasked : crowded ? kEagerTestsCrowded : kEagerTests;
  if (++idle_ < eager) {
    if (crowded) sched_yield();
    return;
  }
  std::unique_lock lock(mutex_);
  if (!wake_.wait_for(lock, kRest, [&] { return calls_ != calls_seen_; })) return;
  calls_seen_ = calls_;
  idle_ = 0;
}

void MpiThread::note_place(std::string place) {
  const std::lock_guard lock(mutex_);
  place_ = std::move(place);
}

std::byte* MpiThread::scratch(int64_t bytes) {
  if (static_cast<int64_t>(scratch_.size()) < bytes) scratch_.resize(static_cast<size_t>(bytes));
  return scratch_.data();
}

void MpiThread::begin_wait() {
  {
    const std::lock_guard lock(mutex_);
    ++waiting_;
    ++calls_;
  }
  wake_.notify_all();
}

void MpiThread::Job::wait() {
  if (!done()) {
    const Waits waits(WaitsFor::kOthers);
    thread_.begin_wait();
    {
      std::unique_lock lock(mutex_);
      finished_.wait(lock, [&] { return done(); });
    }
    thread_.end_wait();
  }
  if (failure_) std::rethrow_exception(failure_);
}

bool MpiThread::Job::wait_for(double seconds) {
  std::unique_lock lock(mutex_);
  return finished_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return done(); });
}

void MpiThread::Job::finish(const std::exception_ptr& failure) {
  {
    const std::lock_guard lock(mutex_);
    failure_ = failure;
    done_.store(true);
  }
  finished_.notify_all();
}

}  // namespace owt
