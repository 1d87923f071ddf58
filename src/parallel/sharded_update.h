// Weights that all ranks have, of which each rank updates a share: the gradients of a bucket are summed for the ranks
// that update it, each updates its part of the bucket's weights with its part of the optimizer's state, and the weights
// travel to the others.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "src/parallel/weight_sync.h"

namespace owt {

// By rank, the elements of a parameter (number `param` of this layer) that it updates, in memory order: what a rank's
// share of the bucket holds of it, which may be nothing. plan.shares_update() must hold.
std::vector<Slice> updated_parts(const Plan& plan, int64_t layer, size_t param);

// What all ways to do that have in common: everything but how the buckets travel.
class UpdateInShares : public WeightSync {
 public:
  std::span<const ParamPart> share(int bucket) const override { return groups_[static_cast<size_t>(bucket)].parts; }
  Slice updated(const Param& param) const override;

 protected:
  struct Group {
    Tensor gradients, values, copies;  // one after the other
    Communicator* comm = nullptr;      // for the gradients
    std::vector<ParamPart> parts;      // this rank's of every parameter
    Slice share;
  };

  // Lays the gradients, values and bf16 copies of every bucket of the plan side by side in memory (the parameters'
  // become views of it; values that are there already are kept). There are copies of a whole bucket where a parameter
  // in it has one. comm: of all ranks; it must outlive this.
  UpdateInShares(const Plan& plan, const LayerOf& layer_of, Communicator& comm);

  Group& group(int bucket) { return groups_[static_cast<size_t>(bucket)]; }
  // Gradients that are zero so far are written.
  static void complete(const Group& group, const Stream& stream);
  // The copies are those of the values.
  static void renew_copies(Group& group, const Stream& stream);

  Communicator& comm_;

 private:
  Group group_of(const Plan& plan, const Bucket& bucket, const LayerOf& layer_of);

  std::vector<Group> groups_;
  std::unordered_map<const Param*, Slice> part_of_;
};

// Every rank's share is as long (ZeRO-1): gradients are summed by reduce_scatter, weights gathered. Sends what an
// all_reduce of the gradients does.
// Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", P_os.
class ShardedUpdate : public UpdateInShares {
 public:
  ShardedUpdate(const Plan& plan, const LayerOf& layer_of, Communicator& comm);

  // To the ranks that update them; the weights of the bucket's layers must not be needed any more.
  void start_gradients(int bucket, const Stream& stream) override;
  void wait_for_gradients(int bucket, const Stream& stream) override { stream.wait(way(bucket).summed); }

  void start_weights(int bucket, const Stream& stream) override;
  void wait_for_weights(int bucket, const Stream& stream) override;

 private:
  struct Way {
    Event summed, gathered;
  };

  Way& way(int bucket) { return ways_[static_cast<size_t>(bucket)]; }
  Tensor mine(const Tensor& all, const Group& group) const { return all.part(group.share.begin, {group.share.size()}); }

  std::vector<Way> ways_;  // by bucket
};

}  // namespace owt
