// A WeightSync whose weights servers update: what a step calls. The servers are src/server/parameter_server.h.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "src/parallel/sharded_update.h"
#include "src/plan/step_result.h"

namespace owt {

// Data of the step that a gradient belongs to.
struct PushedFor {
  double weights = 0, biases = 0;  // learning rates
  double sgd_share = 1;            // OptimizerSettings::sgd_share()
  double share = 1;                // fraction of the step's rows that the gradient covers
};

// What a worker sends to every server before its gradients, as f64 values in this order: kToldBytes.
struct ToldOfStep {
  ResultSums sums{};  // over the worker's rows
  PushedFor pushed{};
};

class ServedSync : public UpdateInShares {
 public:
  // Called by several threads at the same time, with different parts. scale: of the parts' gradients. The parts bring
  // values of their own.
  using Update =
      std::function<void(std::span<const ParamPart> parts, const PushedFor& pushed, double scale, int64_t updates)>;
  // Collective. The communicator must outlive the result.
  using Make =
      std::function<std::unique_ptr<ServedSync>(const Plan& plan, const LayerOf& layer_of, Communicator& comm)>;

  using UpdateInShares::UpdateInShares;

  // Call before the first step.
  virtual void update_with(Update update) = 0;
  virtual void go_on_after(int64_t updates) = 0;
  // Call before the first step if the plan filters pushes. This object holds the residuals of the filters, so a resumed
  // run starts without any. penalty: the penalty of each |w| of a parameter, for the KKT filter.
  virtual void filter_with(uint64_t seed, std::function<double(const Param&)> penalty) = 0;

  // Call in every step before its gradients. step: the run's step number, from which filters draw random numbers.
  virtual void tell(const ToldOfStep& told, int64_t step) = 0;
  // Returns the sums over all ranks of the oldest step not returned yet; waits until all ranks have sent them.
  virtual ResultSums take_sums() = 0;
  virtual void push_own(int bucket) = 0;  // call after wait_for_gradients()

  // Collective, between steps, after the same number of steps on all ranks. Afterwards every gradient is in the
  // weights, and all ranks have the same weights. Do not write to a rank's weights before: servers may still send them
  // as answers.
  virtual void settle(const Stream& stream) = 0;
  // Collective, after settle(): the weights are what the parameters hold, which must be the same on all ranks.
  virtual void take_values() = 0;

  // If the loss of ranks is tolerated (comm/processes.h): the workers that all ranks must continue without. Rank 0
  // decides, so the result is the same on all ranks. Collective, between steps, before settle(), and by messages alone,
  // so that an earlier loss does no harm. If the result is not empty, neither settle() nor another step may follow.
  // Instead, a new object of the remaining ranks must take() the weights of this one.
  virtual std::vector<int> meet() = 0;
  // Collective over the ranks of this object: takes the weights that the servers of `before` have. This object must not
  // have served yet, and must have as many servers, the same processes.
  virtual void take(ServedSync& before, const Stream& stream) = 0;

  virtual int64_t updates() const = 0;  // number of updates at the last settle()
};

}  // namespace owt
