// The ranks of one NCCL communicator, which meet in the process that made its unique id.
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
#include <string>
#include <utility>
#include <vector>

#include "tests/simulated_gpu/collective_ops.h"

namespace simulated_gpu {

// One end of a message.
struct PointToPoint {
  bool sends;
  int peer;
  void* data;
  size_t bytes;
};

// What one rank has queued in a group.
struct Batch {
  std::vector<CollectiveCall> collectives;
  std::vector<PointToPoint> messages;
};

// A communicator's ranks, as one of them sees them.
class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual int ranks() const = 0;
  virtual ncclResult_t state() = 0;  // ncclInProgress until all ranks have joined
  // In a stream's thread.
  virtual void run(int rank, const Batch& batch, const std::atomic<bool>& aborted) = 0;
  virtual void leave(std::atomic<bool>* aborted) = 0;  // ends run()
};

// A message from one rank to another, until the receiver has copied it.
struct Message {
  const void* data;
  size_t bytes;
  bool taken = false;
};

class World : public Ranks {
 public:
  explicit World(int ranks) : gpus_(static_cast<size_t>(ranks)), turns_(gpus_.size()) {}

  int ranks() const override { return static_cast<int>(gpus_.size()); }

  // gpu: its host and its place there. False: this rank is there already, or the number of ranks differs.
  bool join(int rank, int ranks, const std::string& gpu) {
    const std::lock_guard lock(mutex_);
    if (ranks != this->ranks() || rank < 0 || rank >= ranks || !gpus_[static_cast<size_t>(rank)].empty()) return false;
    gpus_[static_cast<size_t>(rank)] = gpu;
    ++joined_;
    return true;
  }

  ncclResult_t state() override {
    const std::lock_guard lock(mutex_);
    if (joined_ < ranks()) return ncclInProgress;
    if (std::set<std::string>(gpus_.begin(), gpus_.end()).size() < gpus_.size()) return ncclInvalidUsage;
    return failure_;
  }

  void run(int rank, const Batch& batch, const std::atomic<bool>& aborted) override {
    for (const CollectiveCall& call : batch.collectives) meet(rank, call, aborted);
    std::deque<Message> sent;
    for (const PointToPoint& message : batch.messages) {
      if (!message.sends) continue;
      sent.push_back({message.data, message.bytes});
      send(rank, message.peer, &sent.back());
    }
    for (const PointToPoint& message : batch.messages)
      if (!message.sends) receive(message.peer, rank, message.data, message.bytes, aborted);
    size_t i = 0;
    for (const PointToPoint& message : batch.messages)
      if (message.sends) wait_until_taken(rank, message.peer, sent[i++], aborted);
  }

  void leave(std::atomic<bool>* aborted) override {
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
  std::vector<std::string> gpus_;  // by rank; empty: not there yet
  int joined_ = 0;
  ncclResult_t failure_ = ncclSuccess;
  std::vector<uint64_t> turns_;  // by rank: operations so far
  std::map<uint64_t, std::shared_ptr<Meeting>> meetings_;
  std::map<std::pair<int, int>, std::deque<Message*>> mail_;
};

// A rank's part; streams may use it longer than the program keeps the communicator.
struct Rank {
  std::shared_ptr<Ranks> world;
  int rank = 0, device = 0;
  std::atomic<bool> aborted{false};
  // For a nonblocking communicator: how often it still reports that the last call is being queued.
  bool blocking = true;
  std::atomic<int> queuing{0};
};

}  // namespace simulated_gpu
