// The weights that the server of a parameter server has, with the optimizer that works there: what they learn from is
// the gradients that workers push. They are kept here as well.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "src/comm/communicator.h"
#include "src/train/files/checkpoint_files.h"
#include "src/train/gradient_pool.h"
#include "src/train/metrics.h"
#include "src/train/worker.h"

namespace owt {

// The job of all workers as one rank has it, which keeps all gradients.
Job job_of_one(const Job& job);

class CentralWeights {
 public:
  // job: job_of_one(); it must outlive this. Draws or loads the weights.
  explicit CentralWeights(const Job& job);

  // Updates with the sum of the gradients, which is added up in their order and in the memory of the first; those of no
  // rows count for nothing. share: of the batch that a step is made of. The weights move as far as with that share of
  // the rate, by the mean gradient of those rows, so that the decay of all shares together is that of a step.
  void update(std::span<WorkerGradient> gradients, const Step::Rates& rates, double share);
  int64_t updates() const { return updates_; }
  // What a worker that goes on by itself has after plain gradient descent with the rate times this.
  WeightSnapshot moved(const WeightSnapshot& weights, const WorkerGradient& gradient, const Step::Rates& rates,
                       double times) const;

  double l1(size_t param) const;  // the penalty of each |w| (OptimizerSettings::l1)
  L1Penalty penalty() const;

  WeightSnapshot snapshot();
  // From now on these are the other's weights, averages and optimizer's states; and the mean of others', whose shares
  // add up to 1.
  void take(CentralWeights& other);
  void average(std::span<const std::unique_ptr<CentralWeights>> others, std::span<const double> shares);
  // A checkpoint's tensors into its folder; notes their checksums. Throws Diverged for weights that are not finite.
  void save(const std::string& folder, RunState& state);

 private:
  std::vector<Tensor> tensors(size_t param);  // its value and the optimizer's states

  const Job& job_;
  std::unique_ptr<Communicator> comm_;
  Worker worker_;
  std::vector<Param*> params_;
  WeightSnapshot newest_;
  std::vector<uint64_t> versions_;  // of the parameters in it
  int64_t updates_ = 0;
};

}  // namespace owt
