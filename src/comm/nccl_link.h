// One rank's connection to the others through NCCL, and its failure. For .cu files of this folder.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "src/comm/nccl.h"
#include "src/comm/nccl_library.h"

// Every NCCL call goes through this macro. It throws Error with the call, what was being done, and the cure. A call
// that is still in progress is no error.
#define OWT_NCCL(call) ::owt::detail::check_nccl((call), #call)

namespace owt {

namespace detail {
void check_nccl(ncclResult_t result, const char* call);
}

// Why a connection is broken; shared with the events of its collectives.
class NcclFailure {
 public:
  void set(const std::string& reason, bool another_rank);  // the first reason is kept
  void check() const;  // throws the reason: Aborted if another rank failed, otherwise Error

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> failed_{false};
  bool another_rank_ = false;
  std::string reason_;
};

// The ncclComm_t does not block, and a thread watches it. When it is broken (see nccl.h) the thread aborts it. This
// ends its kernels, so that a host that waits for the GPU continues as well.
class NcclLink {
 public:
  explicit NcclLink(const NcclMember& member);  // for the calling host thread's GPU; returns when all ranks have joined
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  // Runs call(ncclComm_t), which queues work, and returns when it is queued. Throws if it fails or the link is broken.
  void run(const std::function<void(ncclComm_t)>& call);
  // run() for a call that is recorded into a graph. During the recording the watching thread must not query CUDA
  // events.
  void record(const std::function<void(ncclComm_t)>& call);
  // Expects the event to end within the patience.
  void expect(const Event& event);

  const NcclMember& member() const { return member_; }
  const std::shared_ptr<NcclFailure>& failure() const { return failure_; }

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;

  void connect();
  void disconnect();
  bool queued();   // no call is in progress; throws if the link is broken
  bool settled();  // the same, and throws if an expected event is overdue
  void settle(Lock& lock, bool (NcclLink::*settled)() = &NcclLink::settled);  // waits for it
  void break_link(const std::string& reason, bool another_rank);
  template <class Work>
  void guarded(const Work& work);  // an exception of work() breaks the link
  void watch();

  NcclMember member_;
  std::shared_ptr<NcclFailure> failure_ = std::make_shared<NcclFailure>();
  int gpu_ = 0;

  std::mutex mutex_;                           // guards the members below
  ncclComm_t comm_ = nullptr;                  // null once the link is broken
  std::deque<Event> expected_;                 // in the order of their stream
  Clock::time_point progress_ = Clock::now();  // last time that something ended, or started after a pause
  bool stopped_ = false;
  std::condition_variable stop_;
  std::thread watcher_;
};

}  // namespace owt
