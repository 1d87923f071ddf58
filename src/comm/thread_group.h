// Ranks that are threads of one process and share memory: of the host, or of one GPU.
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
  // What a rank brings to the collective under way. Handles, so that the memory outlives a rank that fails meanwhile.
  struct Post {
    Tensor in, out;
    Event ready;
    Event done;  // this rank's share of the work
  };

  // `spin`: waiting ranks may keep their cores busy for a moment.
  ThreadGroup(int ranks, bool spin);

  int ranks() const { return static_cast<int>(posts.size()); }

  // All ranks have come, and what they wrote before is visible to all. Throws Aborted when a rank failed.
  void host_barrier();
  // From now on host_barrier() throws, on all ranks and in all groups split off.
  void abort();
  // The group of the ranks that give the same color, and this one's place in it; all ranks call it together.
  struct Place {
    std::shared_ptr<ThreadGroup> group;
    int rank = 0;
  };
  Place split(int rank, int color);
  bool aborted() const { return aborted_.load(); }

  std::vector<Post> posts;  // by rank
  const std::shared_ptr<ThreadMessages> messages = std::make_shared<ThreadMessages>();

 private:
  void check() const;

  struct Joining {  // what a rank shows the others in split()
    int color = 0;
    std::shared_ptr<ThreadGroup> made;  // by the first rank of a color
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

// For tensors on the CPU and, where `device` is a GPU, on that GPU, which must be the same for all ranks and the
// calling host thread's. Every collective blocks its rank's host until all ranks have come. Those of tensors on the CPU
// are over then; those of tensors on the GPU are queued there, and the host waits for none of them.
std::unique_ptr<Communicator> make_thread_communicator(ThreadGroup& group, int rank, Device device);

}  // namespace owt
