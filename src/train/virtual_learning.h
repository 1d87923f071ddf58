// What a virtual run learns from the gradients of its workers: the weights that the servers have or, under local SGD,
// each worker; and what follows a step, as in a run in earnest: a record, an evaluation, a checkpoint. It takes no
// virtual time. Where only times are wanted there are no weights, and records have no losses.
#pragma once

#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "src/parallel/consistency.h"
#include "src/train/central_weights.h"
#include "src/train/metrics.h"
#include "src/train/progress.h"
#include "src/train/schedule.h"
#include "src/train/virtual_cluster.h"

namespace owt {

class VirtualLearning {
 public:
  // Both must outlive this.
  VirtualLearning(const Job& job, const VirtualCluster& cluster, int64_t steps_per_epoch);

  int64_t step() const { return state_.step; }  // that are finished
  double epochs() const;                        // the same
  bool is_over() const { return state_.step >= total_steps_ || out_of_patience(); }
  const Evaluation& last_evaluation() const { return last_evaluation_; }
  // Opens what is written, before the first step; not where there is no run folder.
  void open_files();
  // At the end: throws NoRoom where the disk was too full for the last checkpoint, or for lines of metrics.
  void check_that_all_is_written() const;
  MetricsLog* metrics() { return metrics_.get(); }  // null: none are written

  WeightSnapshot weights_of(int worker);  // the servers', but under local SGD
  double l1(size_t param) const { return central_->l1(param); }
  // What a worker that goes on by itself has after plain gradient descent.
  WeightSnapshot moved(const WeightSnapshot& weights, const WorkerGradient& gradient,
                       const ConsistencyRules& rules) const;

  // An update by the gradients of these pushes.
  void update(const std::vector<Push>& with, std::vector<WorkerGradient>& gradients, const ConsistencyRules& rules);
  // As many gradients as there are workers are a step, whoever computed them. now: virtual seconds. evaluator: null
  // where nothing is learnt.
  void finish_step(double now, GradientPool* evaluator);

 private:
  bool learns_locally(int64_t task) const;
  bool averages_after(int64_t task) const;
  void learn_locally(const std::vector<Push>& with, std::vector<WorkerGradient>& gradients, const Step::Rates& rates);
  Step::Rates rates(const ConsistencyRules& rules) const;
  bool out_of_patience() const;
  bool comes_round(int64_t step, int64_t every_epochs, int64_t every_steps) const;  // after so many steps
  bool evaluates_after(int64_t step) const;
  bool saves_after(int64_t step) const;
  void record(double now);
  void evaluate(double now, GradientPool& evaluator);
  void save();

  const Job& job_;
  const VirtualCluster& cluster_;
  const int64_t per_epoch_;
  Job central_job_;
  std::unique_ptr<CentralWeights> central_;  // none: nothing is learnt
  // Under local SGD: what each worker has, and the rows that it has learnt from since the last average; none: the
  // central weights are everyone's.
  std::vector<std::unique_ptr<CentralWeights>> local_;
  std::vector<int64_t> local_rows_;
  Schedule schedule_;
  RunState state_;
  int64_t total_steps_, saved_step_ = -1, unsaved_step_ = -1, unnoted_step_ = -1;
  double rate_ = NAN;  // of the last update
  // Since the last step that was finished, and since the last that was recorded.
  LossSums sums_;
  int64_t images_ = 0;
  double recorded_at_ = 0;
  Evaluation last_evaluation_{};
  std::unique_ptr<MetricsLog> metrics_;
  std::optional<CheckpointWriter> checkpoints_;
  Progress progress_;
};

}  // namespace owt
