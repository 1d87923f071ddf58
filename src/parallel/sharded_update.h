// Sharded updates of weights that all ranks have. The gradients of a bucket are summed for the ranks that update it.
// Each rank updates its shard of the bucket's weights with its shard of the optimizer state, and the weights are sent
// to the other ranks.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "src/parallel/weight_sync.h"

namespace owt {

// The common part of all sharded updates: everything except the transport of the buckets.
class UpdateInShares : public WeightSync {
 public:
  std::span<const ParamPart> share(int bucket) const override { return groups_[static_cast<size_t>(bucket)].parts; }
  Slice updated(const Param& param) const override;

 protected:
  struct Group {
    Tensor gradients, values, copies;  // one parameter after the other
    Communicator* comm = nullptr;      // transports the gradients
    std::vector<ParamPart> parts;      // this rank's part of every parameter
    Slice share;
  };

  // Lays the gradients, values and bf16 copies of every bucket of the plan side by side in memory. The parameters'
  // tensors become views of it; existing values are kept. A whole bucket has copies if one of its parameters has. comm:
  // of all ranks; it must outlive this.
  UpdateInShares(const Plan& plan, const LayerOf& layer_of, Communicator& comm);

  Group& group(int bucket) { return groups_[static_cast<size_t>(bucket)]; }
  // Writes zeros to gradients that have not been written.
  static void complete(const Group& group, const Stream& stream);
  // Rounds the values to their bf16 copies.
  static void renew_copies(Group& group, const Stream& stream);

  Communicator& comm_;

 private:
  Group group_of(const Plan& plan, const Bucket& bucket, const LayerOf& layer_of);

  std::vector<Group> groups_;
  std::unordered_map<const Param*, Slice> part_of_;
};

// All shards have the same size (ZeRO-1): reduce-scatter of gradients, all-gather of weights. Sends as many bytes as an
// all-reduce of the gradients.
// Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", P_os.
class ShardedUpdate : public UpdateInShares {
 public:
  ShardedUpdate(const Plan& plan, const LayerOf& layer_of, Communicator& comm);

  // The backward pass must no longer need the weights of the bucket's layers.
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

  std::vector<Way> ways_;  // index: bucket
};

}  // namespace owt
