// Sums the gradients of replicated weights over the ranks that have them, in buckets that leave while backward goes on.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "layers/layer.h"
#include "src/comm/communicator.h"
#include "src/parallel/plan.h"

namespace owt {

class GradSync {
 public:
  using LayerOf = std::function<Layer&(int64_t layer)>;  // of the plan

  // Lays the gradients of every bucket side by side in memory (the parameters' grad becomes a view of it). Where
  // `copies` is given, the ranks of that group take the sums of its first rank (Plan::copies_gradients). The
  // communicators must outlive this; copies may be null.
  GradSync(std::span<const Bucket> buckets, const LayerOf& layer_of, const Compute& on, Communicator& comm,
           Communicator* copies = nullptr);

  // The gradients of all layers of the bucket are complete: it starts on its way.
  void start(int bucket, const Stream& stream);
  // Starts to take those of the first rank, once they are summed.
  void start_copy(int bucket, const Stream& stream);
  // Until the bucket is there; its next gradients may be computed then.
  void wait(int bucket, const Stream& stream);

 private:
  struct Group {
    Tensor all;  // the gradients one after the other
    Communicator *comm = nullptr, *copies = nullptr;
    std::vector<Param*> params;
    bool under_way = false;
    Event arrived;
  };

  Group& group(int bucket) { return groups_[static_cast<size_t>(bucket)]; }

  std::vector<Group> groups_;
};

// Where there is no gradient yet, as on a rank without rows, its memory still counts in a sum of ranks.
void complete_gradient(Param& param, const Stream& stream);

}  // namespace owt
