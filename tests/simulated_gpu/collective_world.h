// The ranks of one NCCL communicator, as threads of one process.
#pragma once

#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "tests/simulated_gpu/collective_ops.h"

namespace simulated_gpu {

// A message from one rank to another, until the receiver has copied it.
struct Message {
  const void* data;
  size_t bytes;
  bool taken = false;
};

// The ranks of one communicator.
class World {
 public:
  explicit World(int ranks) : devices_(static_cast<size_t>(ranks), -1), turns_(devices_.size()) {}

  int ranks() const { return static_cast<int>(devices_.size()); }

  // False: this rank is there already, or the number of ranks differs.
  bool join(int rank, int ranks, int device) {
    const std::lock_guard lock(mutex_);
    if (ranks != this->ranks() || rank < 0 || rank >= ranks || devices_[static_cast<size_t>(rank)] >= 0) return false;
    devices_[static_cast<size_t>(rank)] = device;
    ++joined_;
    changed_.notify_all();
    return true;
  }

  void wait_for_all() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return joined_ == ranks(); });
  }

  // ncclInProgress until all ranks have called it.
  ncclResult_t state() {
    const std::lock_guard lock(mutex_);
    if (joined_ < ranks()) return ncclInProgress;
    if (std::set<int>(devices_.begin(), devices_.end()).size() < devices_.size()) return ncclInvalidUsage;
    return failure_;
  }

  // In a stream's thread.
  void meet(int rank, const CollectiveCall& call, const std::atomic<bool>& aborted) {
    std::unique_lock lock(mutex_);
    const auto turn = turns_[static_cast<size_t>(rank)]++;
    const std::shared_ptr<Meeting> meeting = meetings_.try_emplace(turn, std::make_shared<Meeting>()).first->second;
    meeting->calls[rank] = call;
    if (static_cast<int>(meeting->calls.size()) == ranks() && failure_ == ncclSuccess) {
      finish(*meeting);
      meetings_.erase(turn);
    }
    changed_.wait(lock, [&] { return meeting->done || aborted; });
  }

  void send(int from, int to, Message* message) {
    const std::lock_guard lock(mutex_);
    mail_[{from, to}].push_back(message);
    changed_.notify_all();
  }

  void receive(int from, int to, void* data, size_t bytes, const std::atomic<bool>& aborted) {
    std::unique_lock lock(mutex_);
    auto& box = mail_[{from, to}];
    changed_.wait(lock, [&] { return !box.empty() || aborted; });
    if (aborted) return;
    Message& message = *box.front();
    box.pop_front();
    if (message.bytes != bytes) fail("a receive of another size than its send");
    std::memcpy(data, message.data, std::min(bytes, message.bytes));
    message.taken = true;
    changed_.notify_all();
  }

  void wait_until_taken(int from, int to, const Message& message, const std::atomic<bool>& aborted) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return message.taken || aborted; });
    if (message.taken) return;
    auto& box = mail_[{from, to}];  // references to the message must not outlive this call
    box.erase(std::remove(box.begin(), box.end(), &message), box.end());
  }

  void leave(std::atomic<bool>* aborted) {
    const std::lock_guard lock(mutex_);
    *aborted = true;
    if (failure_ == ncclSuccess) failure_ = ncclRemoteError;
    changed_.notify_all();
  }

 private:
  struct Meeting {
    std::map<int, CollectiveCall> calls;
    bool done = false;
  };

  void finish(Meeting& meeting) {
    std::vector<CollectiveCall> calls;
    for (const auto& [rank, call] : meeting.calls) calls.push_back(call);
    for (const CollectiveCall& call : calls)
      if (!call.agrees_with(calls[0])) return fail("the ranks called different collective operations");
    perform(calls);
    meeting.done = true;
    changed_.notify_all();
  }

  void fail(const char* what) {
    std::fprintf(stderr, "simulated GPU: NCCL: %s\n", what);
    failure_ = ncclInvalidUsage;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> devices_;  // -1: not there yet
  int joined_ = 0;
  ncclResult_t failure_ = ncclSuccess;
  std::vector<uint64_t> turns_;  // by rank: operations so far
  std::map<uint64_t, std::shared_ptr<Meeting>> meetings_;
  std::map<std::pair<int, int>, std::deque<Message*>> mail_;
};

// A rank's part; streams may use it longer than the program keeps the communicator.
struct Rank {
  std::shared_ptr<World> world;
  int rank = 0, device = 0;
  std::atomic<bool> aborted{false};
  // For a nonblocking communicator: how often it still reports that the last call is being queued.
  bool blocking = true;
  std::atomic<int> queuing{0};
};

}  // namespace simulated_gpu
