// Sums the gradients of replicated weights over the ranks that have them, in buckets. Buckets are sent during the
// backward pass.
#pragma once

#include <span>
#include <vector>

#include "src/parallel/weight_sync.h"

namespace owt {

class GradSync : public WeightSync {
 public:
  // Lays the gradients of every bucket side by side in memory; each parameter's grad becomes a view of it. If `copies`
  // is given, the ranks of that group take the sums of its first rank (Plan::copies_gradients). The communicators must
  // outlive this; copies may be null.
  GradSync(std::span<const Bucket> buckets, const LayerOf& layer_of, const Compute& on, Communicator& comm,
           Communicator* copies = nullptr);

  void start_gradients(int bucket, const Stream& stream) override;
  void start_copies(int bucket, const Stream& stream) override;
  void wait_for_gradients(int bucket, const Stream& stream) override;
  Slice updated(const Param& param) const override { return {0, param.shape().elements()}; }

 private:
  struct Group {
    Tensor all;  // all gradients of the bucket, one after the other
    Communicator *comm = nullptr, *copies = nullptr;
    std::vector<Param*> params;
    bool under_way = false;
    Event arrived;
  };

  Group& group(int bucket) { return groups_[static_cast<size_t>(bucket)]; }

  std::vector<Group> groups_;
};

}  // namespace owt
