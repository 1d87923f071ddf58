// Failures of other ranks, and the current place of this rank (step, collective), for messages.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
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

// The rank at the other end of a message is gone; this rank continues without it.
class PeerGone : public RankLost {
 public:
  using RankLost::RankLost;
};

// Records the current training step for messages; negative: none.
void note_step(int64_t step);
// The last collective that this rank began, and the message that it waits for.
struct NotedCollective {
  int64_t number = 0;  // number of collectives begun; 0: none
  std::string name{};
  bool under_way = false;  // always false for collectives on a GPU, which the host cannot see
  std::string message{};   // empty: it waits for no message
  int peer = -1;           // the process at the other end of the message
};
void note_collective(const std::string& name, bool under_way);
void note_end_of_collective();
NotedCollective noted_collective();
// This rank's place: the message that it waits for, the current collective, or "after" the last one. Empty before the
// first collective.
std::string noted_place();
// Marks, for its lifetime, that the rank waits for a message.
class WaitsForMessage {
 public:
  WaitsForMessage(const std::string& name, int peer);
  ~WaitsForMessage();
  WaitsForMessage(const WaitsForMessage&) = delete;
  WaitsForMessage& operator=(const WaitsForMessage&) = delete;
};
// The collective with the transfer of the calling thread (Profiler::Scope): "all_gather of 'fc1 input'". For a message,
// `peer` is the other rank: "receive of 'fc1 input' from rank 2".
std::string described(Collective collective, int peer = -1);

// Failures of other ranks, for all threads of this process. A loss ends all collectives, and the first loss is kept. A
// rank whose loss is tolerated is only marked as gone: just the calls that involve it fail.
class LostRanks {
 public:
  // Tolerates the loss of these ranks from then on.
  void tolerate(const std::vector<int>& ranks);
  bool tolerates(int rank) const;
  void set_lost(int rank, const std::string& text);  // text without the place
  void set_failed(const std::string& text);          // "rank 2 failed: TEXT"
  bool any() const { return any_.load(); }           // whether a rank was lost whose loss is not tolerated
  std::optional<int> lost_rank() const;              // the first of these; none if a rank failed by itself
  int gone() const { return gone_count_.load(); }    // number of ranks
  std::vector<std::string> what_is_gone() const;     // each with the reason, in the order in which they became known
  // Throws PeerGone if the rank is gone.
  void check_peer(int rank, std::string_view during) const;
  // Throws RankLost if one of these ranks is gone.
  void check_group(const std::vector<int>& ranks, std::string_view during) const;
  // The text of the exception of check().
  std::string text(std::string_view during) const;
  // Throws RankLost, or Aborted if the other rank failed by itself. during: the collective.
  void check(std::string_view during) const;

 private:
  void set(const std::string& text, std::optional<int> lost);
  static std::string with_place(const std::string& text, std::string_view during);

  mutable std::mutex mutex_;
  std::atomic<bool> any_{false};
  std::string text_;
  std::optional<int> lost_;
  std::atomic<int> gone_count_{0};
  std::set<int> tolerated_;
  std::vector<std::pair<int, std::string>> gone_;
};

}  // namespace owt
