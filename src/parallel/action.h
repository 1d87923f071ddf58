// One thing that a rank does in a step.
#pragma once

#include <string>
#include <vector>

#include "src/core/shape.h"
#include "src/parallel/plan.h"

namespace owt {

constexpr int kOwnRows = -1;  // the round of work on the rank's own rows

struct Action {
  // A layer's backward comes in two parts: the gradient of its input, which others wait for, and those of its weights.
  // Of weights: a copy of the newest ones, or of what they are predicted to become, is made; a copy takes their place
  // for what follows, or the newest ones come back, which are there for every update and every copy. Averages of
  // weights over time (PlanRequest::ema_every) take in the newest ones, in one of so many steps. Norms come between the
  // gradients of a step and its updates (PlanRequest::norm_sums).
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
  Slice layers{};        // of the plan: those that run or are updated
  int slice = 0;         // of the step (StepRows); what is done once belongs to the last one
  int round = kOwnRows;  // which dense batch of the slice
  // kStart, kWait; kUpdate: what summed the gradients, where anything did; kLoss, kNorms: that it prepares, and then it
  // is not the loss itself, and only squares are added up.
  TransferId transfer = kNoTransfer;
  int bucket = 0;  // which part of a transfer that moves buckets
  // The actions behind it need not wait for it: a GPU runs it in a stream of its own, the CPU all the same in turn.
  bool beside = false;
  bool updates = false;       // kBackwardWeights: the weights are updated as their gradient is computed
  int copy = kNewestWeights;  // kCopyWeights, kTakeWeights: the number of the copy
  int ahead = 0;              // kCopyWeights: updates that are predicted

  bool moves_bytes() const { return kind == Kind::kStart || kind == Kind::kWait; }
  // What comes behind the gradients of a step.
  bool is_of_weights() const {
    return kind == Kind::kUpdate || kind == Kind::kCopyWeights || kind == Kind::kAverageWeights || kind == Kind::kNorms;
  }

  bool operator==(const Action&) const = default;
};
const char* name_of(Action::Kind kind);  // "forward", "backward data", ...

int weight_copies(const std::vector<Action>& actions);  // the copies of a stage's weights that the list makes

// What an action is about, for people: layers by their names, a transfer by its label and bucket.
std::string subject(const Plan& plan, const Action& action);
// The list, a line for each action.
std::string action_text(const Plan& plan, const std::vector<Action>& actions);

}  // namespace owt
