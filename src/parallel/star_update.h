// dp-star: rank 0, the central server, updates all weights for all ranks. Every other rank sends it the gradients of a
// bucket. Rank 0 adds them to its own in rank order, updates, and sends the weights to every other rank. Its link
// carries K - 1 times the weights in each direction.
// Source: Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server"; torch.nn.DataParallel.
#pragma once

#include <array>
#include <vector>

#include "src/parallel/sharded_update.h"

namespace owt {

// Rank 0 has memory for the received gradients of two buckets: one slot for even bucket numbers, one for odd numbers.
constexpr int kStarSlots = 2;
// The elements of the largest bucket that uses this slot. Every other rank sends as many.
int64_t star_slot_elements(const Plan& plan, int slot);

class StarUpdate : public UpdateInShares {
 public:
  // Collective: opens routes between rank 0 and every other rank.
  StarUpdate(const Plan& plan, const LayerOf& layer_of, Communicator& comm);

  // Sends the gradients to rank 0. Before the gradients of bucket b + kStarSlots, wait_for_gradients() of bucket b must
  // have been called. The backward pass must no longer need the weights of the bucket's layers.
  void start_gradients(int bucket, const Stream& stream) override;
  // Waits until the gradients have been sent; on rank 0, until they are summed.
  void wait_for_gradients(int bucket, const Stream& stream) override;

  void start_weights(int bucket, const Stream& stream) override;
  void wait_for_weights(int bucket, const Stream& stream) override;

 private:
  struct Way {
    std::vector<Event> gradients, weights;  // one per message
    Event mine;                             // this rank's gradients are complete
  };
  struct Slot {
    Tensor values;  // gradients of each rank in order, beginning with rank 1
    Event free;     // the values have been added, so the slot can be reused
  };

  bool is_first() const { return comm_.rank() == 0; }
  Way& way(int bucket) { return ways_[static_cast<size_t>(bucket)]; }
  Slot& slot(int bucket) { return slots_[static_cast<size_t>(bucket % kStarSlots)]; }
  Tensor received(int bucket, int from);
  void add_up(int bucket, const Stream& stream);

  std::vector<Way> ways_;  // index: bucket
  std::array<Slot, kStarSlots> slots_;
};

}  // namespace owt
