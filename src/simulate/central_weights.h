// The weights and the optimizer of a simulated parameter server. They learn from the gradients that workers push.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "src/comm/communicator.h"
#include "src/files/checkpoint_files.h"
#include "src/simulate/gradient_pool.h"
#include "src/train/metrics.h"
#include "src/train/worker.h"

namespace owt {

// The job of all workers as a single rank, which stores all gradients.
Job job_of_one(const Job& job);

class CentralWeights {
 public:
  // job: job_of_one(); it must outlive this. Draws or loads the weights.
  explicit CentralWeights(const Job& job);

  // Updates with the sum of the gradients, which is computed in order in the memory of the first one with rows.
  // Gradients without rows are ignored. share: the fraction of a step's batch. The rate is multiplied by it, and the
  // gradient is the mean over the rows, so that all shares together decay the weights once per step.
  void update(std::span<WorkerGradient> gradients, const Step::Rates& rates, double share);
  int64_t updates() const { return updates_; }
  // A worker's weights after plain gradient descent on its own, with the rate multiplied by `times`.
  WeightSnapshot moved(const WeightSnapshot& weights, const WorkerGradient& gradient, const Step::Rates& rates,
                       double times) const;

  double l1(size_t param) const;  // the penalty of each |w| (OptimizerSettings::l1)
  L1Penalty penalty() const;

  WeightSnapshot snapshot();
  // take(): copies another's weights, averages and optimizer state. average(): their mean over others, whose shares
  // must sum to 1.
  void take(CentralWeights& other);
  void average(std::span<const std::unique_ptr<CentralWeights>> others, std::span<const double> shares);
  // Writes a checkpoint's tensors into its folder, and their checksums into the state. Throws Diverged if weights are
  // not finite.
  void save(const std::string& folder, RunState& state);

 private:
  std::vector<Tensor> tensors(size_t param);  // its value and the optimizer state

  const Job& job_;
  std::unique_ptr<Communicator> comm_;
  Worker worker_;
  std::vector<Param*> params_;
  WeightSnapshot newest_;
  std::vector<uint64_t> versions_;  // versions of the parameters in newest_
  int64_t updates_ = 0;
};

}  // namespace owt
