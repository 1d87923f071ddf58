// What happened to another rank, and where this one is, for the messages of both: the step, the collective.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/comm/communicator.h"

namespace owt {

// "rank 2 on HOST (process 1234) was lost: its process has ended; during all_reduce, step 120"
class RankLost : public Aborted {
 public:
  using Aborted::Aborted;
};

// The rank at the other end of a message is gone, and this one goes on without it.
class PeerGone : public RankLost {
 public:
  using RankLost::RankLost;
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

// What happened to other ranks, for all threads of this process. A loss ends what all ranks do together, and the first
// one stays; but those that are tolerated are gone, and only what is exchanged with them fails.
class LostRanks {
 public:
  // From now on the loss of these ranks is tolerated.
  void tolerate(const std::vector<int>& ranks);
  bool tolerates(int rank) const;
  void set_lost(int rank, const std::string& text);  // without the place
  void set_failed(const std::string& text);          // "rank 2 failed: TEXT"
  bool any() const { return any_.load(); }           // whose loss was not tolerated
  int gone() const { return gone_count_.load(); }    // ranks
  std::vector<std::string> what_is_gone() const;     // and how, in the order in which it became known
  // Throws PeerGone where it is gone.
  void check_peer(int rank, std::string_view during) const;
  // Throws RankLost where one of these is gone.
  void check_group(const std::vector<int>& ranks, std::string_view during) const;
  // What the exception of check() says.
  std::string text(std::string_view during) const;
  // Throws RankLost, or Aborted where the other rank has failed by itself. during: the collective.
  void check(std::string_view during) const;

 private:
  void set(const std::string& text, bool lost);
  static std::string with_place(const std::string& text, std::string_view during);

  mutable std::mutex mutex_;
  std::atomic<bool> any_{false};
  std::string text_;
  bool lost_ = false;
  std::atomic<int> gone_count_{0};
  std::set<int> tolerated_;
  std::vector<std::pair<int, std::string>> gone_;
};

}  // namespace owt
