// Sums the gradients of replicated weights over the ranks, in buckets that leave while backward goes on.
#pragma once

#include <vector>

#include "src/comm/communicator.h"
#include "src/core/profiler.h"
#include "src/net/net.h"
#include "src/parallel/plan.h"

namespace owt {

class GradSync {
 public:
  // Lays the gradients of every bucket of the plan side by side in memory (the parameters' grad becomes a view of it).
  // All but profiler must outlive this; profiler may be null.
  GradSync(const Plan& plan, Net& front, Communicator& comm, Profiler* profiler);

  // The gradients of this layer of the front are complete: a bucket whose layers all are starts on its way.
  void layer_done(int64_t layer, const Stream& stream);
  // Waits until all are summed; the next step may begin.
  void finish(const Stream& stream);

 private:
  struct Group {
    Tensor all;  // the gradients one after the other
    std::vector<Param*> params;
    int64_t layers = 0, left = 0;  // of the bucket; not done yet in this step
    Event summed;
  };

  void send(Group& group, const Stream& stream);

  Communicator& comm_;
  Profiler* profiler_;
  std::vector<Group> groups_;
  std::vector<int> group_of_;  // layer -> group; -1: nothing to sum
};

}  // namespace owt
