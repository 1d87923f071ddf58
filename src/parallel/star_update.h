// Rank 0 updates all weights for all ranks: a star of messages. Every other rank sends it the gradients of a bucket; it
// adds them to its own, in the order of the ranks, updates, and sends each of the others the weights. So its link
// carries K - 1 times the weights each way, whatever the link of another carries.
// Source: Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server"; torch.nn.DataParallel.
#pragma once

#include <array>
#include <vector>

#include "src/parallel/sharded_update.h"

namespace owt {

// Rank 0 has memory for what comes of two buckets, which take turns: those of even and those of odd numbers.
constexpr int kStarSlots = 2;
// The elements of the largest bucket that uses this memory, of which every other rank sends as many.
int64_t star_slot_elements(const Plan& plan, int slot);

class StarUpdate : public UpdateInShares {
 public:
  // Collective: opens routes between rank 0 and each of the others.
  StarUpdate(const Plan& plan, const LayerOf& layer_of, Communicator& comm);

  // To rank 0. Of a bucket whose number is greater by kStarSlots than that of another, wait_for_gradients() of that
  // one must come before. The weights of the bucket's layers must not be needed any more.
  void start_gradients(int bucket, const Stream& stream) override;
  // Until they have left; on rank 0, until their sum is there.
  void wait_for_gradients(int bucket, const Stream& stream) override;

  void start_weights(int bucket, const Stream& stream) override;
  void wait_for_weights(int bucket, const Stream& stream) override;

 private:
  struct Way {
    std::vector<Event> gradients, weights;  // of every message
    Event mine;                             // this rank's gradients are there
  };
  struct Slot {
    Tensor values;  // of one rank after the other, the first is rank 1
    Event free;     // they have been added
  };

  bool is_first() const { return comm_.rank() == 0; }
  Way& way(int bucket) { return ways_[static_cast<size_t>(bucket)]; }
  Slot& slot(int bucket) { return slots_[static_cast<size_t>(bucket % kStarSlots)]; }
  Tensor received(int bucket, int from);
  void add_up(int bucket, const Stream& stream);

  std::vector<Way> ways_;  // by bucket
  std::array<Slot, kStarSlots> slots_;
};

}  // namespace owt
