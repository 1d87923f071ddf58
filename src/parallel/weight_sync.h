// Keeps the copies of the same weights on several ranks equal: what travels, bucket by bucket, and what a rank updates.
// The order (src/plan/order.h) says when. If servers update the weights (src/server/parameter_server.h), they are
// reached through this class too: a step or a run calls the functions for servers, which do nothing without them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "layers/base/layer.h"
#include "src/plan/groups.h"
#include "src/plan/plan.h"
#include "src/plan/step_result.h"
#include "src/system/check.h"

namespace owt {

// Data of the step that a gradient belongs to, for servers.
struct PushedFor {
  double weights = 0, biases = 0;  // learning rates
  double sgd_share = 1;            // OptimizerSettings::sgd_share()
  double share = 1;                // fraction of the step's rows that the gradient covers
};

class WeightSync {
 public:
  using LayerOf = std::function<Layer&(int64_t layer)>;  // layer: index in the plan
  using UpdateParts = std::function<void(std::span<const ParamPart> parts)>;

  virtual ~WeightSync() = default;

  // Starts the transfer of the bucket's gradients. They must be complete in all of its layers.
  virtual void start_gradients(int bucket, const Stream& stream) = 0;
  // If the copies of a model group must not differ in the last bit: starts to take the sums of its first rank, after
  // they are summed.
  virtual void start_copies(int, const Stream&) { fail("no gradients are copied here"); }
  // Waits for the transfer that was started last.
  virtual void wait_for_gradients(int bucket, const Stream& stream) = 0;

  // If updates are sharded: this rank's part of every parameter of the bucket. Empty: the rank updates all of it.
  virtual std::span<const ParamPart> share(int) const { return {}; }
  // Updates that part: with `update`, or on servers. Call after wait_for_gradients().
  virtual void update_share(int bucket, const UpdateParts& update) { update(share(bucket)); }
  // Starts to send the updated shard to the other ranks.
  virtual void start_weights(int, const Stream&) { fail("no weights are sent here"); }
  virtual void wait_for_weights(int, const Stream&) { fail("no weights are sent here"); }

  virtual Slice updated(const Param& param) const = 0;  // the elements that this rank updates

  // The functions for servers. Call this one in every step before its gradients. If it returns true, servers collect
  // the step's result, and result() replaces the all-reduce. sums: ResultSums over this rank's rows. step: the run's
  // step number.
  virtual bool start_push(const Tensor&, const PushedFor&, int64_t) { return false; }
  // The sums over all ranks of the oldest step not returned yet, if servers collect them; else `sums`.
  virtual ResultSums result(const ResultSums& sums) { return sums; }

  // Collective, between steps, after the same number of steps on all ranks. Afterwards every gradient is in the
  // weights, and all ranks have the same weights. Do not write to a rank's weights before: servers may still send them
  // as answers. Returns the number of updates that servers have made; nullopt: there are none.
  virtual std::optional<int64_t> settle(const Stream&) { return {}; }
  // Collective, after settle(): the weights are what the parameters hold, which must be the same on all ranks.
  virtual void take_values() {}
  virtual void resume_after(int64_t) {}  // the number of updates before the first step

  // If the loss of ranks is tolerated (comm/processes.h): the workers that all ranks must continue without. Rank 0
  // decides, so the result is the same on all ranks. Collective, between steps, before settle(), and by messages alone,
  // so that an earlier loss does no harm. If the result is not empty, neither settle() nor another step may follow.
  // Instead, a new object of the remaining ranks must take() the weights of this one.
  virtual std::vector<int> meet() { return {}; }
  // Collective over the ranks of this object: takes the weights that the servers of `before` have, and returns the
  // number of their updates. This object must not have served yet, and must have as many servers, the same processes.
  virtual int64_t take(WeightSync&, const Stream&) { fail("no servers have the weights"); }
};

// The WeightSync of the front part and of the back part. They lay the gradients of every bucket side by side in memory;
// the parameters' gradients become views of it. The groups must outlive them. make_served: makes the result if servers
// update the weights.
std::unique_ptr<WeightSync> make_front_sync(const Plan& plan, const WeightSync::LayerOf& layer_of, const Groups& groups,
                                            const std::function<std::unique_ptr<WeightSync>()>& make_served = {});
std::unique_ptr<WeightSync> make_dense_sync(const Plan& plan, const WeightSync::LayerOf& layer_of,
                                            const Groups& groups);

// Zeros a gradient that has not been written, e.g. on a rank without rows, since its memory still counts in a sum over
// ranks.
void complete_gradient(Param& param, const Stream& stream);

}  // namespace owt
