// Sums the gradients of replicated weights over the ranks that have them, in buckets that leave while backward goes on.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "layers/layer.h"
#include "src/comm/communicator.h"
#include "src/core/profiler.h"
#include "src/parallel/plan.h"

namespace owt {

class GradSync {
 public:
  using LayerOf = std::function<Layer&(int64_t layer)>;  // of the plan

  // Lays the gradients of every bucket side by side in memory (the parameters' grad becomes a view of it). `name`: of
  // the transfer in reports. Where `copies` is given, the ranks of that group take the sums of its first rank
  // (Plan::copies_gradients). The communicators and profiler must outlive this; profiler and copies may be null.
  GradSync(std::string name, std::span<const Bucket> buckets, const LayerOf& layer_of, const Compute& on,
           Communicator& comm, Profiler* profiler, Communicator* copies = nullptr);

  // The gradients of this layer of the plan are complete: a bucket whose layers all are starts on its way.
  void layer_done(int64_t layer, const Stream& stream);
  // Waits until all are summed; the next ones may be computed then.
  void finish(const Stream& stream);

 private:
  struct Group {
    Tensor all;  // the gradients one after the other
    Communicator *comm = nullptr, *copies = nullptr;
    std::vector<Param*> params;
    int64_t layers = 0, left = 0;  // of the bucket; not done yet in this step
    Event summed;
  };

  void send(Group& group, const Stream& stream);
  void copy(Group& group);

  std::string name_;
  Communicator* copies_;
  Profiler* profiler_;
  std::vector<Group> groups_;
  std::multimap<int64_t, size_t> groups_of_;  // layer of the plan -> groups
};

}  // namespace owt
