// One action of a rank in a step.
#pragma once

#include <string>
#include <vector>

#include "src/core/shape.h"
#include "src/plan/plan.h"

namespace owt {

constexpr int kOwnRows = -1;  // the round of work on the rank's own rows

struct Action {
  // A layer's backward pass is two actions: kBackwardData computes the gradient of its input, which other ranks wait
  // for, and kBackwardWeights the gradients of its weights. kCopyWeights stashes the current weights, or weights that
  // SpecTrain predicts. kTakeWeights makes a stash, or the current weights, active for what follows. Updates and copies
  // always use the current weights. kAverageWeights adds the current weights to their averages over time
  // (PlanRequest::ema_every), in one of ema_every steps. kNorms comes between the gradients of a step and its updates
  // (PlanRequest::norm_sums).
  enum class Kind {
    kForward,
    kLoss,
    kBackwardData,
    kBackwardWeights,
    kUpdate,
    kStart,
    kWait,
    kCopyWeights,
    kAverageWeights,
    kNorms,
    kTakeWeights
  };
  Kind kind;
  Slice layers{};        // the layers of the plan that run or are updated
  int slice = 0;         // the micro-batch (StepRows::slices); actions done once per step belong to the last
  int round = kOwnRows;  // index of the dense batch in the micro-batch
  // kStart, kWait: the transfer. kUpdate: the transfer that summed the gradients, if any. kLoss, kNorms: the transfer
  // that this action prepares; the loss is not computed yet then, and norms only add up squares.
  TransferId transfer = kNoTransfer;
  int bucket = 0;  // index of the bucket, for transfers that move buckets
  // Later actions need not wait for this one: a GPU runs it in a stream of its own; the CPU still runs it in order.
  bool beside = false;
  bool updates = false;       // kBackwardWeights: the weights are updated while their gradient is computed
  int copy = kNewestWeights;  // kCopyWeights, kTakeWeights: the number of the stash
  int ahead = 0;              // kCopyWeights: number of updates that are predicted

  bool moves_bytes() const { return kind == Kind::kStart || kind == Kind::kWait; }
  // Whether the action follows the gradients of a step.
  bool is_of_weights() const {
    return kind == Kind::kUpdate || kind == Kind::kCopyWeights || kind == Kind::kAverageWeights || kind == Kind::kNorms;
  }

  bool operator==(const Action&) const = default;
};
const char* name_of(Action::Kind kind);  // "forward", "backward data", ...

int weight_copies(const std::vector<Action>& actions);  // the number of weight stashes that the list makes for a stage

// The transfer that an action makes while it runs, and waits for: sums over all rows of the step (rank_sums.h), or
// matrices that an update needs whole. kNoTransfer: none; for kStart and kWait too.
TransferId transfer_inside(const Plan& plan, const Action& action);

// The subject of an action, for people: layers by name, a transfer by its label and bucket.
std::string subject(const Plan& plan, const Action& action);
// The list, one line per action.
std::string action_text(const Plan& plan, const std::vector<Action>& actions);

}  // namespace owt
