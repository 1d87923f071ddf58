// Collectives as messages between pairs of ranks. For files of this folder, in the communication thread.
//
// All ranks together send as many bytes as in a ring (communicator.h), for any number of ranks. Sums are taken in rank
// order with sums.h, so that they have the same bits as with ranks that are threads. reduce uses a chain that starts
// after the root: f32 and f64 are added in the order root+1, root+2, ..., root; bf16 likewise, rounded after each
// addition.
#pragma once

#include <vector>

#include "src/comm/comm_thread.h"
#include "src/comm/communicator.h"

namespace owt {

struct ProcessGroup {
  std::vector<int> members;  // processes, by rank of the group
  int rank = 0;              // this process's rank
  int context = 0;           // distinguishes its messages from messages of other groups of the same processes

  int ranks() const { return static_cast<int>(members.size()); }
};

// The messages of a group. Messages with the same tag between two ranks arrive in the order in which they were sent.
class GroupWire {
 public:
  enum Tag { kParts, kSums, kMessages };
  // The tag of the links; a group has three.
  static int tag_of(const ProcessGroup& group, Tag tag) { return group.context * 3 + tag; }

  GroupWire(CommThread& thread, const ProcessGroup& group) : thread_(thread), group_(group) {}

  int rank() const { return group_.rank; }
  int ranks() const { return group_.ranks(); }
  // The rank `step` after this one, in a ring. All ranks visit their partners in this order, so that they do not all
  // send to the same rank at a time.
  int after(int step) const { return (rank() + step) % ranks(); }
  int before(int step) const { return (rank() + ranks() - step) % ranks(); }

  // Adds the requests to the list. Nothing is sent if there are no bytes.
  void send(Requests& requests, const std::byte* from, int64_t bytes, int to_rank, Tag tag = kParts);
  void receive(Requests& requests, std::byte* to, int64_t bytes, int from_rank, Tag tag = kParts);
  void wait(Requests& requests) { thread_.wait(requests); }
  std::byte* scratch(int64_t bytes) { return thread_.scratch(bytes); }

 private:
  CommThread& thread_;
  const ProcessGroup& group_;
};

// Runs this rank's part of a collective; returns when it is over.
void transfer(GroupWire& wire, const Call& call);

}  // namespace owt
