// What happened to another rank, and where this one is, for the messages of both: the step, the collective.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "src/comm/communicator.h"

namespace owt {

// "rank 2 on HOST (process 1234) was lost: its process has ended; during all_reduce, step 120"
class RankLost : public Aborted {
 public:
  using Aborted::Aborted;
};

// The training step under way, for messages; negative: none.
void note_step(int64_t step);
// The collective that this rank has begun last, and the message that it waits for.
struct NotedCollective {
  int64_t number = 0;  // how many it has begun; 0: none
  std::string name{};
  bool under_way = false;  // a GPU's is none that the host knows of
  std::string message{};   // empty: it waits for none
  int peer = -1;           // the process at the message's other end
};
void note_collective(const std::string& name, bool under_way);
void note_end_of_collective();
NotedCollective noted_collective();
// Where this rank is: the message that it waits for, the collective under way, or "after" the last one; empty before
// the first.
std::string noted_place();
// The rank waits for a message, during the lifetime of this.
class WaitsForMessage {
 public:
  WaitsForMessage(const std::string& name, int peer);
  ~WaitsForMessage();
  WaitsForMessage(const WaitsForMessage&) = delete;
  WaitsForMessage& operator=(const WaitsForMessage&) = delete;
};
// With the transfer that the calling thread works on (Profiler::Scope): "all_gather of 'fc1 input'"; `peer` is the
// other rank of a message: "receive of 'fc1 input' from rank 2".
std::string described(Collective collective, int peer = -1);

// What happened to another rank, for all threads of this process. The first loss stays.
class LostRanks {
 public:
  void set_lost(const std::string& text);    // without the place
  void set_failed(const std::string& text);  // "rank 2 failed: TEXT"
  bool any() const { return any_.load(); }
  // What the exception of check() says.
  std::string text(std::string_view during) const;
  // Throws RankLost, or Aborted where the other rank has failed by itself. during: the collective.
  void check(std::string_view during) const;

 private:
  void set(const std::string& text, bool lost);

  mutable std::mutex mutex_;
  std::atomic<bool> any_{false};
  std::string text_;
  bool lost_ = false;
};

}  // namespace owt
