// One rank's connection to the others through NCCL, and what ends it. For .cu files of this folder.
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

// Every call of NCCL goes through this: throws Error with the call, what was being done, and the cure. What goes on in
// the background is no error.
#define OWT_NCCL(call) ::owt::detail::check_nccl((call), #call)

namespace owt {

namespace detail {
void check_nccl(ncclResult_t result, const char* call);
}

// Why a connection is broken; shared with the events of its collectives.
class NcclFailure {
 public:
  void set(const std::string& reason, bool another_rank);  // the first one stays
  void check() const;                                      // throws it: Aborted if it is another rank's, else Error

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> failed_{false};
  bool another_rank_ = false;
  std::string reason_;
};

// The ncclComm_t does not block, and a thread looks after it: when it is broken (see nccl.h) the thread aborts it. That
// ends its kernels, so that even a host goes on that waits for the GPU and not for NCCL.
class NcclLink {
 public:
  explicit NcclLink(const NcclMember& member);  // for the calling host thread's GPU; returns when all ranks have come
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  // Runs call(ncclComm_t), which queues work, and returns when it is queued. Throws where it fails or the link is
  // broken.
  void run(const std::function<void(ncclComm_t)>& call);
  // The same of a call that is recorded into a graph: until it is, the thread must not ask CUDA about events.
  void record(const std::function<void(ncclComm_t)>& call);
  // The event must come about before the patience ends.
  void expect(const Event& event);

  const NcclMember& member() const { return member_; }
  const std::shared_ptr<NcclFailure>& failure() const { return failure_; }

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;

  void connect();
  void disconnect();
  bool queued();   // no call goes on in the background; throws what breaks the link
  bool settled();  // the same, and throws where what is expected does not come about
  void settle(Lock& lock, bool (NcclLink::*settled)() = &NcclLink::settled);  // waits for that
  void break_link(const std::string& reason, bool another_rank);
  template <class Work>
  void guarded(const Work& work);  // what it throws breaks the link
  void watch();

  NcclMember member_;
  std::shared_ptr<NcclFailure> failure_ = std::make_shared<NcclFailure>();
  int gpu_ = 0;

  std::mutex mutex_;                           // guards what follows
  ncclComm_t comm_ = nullptr;                  // null once it is broken
  std::deque<Event> expected_;                 // in the order of their stream
  Clock::time_point progress_ = Clock::now();  // when something last came to an end, or began after a rest
  bool stopped_ = false;
  std::condition_variable stop_;
  std::thread watcher_;
};

}  // namespace owt
