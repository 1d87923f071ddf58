// Simulates a parameter server with many workers. Gradients, updates and evaluations are computed for real; their
// duration is modelled on a virtual clock. A round of one worker:
//
//   wait     until the worker may start its next task (consistency.h)
//   pull     a message to the servers; they answer after earlier work with a snapshot of the weights, which travels
//            through the servers' links (server_links.h), shared by all workers that pull at that time
//   compute  for the time of virtual_times.h; any free thread of the pool computes the gradient
//   push     the filtered gradient travels back (push_filters.h); when it arrives and completes an update, the servers
//            update the weights (virtual_learning.h)
//
// If a worker pulls or pushes only once in several tasks, it applies plain gradient descent on its own in between, and
// pushes the sum of its gradients (Downpour; Dean et al. 2012, "Large Scale Distributed Deep Networks").
//
// With blocks (delayed block proximal gradient) a task is the gradient of one block of layers, the same block for all
// workers. Only that gradient is pushed, and a pull transfers only weights that have changed.
//
// Strategies without servers run by the same clock. Their losses equal the losses of dp. Every step takes the time that
// the planner predicts, with the computation time of the slowest worker. Under local SGD each worker has weights of its
// own, which are averaged from time to time.
//
// Evaluations, the addition of gradients, and the processor time of messages take no virtual time, except what
// message_work sets. The result depends on the recipe, the seed and the options only, not on the machine or the number
// of threads.
//
// Times do not depend on the values of gradients, except through some filters. With times_only there are therefore no
// gradients and no data, and every step has all its rows.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/server/push_filters.h"
#include "src/simulate/server_links.h"
#include "src/simulate/virtual_learning.h"
#include "src/simulate/virtual_outcome.h"
#include "src/simulate/virtual_times.h"

namespace owt {

// A parameter, and the bytes of it that travel.
struct VirtualParam {
  int64_t layer = 0;  // index in the plan
  ParamRole role{};
  int64_t elements = 0;

  int64_t bytes() const { return learns(role) ? elements * size_of(DType::kF32) : 0; }
};

class VirtualRun {
 public:
  // job: made with the functions of virtual_cluster.h. All arguments must outlive this. threads: for gradients and
  // evaluations.
  VirtualRun(const Job& job, const VirtualCluster& cluster, const ComputeModel& compute, int threads);

  VirtualOutcome run();

 private:
  struct VirtualWorker {
    std::unique_ptr<BatchSource> batches;  // null with times_only
    int64_t batch = 0;                     // number of the next batch
    WeightSnapshot weights;
    int64_t has = 0;  // the number of updates in the weights that it has pulled
    Push push;
    std::future<WorkerGradient> gradient;  // the gradient of its last task, unless it is in `kept`
    std::optional<WorkerGradient> kept;    // set if the gradient is needed before it is pushed
    std::optional<PushFilter> filter;
    bool waits = true;  // for the turn of its next task
    double computing = 0, on_the_way = 0, since = 0;
    double seconds = 0;  // duration of its current task; 0: none
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
  int64_t block_of(int64_t task) const;  // a layer of the plan; 0: all layers
  bool is_of_block(size_t param, int64_t task) const;
  int64_t news(const VirtualWorker& its) const;  // bytes of weights that the worker does not have
  bool goes_alone() const;                       // without the servers, between pulls or pushes
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
  const int64_t bytes_;  // bytes of all weights, and of all gradients
  const double update_seconds_;
  double servers_free_at_ = 0;
  std::vector<int64_t> blocks_;                                // layers that learn
  std::vector<int64_t> changed_at_;                            // by parameter: the value of changes_ at its last update
  int64_t changes_ = 0;                                        // number of updates by gradients with rows
  std::map<std::pair<int, int64_t>, WorkerGradient> arrived_;  // key: worker and task
  int64_t counted_ = 0;  // number of pushes; with updates by task, including pushes that no update waits for
  std::map<int64_t, int64_t> staleness_;  // staleness -> number of gradients
  std::optional<GradientPool> pool_;      // last member, since its threads must end before the objects that they use
};

// The least memory of a run with this many threads: a network per thread, and a gradient and batches per worker.
int64_t bytes_of_simulation(const Plan& plan, int threads);

}  // namespace owt
