#include "src/parallel/grad_sync.h"

#include "src/core/canonical.h"

namespace owt {

GradSync::GradSync(std::span<const Bucket> buckets, const LayerOf& layer_of, const Compute& on, Communicator& comm,
                   Communicator* copies) {
  for (const Bucket& bucket : buckets) {
    Group group;
    group.comm = bucket.trained ? &comm : &comm.unrounded();
    if (copies) group.copies = bucket.trained ? copies : &copies->unrounded();
    for (const int64_t layer : bucket.layers)
      for (Param* param : layer_of(layer).params())
        if (bucket.holds(param->role)) group.params.push_back(param);
    group.all = Tensor({bucket.elements}, weight_sum_type(on), on.device);
    group.all.zero();  // padding travels too
    int64_t used = 0;
    for (Param* param : group.params) {
      OWT_CHECK(used + param->grad_shape().elements() <= bucket.elements);
      OWT_CHECK(param->grad_type == weight_sum_type(on), param->name, ": gradients of several ranks are added in ",
                name_of(weight_sum_type(on)));
      param->grad = group.all.part(used, param->grad_shape());
      used += aligned_elements(param->grad_shape().elements());
    }
    groups_.push_back(std::move(group));
  }
}

void GradSync::start_gradients(int bucket, const Stream& stream) {
  Group& at = group(bucket);
  for (Param* param : at.params) complete_gradient(*param, stream);
  // Sum, not mean: the loss already carries 1/N (layers/loss/softmax_loss.h).
  at.arrived = at.comm->all_reduce(at.all, stream.record());
  at.under_way = true;
}

void GradSync::start_copies(int bucket, const Stream& stream) {
  Group& at = group(bucket);
  for (Param* param : at.params) complete_gradient(*param, stream);
  at.arrived = at.copies->broadcast(at.all, at.all, 0, at.under_way ? at.arrived : stream.record());
  at.under_way = true;
}

void GradSync::wait_for_gradients(int bucket, const Stream& stream) {
  Group& at = group(bucket);
  stream.wait(at.arrived);
  at.under_way = false;
}

}  // namespace owt
