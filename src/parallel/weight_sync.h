// How copies of the same weights on several ranks are kept alike: what travels for that, bucket by bucket, and what a
// rank updates. When is the order's to say (order.cpp).
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "layers/layer.h"
#include "src/core/check.h"
#include "src/parallel/groups.h"
#include "src/parallel/plan.h"

namespace owt {

class WeightSync {
 public:
  using LayerOf = std::function<Layer&(int64_t layer)>;  // of the plan

  virtual ~WeightSync() = default;

  // The gradients of all layers of the bucket are complete: they start on their way.
  virtual void start_gradients(int bucket, const Stream& stream) = 0;
  // Where the copies of a model group must not differ in the last bit: starts to take those of its first rank, once
  // they are summed.
  virtual void start_copies(int, const Stream&) { fail("no gradients are copied here"); }
  // Until what started last is there.
  virtual void wait_for_gradients(int bucket, const Stream& stream) = 0;

  // Where ranks update shares of the bucket: this rank's part of every parameter. Empty: it updates all.
  virtual std::span<const ParamPart> share(int) const { return {}; }
  // The updated share starts on its way to the others.
  virtual void start_weights(int, const Stream&) { fail("no weights are sent here"); }
  virtual void wait_for_weights(int, const Stream&) { fail("no weights are sent here"); }

  virtual Slice updated(const Param& param) const = 0;  // the elements that this rank updates
};

// That of the layers before the boundary, and that of those behind it. They lay the gradients of every bucket side by
// side in memory (the parameters' become views of it). The groups must outlive them.
std::unique_ptr<WeightSync> make_front_sync(const Plan& plan, const WeightSync::LayerOf& layer_of,
                                            const Groups& groups);
std::unique_ptr<WeightSync> make_dense_sync(const Plan& plan, const WeightSync::LayerOf& layer_of,
                                            const Groups& groups);

// Where there is no gradient yet, as on a rank without rows, its memory still counts in a sum of ranks.
void complete_gradient(Param& param, const Stream& stream);

}  // namespace owt
