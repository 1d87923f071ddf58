#include "src/comm/nccl_link.h"

#include <cstdlib>
#include <cstring>

#include "src/core/cuda.h"
#include "src/core/gpus.h"
#include "src/system/joined_threads.h"

namespace owt {
namespace {

constexpr auto kWatchEvery = std::chrono::milliseconds(10);
constexpr int kSettlePolls = 200;
constexpr auto kSettleEvery = std::chrono::microseconds(50);

const char* cure(ncclResult_t result) {
  switch (result) {
    case ncclInvalidUsage:
      return "every worker needs a GPU of its own; run with NCCL_DEBUG=WARN for the details";
    case ncclRemoteError:
      return "another rank has ended or cannot be reached; look at its log";
    case ncclUnhandledCudaError:
    case ncclSystemError:
      return "look at nvidia-smi, the kernel log and the size of /dev/shm; run with NCCL_DEBUG=WARN for the details";
    default:
      return "run with NCCL_DEBUG=WARN for the details";
  }
}

// Sums in the NVLink switches differ from run to run. NCCL reads its environment once, at its first call.
void choose_deterministic_sums() {
  static std::once_flag once;
  std::call_once(once, [] { setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/0); });
}

}  // namespace

void detail::check_nccl(ncclResult_t result, const char* call) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const std::string at = working_on();
  const char* last = ncclGetLastError(nullptr);
  fail("NCCL: ", ncclGetErrorString(result), " in ", call, at.empty() ? "" : ", at " + at,
       last && *last ? concat(" (", last, ")") : "", "; ", cure(result));
}

void NcclFailure::set(const std::string& reason, bool another_rank) {
  const std::lock_guard lock(mutex_);
  if (failed_.load()) return;
  reason_ = reason;
  another_rank_ = another_rank;
  failed_.store(true);
}

void NcclFailure::check() const {
  if (!failed_.load()) return;
  const std::lock_guard lock(mutex_);
  if (another_rank_) throw Aborted(reason_);
  throw Error(reason_);
}

NcclId make_nccl_id(Cuda) {
  choose_deterministic_sums();
  ncclUniqueId made;
  OWT_NCCL(ncclGetUniqueId(&made));
  NcclId id;
  static_assert(sizeof(id.bytes) == sizeof(made));
  std::memcpy(id.bytes.data(), &made, sizeof made);
  return id;
}

NcclLink::NcclLink(const NcclMember& member) : member_(member) {
  choose_deterministic_sums();
  OWT_CUDA(cudaGetDevice(&gpu_));
  guarded([&] { connect(); });
  watcher_ = start_thread("the thread that watches NCCL", "", [this] { watch(); });
}

void NcclLink::connect() {
  ncclUniqueId id;
  std::memcpy(&id, member_.id.bytes.data(), sizeof id);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  OWT_NCCL(ncclCommInitRankConfig(&comm_, member_.ranks, id, member_.rank, &config));
  Lock lock(mutex_);
  settle(lock);
}

NcclLink::~NcclLink() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  stop_.notify_all();
  watcher_.join();
  if (!comm_) return;
  try {
    guarded([&] { disconnect(); });
  } catch (const Error&) {  // the rank that failed reports it
  }
}

void NcclLink::disconnect() {
  Lock lock(mutex_);
  settle(lock);
  OWT_NCCL(ncclCommFinalize(comm_));
  progress_ = Clock::now();
  settle(lock);
  OWT_NCCL(ncclCommDestroy(comm_));
  comm_ = nullptr;
}

void NcclLink::run(const std::function<void(ncclComm_t)>& call) {
  failure_->check();
  guarded([&] {
    Lock lock(mutex_);
    failure_->check();
    if (expected_.empty()) progress_ = Clock::now();
    static_cast<void>(settled());
    call(comm_);
    settle(lock);
  });
}

void NcclLink::record(const std::function<void(ncclComm_t)>& call) {
  failure_->check();
  guarded([&] {
    Lock lock(mutex_);
    failure_->check();
    call(comm_);
    settle(lock, &NcclLink::queued);
  });
}

void NcclLink::expect(const Event& event) {
  const std::lock_guard lock(mutex_);
  if (expected_.empty()) progress_ = Clock::now();
  expected_.push_back(event);
}

bool NcclLink::queued() {
  if (member_.aborted && member_.aborted()) throw Aborted("another rank failed");
  ncclResult_t state = ncclSuccess;
  OWT_NCCL(ncclCommGetAsyncError(comm_, &state));
  detail::check_nccl(state, "a call that was under way");
  return state != ncclInProgress;
}

bool NcclLink::settled() {
  const bool all_queued = queued();
  const auto now = Clock::now();
  for (; !expected_.empty() && expected_.front().done(); expected_.pop_front()) progress_ = now;
  const bool at_rest = expected_.empty() && all_queued;
  if (!at_rest && now - progress_ > member_.patience)
    fail("NCCL: rank ", member_.rank, " of ", member_.ranks, " has waited for the others for ",
         std::chrono::duration<double>(member_.patience).count(),
         " s; one of them has ended or hangs: look at the logs of the others");
  return all_queued;
}

void NcclLink::settle(Lock& lock, bool (NcclLink::*settled)()) {
  for (int polls = 0; !(this->*settled)(); ++polls) {
    lock.unlock();
    if (polls < kSettlePolls)
      std::this_thread::yield();  // queueing a call takes only some microseconds
    else
      std::this_thread::sleep_for(kSettleEvery);
    lock.lock();
    failure_->check();  // the watcher may have broken the link meanwhile
  }
}

template <class Work>
void NcclLink::guarded(const Work& work) {
  try {
    work();
  } catch (const Aborted& e) {
    break_link(e.what(), true);
    throw;
  } catch (const Error& e) {  // NCCL may report another rank's end before member_.aborted() is polled again
    const bool another_rank = member_.aborted && member_.aborted();
    break_link(e.what(), another_rank);
    if (another_rank) throw Aborted(e.what());
    throw;
  }
}

void NcclLink::break_link(const std::string& reason, bool another_rank) {
  failure_->set(reason, another_rank);
  const std::lock_guard lock(mutex_);
  if (comm_) ncclCommAbort(comm_);  // an error here changes nothing
  comm_ = nullptr;
}

void NcclLink::watch() {
  try {
    guarded([&] {
      use_gpu(Cuda{}, gpu_);
      Lock lock(mutex_);
      while (!stop_.wait_for(lock, kWatchEvery, [&] { return stopped_; }) && comm_) static_cast<void>(settled());
    });
  } catch (const Error&) {  // the rank's own thread finds it in failure_
  }
}

}  // namespace owt
