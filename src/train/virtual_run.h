// A parameter server with many workers, simulated: gradients, updates and evaluations are computed, the time that all
// of it would take passes on a virtual clock. A round of one worker:
//
//   may it start its next task (consistency.h)? else it waits
//   pull     a message to the servers, which answer when they are done with what came before: a snapshot of the weights
//            travels through the servers' links, which all who pull at that time share
//   compute  as long as the cost model says, times the worker's slowness; the gradient itself is computed meanwhile, by
//            whichever thread of the pool is free
//   push     the gradient travels back, filtered (push_filters.h); when it is there the servers update the weights, if
//            it completes an update
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
// Each of S servers has an S-th of every tensor, so that they take turns in nothing and are one server with S links.
// Where workers serve, each has a K-th, which does not travel to itself, and one link each way for all that does.
// What a message costs the processors, the time to add gradients up and evaluations take no virtual time. Everything is
// a function of the recipe, the seed and the options: not of the machine, nor of the threads that compute.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/parallel/virtual_clock.h"
#include "src/train/central_weights.h"
#include "src/train/metrics.h"
#include "src/train/progress.h"
#include "src/train/virtual_cluster.h"

namespace owt {

struct VirtualOutcome {
  bool finished = true;  // false: stopped by a signal
  Evaluation evaluation{};
  double seconds = 0;  // virtual
  SimulationRecord record{};
};

class VirtualRun {
 public:
  // job: with the two above. All must outlive this. threads: that compute gradients.
  VirtualRun(const Job& job, const VirtualCluster& cluster, const ComputeModel& compute, int threads);

  VirtualOutcome run();

 private:
  struct VirtualWorker {
    std::unique_ptr<BatchSource> batches;
    int64_t batch = 0;  // that comes next
    WeightSnapshot weights;
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

  void start_who_may();
  bool workers_serve() const { return cluster_.servers == kOnWorkers; }
  int64_t that_travel(int64_t bytes) const;
  SharedLinks::Way way(int worker, bool to_servers) const;
  void pull(int worker);
  void answer(int worker);
  void read(VirtualWorker& its, int worker);
  void compute(int worker);
  void computed(int worker);
  void push(int worker);
  int64_t filter(VirtualWorker& its);
  void arrive(int worker);
  void update(const std::vector<Push>& with);
  void count(const std::vector<Push>& with);
  void finish_step();
  void change_rules();
  int64_t block_of(int64_t task) const;  // a layer of the plan; 0: all of them from there on
  void drop_other_blocks(WorkerGradient& gradient, int64_t task) const;
  int64_t news(const VirtualWorker& its, const WeightSnapshot& now) const;  // bytes of what it has not
  bool learns_locally(int64_t task) const;
  bool averages_after(int64_t task) const;
  void learn_locally(const std::vector<Push>& with, std::vector<WorkerGradient>& gradients);
  Penalised penalised(const VirtualWorker& its, size_t param) const;
  void evaluate_and_save();
  void evaluate();
  void save();
  void record();
  void write_start();
  SimulationRecord summary() const;

  bool goes_alone() const;  // between pulls, or pushes
  double compute_seconds(int64_t rows, int64_t from_layer);
  double slowness(int worker, int64_t task) const;
  double seconds_of_step(int64_t task) const;  // as planned
  Step::Rates rates() const;
  bool is_over() const { return state_.step >= total_steps_ || out_of_patience(); }
  bool out_of_patience() const;
  bool comes_round(int64_t step, int64_t every_epochs, int64_t every_steps) const;  // after so many steps
  bool evaluates_after(int64_t step) const;
  bool saves_after(int64_t step) const;
  int64_t per_epoch() const { return workers_.front().batches->steps_per_epoch(); }

  const Job& job_;
  const VirtualCluster& cluster_;
  int threads_;
  const ComputeModel& compute_;
  Job central_job_;
  CentralWeights central_;
  // Under local SGD: what each worker has, and the rows that it has learnt from since the last average; none: the
  // central weights are everyone's.
  std::vector<std::unique_ptr<CentralWeights>> local_;
  std::vector<int64_t> local_rows_;
  Schedule schedule_;
  Consistency consistency_;
  VirtualClock clock_;
  SharedLinks links_;
  int64_t to_servers_ = 0, to_workers_ = 0;  // bytes that have left
  Stream host_;
  int64_t bytes_ = 0;  // of all weights, and of all gradients
  double update_seconds_ = 0, servers_free_at_ = 0;
  std::map<std::pair<int64_t, int64_t>, double> seconds_;  // by rows and layer
  std::vector<int64_t> blocks_;                            // layers that learn
  std::vector<int64_t> layer_of_;                          // of each parameter
  std::vector<VirtualWorker> workers_;
  std::map<std::pair<int, int64_t>, WorkerGradient> arrived_;  // by worker and task
  RunState state_;
  double rate_ = 0;  // of the last update
  int64_t total_steps_ = 0, saved_step_ = -1;
  int64_t counted_ = 0;                   // pushes; where they are gathered by task, those that nobody waits for too
  std::map<int64_t, int64_t> staleness_;  // gradients by it
  // Since the last step that was finished, and since the last that was recorded.
  LossSums sums_;
  int64_t images_ = 0;
  double recorded_at_ = 0;
  Evaluation last_evaluation_;
  MetricsLog metrics_;
  CheckpointWriter checkpoints_;
  Progress progress_;
  GradientPool pool_;  // last, since it must end before what its gradients are of
};

}  // namespace owt
