// A range of weights on the rank that serves it. Gradients arrive from workers one by one. When they complete an update
// (consistency.h), the weights are updated with their sum. A worker that has pushed is answered with the weights as
// soon as it may start its next task. So a push is also the request for the next weights; its task and weights are
// known by counting. Functions that several threads may call say so.
//
// If an update consists of the gradients of one task, they are summed in the order of the workers, else in the order of
// arrival.
// Source: Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server", range push and pull.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "src/core/tensor.h"
#include "src/parallel/weight_sync.h"
#include "src/plan/consistency.h"

namespace owt {

// The arguments of an update. The gradient is the mean over the rows of `share` steps, times `share`.
struct ServedUpdate {
  Tensor gradient{};  // the sum, as long as the range
  Tensor weights{};   // the weights to update
  PushedFor pushed{};
  int64_t updates = 0;  // number of previous updates of the weights
};

constexpr int kNoWorker = -1;

class WeightRange {
 public:
  using Update = std::function<void(const ServedUpdate& update)>;
  // Sends these weights to a worker other than the rank's own. They do not change until its next push.
  using Answer = std::function<void(int worker, const Tensor& weights)>;

  // mine: the range in the weights that this rank's worker `own` computes with, f32 on the CPU. own is kNoWorker if the
  // rank has no worker and only others push. Synchronous updates are made in place in `mine`, since no worker computes
  // at that time. gradients: their type. The pushing thread calls update and answer, one thread at a time.
  WeightRange(int workers, int own, const ConsistencyRules& rules, DType gradients, const Tensor& mine, Update update,
              Answer answer);

  // The most tensors that it holds besides `mine`; each is as long as the range.
  static int64_t tensors(int workers, int own, const ConsistencyRules& rules);

  // Call before the first push: takes the weights of `mine`, and every worker starts its first task. updates: the
  // number of updates that the weights have had.
  void begin(int64_t updates);
  // Memory for a gradient that will arrive; push() takes it back. Any thread may call it.
  Tensor memory();
  // The gradient of the worker's current task. Any thread may call it, but only one at a time per worker.
  void push(int worker, const Tensor& gradient, const PushedFor& pushed);
  // The gradient of the rank's own worker. In synchronous mode it is borrowed until await() returns, otherwise copied.
  void push_own(const Tensor& gradient, const PushedFor& pushed);
  // A worker is lost: no worker waits for it any longer, and it gets no answers. Any thread may call it after the
  // worker's last push.
  void forget(int worker);
  // The rank's own worker waits until it may start its next task; then `mine` has the weights. Throws Aborted after
  // give_up().
  void await();
  // Makes await() throw. Any thread may call it.
  void give_up();

  // Call after all workers have pushed all of their tasks. Applies the waiting gradients and copies the weights to
  // `mine`, which has all updates then. The next tasks start with what `mine` holds on every rank.
  void settle();
  // Call after settle() and before the next push: takes the weights of `mine`.
  void take_mine();

  int64_t updates() const;
  // The number of gradients that updated the weights, by staleness: the number of updates since the gradient's weights
  // were read.
  const std::map<int64_t, int64_t>& staleness() const { return staleness_; }  // only while no worker pushes

 private:
  struct Worker {
    int64_t task = 0, read = 0;  // its current task; the number of updates in the weights it computes with
    bool waits = false;          // waits to start its next task
    Tensor weights{};            // the last answer
  };
  struct Arrived {
    Tensor gradient;
    PushedFor pushed;
    bool borrowed;
  };

  Worker& at(int worker) { return workers_[static_cast<size_t>(worker)]; }
  bool in_place() const { return rules_.synchronous() && own_ != kNoWorker; }
  void take(int worker, Arrived arrived);
  void update(const std::vector<Push>& with);
  void start(int worker);
  void answer_who_may();

  const DType gradients_;
  const ConsistencyRules rules_;
  const int own_;
  const Update update_;
  const Answer answer_;
  Tensor mine_, weights_;  // the same memory if in_place()

  mutable std::mutex mutex_;  // guards everything below, and the weights
  std::condition_variable changed_;
  Consistency consistency_;
  std::vector<Worker> workers_;
  std::map<std::pair<int, int64_t>, Arrived> arrived_;  // key: worker and task
  std::vector<Tensor> free_;
  int64_t before_ = 0;  // number of updates before begin()
  bool lacks_workers_ = false;
  std::map<int64_t, int64_t> staleness_;
  bool given_up_ = false;
};

}  // namespace owt
