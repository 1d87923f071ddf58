// The training state of a simulated run: the weights of the servers or, under local SGD, of each worker. It handles the
// end of a step as a real run does: record, evaluation, checkpoint. None of this takes virtual time. With times_only
// there are no weights, and records have no losses.
#pragma once

#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "src/plan/consistency.h"
#include "src/recipe/schedule.h"
#include "src/simulate/central_weights.h"
#include "src/simulate/virtual_cluster.h"
#include "src/train/metrics.h"
#include "src/train/progress.h"

namespace owt {

class VirtualLearning {
 public:
  // Job and cluster must outlive this.
  VirtualLearning(const Job& job, const VirtualCluster& cluster, int64_t steps_per_epoch);

  int64_t step() const { return state_.step; }  // number of finished steps
  double epochs() const;                        // finished steps in epochs
  bool is_over() const { return state_.step >= total_steps_ || out_of_patience(); }
  const Evaluation& last_evaluation() const { return last_evaluation_; }
  // Opens the output files, before the first step; does nothing without a run folder.
  void open_files();
  // At the end: throws NoRoom if the disk was too full for the last checkpoint, or for metrics.
  void check_that_all_is_written() const;
  MetricsLog* metrics() { return metrics_.get(); }  // null: no metrics are written

  WeightSnapshot weights_of(int worker);  // the servers' weights; under local SGD the worker's
  double l1(size_t param) const { return central_->l1(param); }
  // A worker's weights after a step of plain gradient descent without the servers.
  WeightSnapshot moved(const WeightSnapshot& weights, const WorkerGradient& gradient,
                       const ConsistencyRules& rules) const;

  // Updates with the gradients of these pushes.
  void update(const std::vector<Push>& with, std::vector<WorkerGradient>& gradients, const ConsistencyRules& rules);
  // Ends a step: as many gradients as there are workers, whichever workers computed them. now: virtual seconds.
  // evaluator: null with times_only.
  void finish_step(double now, GradientPool* evaluator);

 private:
  bool learns_locally(int64_t task) const;
  bool averages_after(int64_t task) const;
  void learn_locally(const std::vector<Push>& with, std::vector<WorkerGradient>& gradients, const Step::Rates& rates);
  Step::Rates rates(const ConsistencyRules& rules) const;
  bool out_of_patience() const;
  // whether one is due after this step
  bool comes_round(int64_t step, int64_t every_epochs, int64_t every_steps) const;
  bool evaluates_after(int64_t step) const;
  bool saves_after(int64_t step) const;
  void record(double now);
  void evaluate(double now, GradientPool& evaluator);
  void save();

  const Job& job_;
  const VirtualCluster& cluster_;
  const int64_t per_epoch_;
  Job central_job_;
  std::unique_ptr<CentralWeights> central_;  // null with times_only
  // Under local SGD: the weights of each worker, and its rows since the last average. Empty: all use central_.
  std::vector<std::unique_ptr<CentralWeights>> local_;
  std::vector<int64_t> local_rows_;
  Schedule schedule_;
  RunState state_;
  int64_t total_steps_, saved_step_ = -1, unsaved_step_ = -1, unnoted_step_ = -1;
  double rate_ = NAN;  // rate of the last update
  // Sums since the last finished step; images since the last record.
  LossSums sums_;
  int64_t images_ = 0;
  double recorded_at_ = 0;
  Evaluation last_evaluation_{};
  std::unique_ptr<MetricsLog> metrics_;
  std::optional<CheckpointWriter> checkpoints_;
  Progress progress_;
};

}  // namespace owt
