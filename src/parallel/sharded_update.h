// Sums the gradients of replicated weights and updates the weights, a share on every rank (ZeRO-1): the gradients of a
// bucket are summed by reduce_scatter, every rank updates its part of the bucket's weights with its part of the
// optimizer's state, and the weights are gathered. Sends what an all_reduce of the gradients does.
// Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", P_os.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "src/parallel/weight_sync.h"

namespace owt {

// By rank, the elements of a parameter (number `param` of this layer) that it updates, in memory order: what a rank's
// equal share of the bucket holds of it, which may be nothing. plan.shares_update() must hold.
std::vector<Slice> updated_parts(const Plan& plan, int64_t layer, size_t param);

class ShardedUpdate : public WeightSync {
 public:
  // Lays the gradients, values and bf16 copies of every bucket of the plan side by side in memory (the parameters'
  // become views of it; values that are there already are kept). comm: of all ranks; it must outlive this.
  ShardedUpdate(const Plan& plan, const LayerOf& layer_of, Communicator& comm);

  // To the ranks that update them; the weights of the bucket's layers must not be needed any more.
  void start_gradients(int bucket, const Stream& stream) override;
  void wait_for_gradients(int bucket, const Stream& stream) override { stream.wait(group(bucket).summed); }

  std::span<const ParamPart> share(int bucket) const override { return groups_[static_cast<size_t>(bucket)].parts; }
  void start_weights(int bucket, const Stream& stream) override;
  void wait_for_weights(int bucket, const Stream& stream) override;
  Slice updated(const Param& param) const override;

 private:
  struct Group {
    Tensor gradients, values, copies;  // one after the other
    Communicator* comm = nullptr;      // for the gradients
    std::vector<ParamPart> parts;      // this rank's of every parameter
    Slice share;
    Event summed, gathered;
  };

  Group group_of(const Bucket& bucket, const LayerOf& layer_of, const Compute& on);
  Group& group(int bucket) { return groups_[static_cast<size_t>(bucket)]; }
  Tensor mine(const Tensor& all, const Group& group) const { return all.part(group.share.begin, {group.share.size()}); }

  Communicator& comm_;
  std::vector<Group> groups_;
  std::unordered_map<const Param*, Slice> part_of_;
};

}  // namespace owt
