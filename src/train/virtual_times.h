// How long the tasks of virtual workers take: what the cost model says of the computation, times a worker's slowness,
// which is a function of the seed, the worker and the task.
#pragma once

#include <map>
#include <utility>

#include "src/parallel/compute_model.h"
#include "src/train/job.h"
#include "src/train/virtual_cluster.h"

namespace owt {

class VirtualTimes {
 public:
  // All must outlive this.
  VirtualTimes(const Job& job, const VirtualCluster& cluster, const ComputeModel& compute)
      : job_(job), cluster_(cluster), compute_(compute) {}

  // Seconds. Of a worker that computes the gradient of so many rows down to a layer; 0: of all layers.
  double of_task(int worker, int64_t task, int64_t rows, int64_t from_layer);
  // Of a planned step: a worker's computation in it, and all of it, with the slowest worker's.
  double of_planned_task(int worker, int64_t task) const;
  double of_planned_step(int64_t task) const;
  // Of the messages that a worker has sent and received, which it works for before its next task.
  double of_messages(int worker, int64_t next_task, double bytes) const;
  double of_update() const;  // in which every server updates its part at the same time

 private:
  double compute_seconds(int64_t rows, int64_t from_layer);
  double slowness(int worker, int64_t task) const;

  const Job& job_;
  const VirtualCluster& cluster_;
  const ComputeModel& compute_;
  std::map<std::pair<int64_t, int64_t>, double> known_;  // by rows and layer
};

}  // namespace owt
