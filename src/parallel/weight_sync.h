// Keeps the copies of the same weights on several ranks equal: what travels, bucket by bucket, and what a rank updates.
// The order (order.cpp) says when.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "layers/base/layer.h"
#include "src/core/check.h"
#include "src/plan/groups.h"
#include "src/plan/plan.h"

namespace owt {

class WeightSync {
 public:
  using LayerOf = std::function<Layer&(int64_t layer)>;  // layer: index in the plan

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
  // Starts to send the updated shard to the other ranks.
  virtual void start_weights(int, const Stream&) { fail("no weights are sent here"); }
  virtual void wait_for_weights(int, const Stream&) { fail("no weights are sent here"); }

  virtual Slice updated(const Param& param) const = 0;  // the elements that this rank updates
};

// The WeightSync of the front part, if no servers update its weights (ServedSync), and of the back part. They lay the
// gradients of every bucket side by side in memory; the parameters' gradients become views of it. The groups must
// outlive them.
std::unique_ptr<WeightSync> make_front_sync(const Plan& plan, const WeightSync::LayerOf& layer_of,
                                            const Groups& groups);
std::unique_ptr<WeightSync> make_dense_sync(const Plan& plan, const WeightSync::LayerOf& layer_of,
                                            const Groups& groups);

// Zeros a gradient that has not been written, e.g. on a rank without rows, since its memory still counts in a sum over
// ranks.
void complete_gradient(Param& param, const Stream& stream);

}  // namespace owt
