// A range of weights on the rank that serves it: gradients come to it from workers, one by one; when they complete an
// update (consistency.h) the weights are updated with their sum; and a worker whose gradient has come is answered with
// the weights as soon as it may start its next task. So a push is the request for the next weights as well, and which
// task and which weights it is of is known by counting. What is called by several threads says so.
//
// Sums are taken in the order of the workers where an update is made of one task's gradients, else as they come.
// Source: Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server", range push and pull.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "src/core/tensor.h"
#include "src/parallel/consistency.h"

namespace owt {

// Of the step that a gradient is of.
struct PushedFor {
  double weights = 0, biases = 0;  // learning rates
  double sgd_share = 1;            // OptimizerSettings::sgd_share()
  double share = 1;                // of the step's rows, that the gradient is of
};

// What an update is told. Its gradient is the mean over the rows of `share` steps, times `share`.
struct ServedUpdate {
  Tensor gradient{};  // the sum, f32, as long as the range
  Tensor weights{};   // to be updated
  PushedFor pushed{};
  int64_t updates = 0;  // that the weights have had
};

constexpr int kNoWorker = -1;

class WeightRange {
 public:
  using Update = std::function<void(const ServedUpdate& update)>;
  // A worker other than the rank's own gets these weights. They stay what they are until its next push.
  using Answer = std::function<void(int worker, const Tensor& weights)>;

  // mine: the range among the weights that the worker `own` of this rank computes with, f32 on the CPU; kNoWorker: it
  // computes with none, and only others push. Synchronously
  // they are updated there, since nobody computes with others. update and answer are called by whoever pushes, one at a
  // time.
  WeightRange(int workers, int own, const ConsistencyRules& rules, const Tensor& mine, Update update, Answer answer);

  // Tensors as long as the range that it has in memory beside `mine`, where as many pushes wait as ever can.
  static int64_t tensors(int workers, int own, const ConsistencyRules& rules);

  // Before the first push: the weights are those of `mine`, and every worker starts its first task. updates: that they
  // have had.
  void begin(int64_t updates);
  // Memory for a gradient that is to come; push() takes it back. By any thread.
  Tensor memory();
  // The gradient of the worker's task. By any thread, those of one worker by one at a time.
  void push(int worker, const Tensor& gradient, const PushedFor& pushed);
  // The same of the rank's own worker, whose gradient is only borrowed: synchronously until await() returns.
  void push_own(const Tensor& gradient, const PushedFor& pushed);
  // The worker was lost: nobody waits for it any more, and it gets no answers. By any thread, once it pushes no more.
  void forget(int worker);
  // The rank's own worker waits until it may start its next task; then `mine` are the weights. Throws Aborted after
  // give_up().
  void await();
  // From now on await() throws. By any thread.
  void give_up();

  // All workers have pushed all of their tasks, and begin the next ones with what is in `mine` then on every rank: with
  // these weights, which every gradient has updated that has come.
  void settle();
  // Behind it, and before the next push: the weights are those of `mine` from here on.
  void take_mine();

  int64_t updates() const;
  // Gradients that the weights were updated with, by how many updates these had had since the gradient's were read.
  const std::map<int64_t, int64_t>& staleness() const { return staleness_; }  // while nobody pushes

 private:
  struct Worker {
    int64_t task = 0, read = 0;  // that it computes; the updates that its weights had had
    bool waits = false;          // for its next task
    Tensor weights{};            // that it was answered with
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

  const ConsistencyRules rules_;
  const int own_;
  const Update update_;
  const Answer answer_;
  Tensor mine_, weights_;  // the same in place

  mutable std::mutex mutex_;  // guards what follows, and the weights
  std::condition_variable changed_;
  Consistency consistency_;
  std::vector<Worker> workers_;
  std::map<std::pair<int, int64_t>, Arrived> arrived_;  // by worker and task
  std::vector<Tensor> free_;
  int64_t before_ = 0;  // updates before begin()
  bool lacks_workers_ = false;
  std::map<int64_t, int64_t> staleness_;
  bool given_up_ = false;
};

}  // namespace owt
