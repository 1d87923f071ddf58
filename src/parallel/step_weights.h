// The weights of a rank in its steps: their updates, the transfers of gradients and weights, and stashes of weights.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/core/profiler.h"
#include "src/parallel/gradient_norms.h"
#include "src/parallel/optimizer.h"
#include "src/parallel/weight_average.h"
#include "src/parallel/weight_copies.h"
#include "src/parallel/weight_ema.h"
#include "src/parallel/weight_sync.h"
#include "src/plan/action.h"
#include "src/plan/groups.h"
#include "src/plan/rank_model.h"

namespace owt {

// logits: of the rows with these indexes in the step, valid for work queued on the stream during the call. They are
// whole rows, or with a sharded loss (Plan::sharded_loss) this rank's classes.
using LogitsReceiver = std::function<void(const Tensor& logits, std::span<const int64_t> rows, const Stream& stream)>;
using MakeServed = std::function<std::unique_ptr<WeightSync>(const Plan& plan, const WeightSync::LayerOf& layer_of,
                                                             Communicator& comm, Optimizer& optimizer, uint64_t seed)>;

// What the caller of a step chooses, besides the plan.
struct StepOptions {
  uint64_t seed = 0;
  NormSettings norms = {};          // used if the plan has norms
  bool graphs = true;               // record steps as CUDA graphs, if the device and the communicator can
  bool record_collectives = false;  // also if the communicator only could; see Communicator::could_record()
  bool choose_beside = false;       // with one rank, measure in which order recorded steps update (BesideTrial)
  // Called for each round of an evaluation while it is queued, on all ranks that have its logits. Over the ranks that
  // count its rows (counts_rows()), or all ranks with a sharded loss, every logit is passed once. Recording is off.
  LogitsReceiver logits = {};
  std::string weights = {};  // evaluation: the file of the weights; empty: training
  // false: a step does not update the weights, and leaves the gradients in the parameters for the caller
  bool updates = true;
  MakeServed make_served = {};  // required if servers update the weights
  // For the error if the memory does not suffice: what would fit into this much.
  std::function<std::string(const Plan& plan, int64_t memory_bytes, int64_t step_rows)> what_fits = {};
};

class StepWeights {
 public:
  // Allocates the parameters of the model. All arguments but options must outlive this; profiler may be null.
  StepWeights(const Plan& plan, RankModel& model, Optimizer& optimizer, const Groups& groups, Profiler* profiler,
              const StepOptions& options);

  WeightSync& front() { return *front_; }
  Slice updated(const Param& param) const { return front_->updated(param); }
  WeightEma* ema() { return ema_ ? &*ema_ : nullptr; }                  // null: no averages over time are kept
  WeightAverage* average() { return average_ ? &*average_ : nullptr; }  // null: no local steps

  // A transfer of gradients, weights or norms. false: the action is another transfer. share: WeightAverage::start().
  bool start(const Action& action, const Tensor& share, const Stream& stream);
  bool wait(const Action& action, const Stream& stream);

  // The rows of the last layer's weights whose gradients updates take, if classes are sampled.
  void update_rows(const Tensor& rows);
  // gradient_scale: of the gradients; 0: there are no rows, and nothing is updated.
  void update(const Action& action, const Optimizer::Rates& rates, double gradient_scale, const Stream& stream);
  // Updates the layer's first parameter while backward computes its gradient (Action::updates).
  void update_in_backward(int64_t layer, const Optimizer::Rates& rates, double gradient_scale);
  // norm: receives the norm of the gradient (GradientNorms::settle).
  void find_norms(const Action& action, double gradient_scale, Tensor norm, const Stream& stream);

  // Weight stashes of a pipeline stage. make_copies() allocates what steps with these actions need.
  void make_copies(const std::vector<Action>& actions);
  void copy(const Action& action, const Stream& stream);
  void take(int copy) { copies_->take(copy); }
  // Poisons the stash that this action has used last.
  void poison_after(const std::vector<Action>& actions, size_t at, const Stream& stream) const;

 private:
  void leave(const Slice& layers);
  void update(const Slice& layers, const Optimizer::Rates& rates, double gradient_scale, const Stream& stream);
  void update(std::span<Param* const> params, const std::string& name, const Optimizer::Rates& rates,
              double gradient_scale, const Stream& stream);

  const Plan& plan_;
  RankModel& model_;
  Optimizer& optimizer_;
  const Groups& groups_;
  Profiler* profiler_;
  const bool updates_;                        // StepOptions::updates
  std::unique_ptr<WeightSync> front_, back_;  // for the front part and the back part
  std::optional<WeightAverage> average_;      // averages the front part, under local SGD
  std::optional<WeightEma> ema_;              // averages over time of all weights on this rank
  std::optional<WeightCopies> copies_;
  std::optional<GradientNorms> norms_;  // norms that updates wait for
  Event norms_shared_;
  std::optional<MatrixGather> matrices_;  // ranks update parts of them
};

}  // namespace owt
