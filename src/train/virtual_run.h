// A parameter server with many workers, simulated: gradients, updates and evaluations are computed, the time that all
// of it would take passes on a virtual clock. A round of one worker:
//
//   may it start its next task (consistency.h)? else it waits
//   pull     a message to the servers, which answer when they are done with what came before: a snapshot of the weights
//            travels through the servers' links (server_links.h), which all who pull at that time share
//   compute  as long as virtual_times.h says; the gradient itself is computed meanwhile, by whichever thread of the
//            pool is free
//   push     the gradient travels back, filtered (push_filters.h); when it is there the servers update the weights
//            (virtual_learning.h), if it completes an update
//
// Where a worker pulls, or pushes, only once in several tasks, it goes on by itself between them, with plain gradient
// descent, and pushes the sum of its gradients (Downpour; Dean et al. 2012, "Large Scale Distributed Deep Networks").
//
// With blocks (delayed block proximal gradient) a task is the gradient of one block of layers, the same one for all
// workers; only that is pushed, and a pull brings what has changed.
//
// A strategy without servers runs in the same clock: its workers have the losses of dp, and every step takes what the
// planner says, with the computation of the slowest worker in it. Under local SGD each has weights of its own, which
// are averaged every so many steps.
//
// What a message costs the processors, the time to add gradients up and evaluations take no virtual time. Everything is
// a function of the recipe, the seed and the options: not of the machine, nor of the threads that compute.
//
// Nothing of all that depends on the values of gradients, but for what some filters leave out. So where only times are
// wanted there are none, and no data: every step has all its rows.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/train/server_links.h"
#include "src/train/virtual_learning.h"
#include "src/train/virtual_times.h"

namespace owt {

struct VirtualOutcome {
  bool finished = true;  // false: stopped by a signal
  Evaluation evaluation{};
  double seconds = 0;  // virtual
  SimulationRecord record{};
};

// What of the model travels.
struct VirtualParam {
  int64_t layer = 0;  // of the plan
  ParamRole role{};
  int64_t elements = 0;

  int64_t bytes() const { return learns(role) ? elements * size_of(DType::kF32) : 0; }
};

class VirtualRun {
 public:
  // job: with the two above. All must outlive this. threads: that compute gradients and evaluations.
  VirtualRun(const Job& job, const VirtualCluster& cluster, const ComputeModel& compute, int threads);

  VirtualOutcome run();

 private:
  struct VirtualWorker {
    std::unique_ptr<BatchSource> batches;  // none: only times are wanted
    int64_t batch = 0;                     // that comes next
    WeightSnapshot weights;
    int64_t has = 0;  // the updates that made the servers' weights which it pulled
    Push push;
    std::future<WorkerGradient> gradient;  // of its last task, or
    std::optional<WorkerGradient> kept;    // where it looks at it before it is pushed
    std::optional<PushFilter> filter;
    bool waits = true;  // for its next task's turn
    double computing = 0, on_the_way = 0, since = 0;
    double seconds = 0;  // that the task takes which it computes; 0: none
    int64_t tasks = 0;
  };
  VirtualWorker& at(int worker) { return workers_[static_cast<size_t>(worker)]; }

  static std::vector<VirtualWorker> workers_of(const Job& job, const VirtualCluster& cluster);
  void start_who_may();
  void pull(int worker);
  void answer(int worker);
  void read(VirtualWorker& its, int worker);
  void compute(int worker);
  int64_t begin(VirtualWorker& its, int worker);
  void computed(int worker);
  void push(int worker);
  int64_t filter(VirtualWorker& its);
  int64_t sent_of(VirtualWorker& its, size_t param);
  Penalised penalised(const VirtualWorker& its, size_t param) const;
  void arrive(int worker);
  void update(const std::vector<Push>& with);
  void note_change(int64_t task, const std::vector<WorkerGradient>& by);
  void change_rules();
  int64_t block_of(int64_t task) const;  // a layer of the plan; 0: all of them from there on
  bool is_of_block(size_t param, int64_t task) const;
  int64_t news(const VirtualWorker& its) const;  // bytes of what it has not
  bool goes_alone() const;                       // between pulls, or pushes
  void write_start();
  SimulationRecord summary();
  int64_t per_epoch() const;

  const Job& job_;
  const VirtualCluster& cluster_;
  const ComputeModel& compute_;
  std::vector<VirtualWorker> workers_;
  VirtualLearning learning_;
  VirtualTimes times_;
  Consistency consistency_;
  VirtualClock clock_;
  ServerLinks links_;
  Stream host_;
  const std::vector<VirtualParam> params_;
  const int64_t bytes_;  // of all weights, and of all gradients
  const double update_seconds_;
  double servers_free_at_ = 0;
  std::vector<int64_t> blocks_;                                // layers that learn
  std::vector<int64_t> changed_at_;                            // by parameter: the number of its last update
  int64_t changes_ = 0;                                        // updates by gradients of any rows
  std::map<std::pair<int, int64_t>, WorkerGradient> arrived_;  // by worker and task
  int64_t counted_ = 0;                   // pushes; where they are gathered by task, those that nobody waits for too
  std::map<int64_t, int64_t> staleness_;  // gradients by it
  std::optional<GradientPool> pool_;      // last, since it must end before what its gradients are of
};

// What a run takes at least on so many threads: a network on each of them, and a gradient and batches of each worker.
int64_t bytes_of_simulation(const Plan& plan, int threads);

}  // namespace owt
