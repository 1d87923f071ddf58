// The duration of tasks of simulated workers: the computation time of the cost model, multiplied by a slowness that
// depends on the seed, the worker and the task.
#pragma once

#include <map>
#include <utility>

#include "src/predict/compute_model.h"
#include "src/simulate/virtual_cluster.h"
#include "src/train/job.h"

namespace owt {

class VirtualTimes {
 public:
  // All arguments must outlive this.
  VirtualTimes(const Job& job, const VirtualCluster& cluster, const ComputeModel& compute)
      : job_(job), cluster_(cluster), compute_(compute) {}

  // Seconds in which a worker computes the gradient of `rows` rows down to a layer; 0: of all layers.
  double of_task(int worker, int64_t task, int64_t rows, int64_t from_layer);
  // For planned steps: the computation of one worker, and the whole step with the slowest worker.
  double of_planned_task(int worker, int64_t task) const;
  double of_planned_step(int64_t task) const;
  // The processor time of messages that a worker has sent and received, which delays its next task.
  double of_messages(int worker, int64_t next_task, double bytes) const;
  double of_update() const;  // every server updates its part at the same time

 private:
  double compute_seconds(int64_t rows, int64_t from_layer);
  double slowness(int worker, int64_t task) const;

  const Job& job_;
  const VirtualCluster& cluster_;
  const ComputeModel& compute_;
  std::map<std::pair<int64_t, int64_t>, double> known_;  // key: rows and layer
};

}  // namespace owt
