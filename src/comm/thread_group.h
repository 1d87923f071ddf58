// Ranks that are threads of one process and share memory, on the host or on one GPU.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "src/comm/communicator.h"
#include "src/comm/thread_messages.h"

namespace owt {

class ThreadGroup {
 public:
  // A rank's tensors in the current collective. Handles keep the memory alive if a rank fails meanwhile.
  struct Post {
    Tensor in, out;
    Event ready;
    Event done;  // this rank's share of the work
  };

  // `spin`: waiting ranks may spin for a moment.
  ThreadGroup(int ranks, bool spin);

  int ranks() const { return static_cast<int>(posts.size()); }

  // Returns when all ranks have called it; what they wrote before is visible to all. Throws Aborted if a rank failed.
  void host_barrier();
  // Makes host_barrier() throw from then on, on all ranks and in all groups split off.
  void abort();
  // The group of the ranks with the same color, and this rank's place in it. All ranks call it together.
  struct Member {
    std::shared_ptr<ThreadGroup> group;
    int rank = 0;
  };
  Member split(int rank, int color);
  bool aborted() const { return aborted_.load(); }

  std::vector<Post> posts;  // by rank
  const std::shared_ptr<ThreadMessages> messages = std::make_shared<ThreadMessages>();

 private:
  void check() const;

  struct Joining {  // shown to the other ranks in split()
    int color = 0;
    std::shared_ptr<ThreadGroup> made;  // made by the first rank of a color
  };

  bool spin_;
  int spins_;
  std::vector<Joining> joining_;  // by rank
  std::mutex parts_mutex_;
  std::vector<std::weak_ptr<ThreadGroup>> parts_;
  std::atomic<uint32_t> phase_{0};
  std::atomic<int> arrived_{0};
  std::atomic<bool> aborted_{false};
};

// For tensors on the CPU and, if `device` is a GPU, on that GPU, which must be the calling host thread's and the same
// for all ranks. Every collective blocks its rank's host until all ranks have called. Collectives on the CPU are over
// then. Collectives on the GPU are queued, and the host does not wait for them.
std::unique_ptr<Communicator> make_thread_communicator(ThreadGroup& group, int rank, Device device);

}  // namespace owt
