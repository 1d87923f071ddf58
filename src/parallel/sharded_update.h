// Sums the gradients of replicated weights and updates the weights, a share on every rank (ZeRO-1): the gradients of a
// bucket are summed by reduce_scatter, every rank updates its part of the bucket's weights with its part of the
// optimizer's state, and the weights are gathered. Sends what an all_reduce of the gradients does.
// Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", P_os.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "src/core/profiler.h"
#include "src/parallel/grad_sync.h"

namespace owt {

// By rank, the elements of a parameter (number `param` of this layer) that it updates, in memory order: what a rank's
// equal share of the bucket holds of it, which may be nothing. plan.shares_update() must hold.
std::vector<Slice> updated_parts(const Plan& plan, int64_t layer, size_t param);

class ShardedUpdate {
 public:
  // Queues the update of these parts.
  using Update = std::function<void(std::span<const ParamPart> parts, const Stream& stream)>;

  // Lays the gradients, values and bf16 copies of every bucket of the plan side by side in memory (the parameters'
  // become views of it; values that are there already are kept). comm: of all ranks. It and profiler must outlive this;
  // profiler may be null.
  ShardedUpdate(const Plan& plan, const GradSync::LayerOf& layer_of, Communicator& comm, Update update,
                Profiler* profiler);

  // The gradients of this layer are complete, and its weights are not needed any more: a bucket whose layers all are
  // starts on its way. Layers come last first, on all ranks.
  void layer_done(int64_t layer, const Stream& stream);
  // Waits until all weights are updated and gathered.
  void finish(const Stream& stream);

  Slice part_of(const Param& param) const;  // that this rank updates

 private:
  struct Group {
    Tensor gradients, values, copies;  // one after the other
    Communicator* comm = nullptr;      // for the gradients
    std::vector<ParamPart> parts;      // of every parameter, this rank's
    Slice share;
    int64_t layers = 0, left = 0;  // of the bucket; not done yet in this step
    Event summed, gathered;
  };

  Group group_of(const Bucket& bucket, const GradSync::LayerOf& layer_of, const Compute& on);
  void send(Group& group, const Stream& stream);
  void update(Group& group);

  Communicator& comm_;
  Update update_;
  Profiler* profiler_;
  Stream updates_;  // beside the backward pass
  std::vector<Group> groups_;
  std::multimap<int64_t, size_t> groups_of_;  // layer of the plan -> groups
  std::unordered_map<const Param*, Slice> part_of_;
  Group* summing_ = nullptr;  // it has left, and is not updated yet
};

}  // namespace owt
