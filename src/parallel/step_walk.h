// A step that is walked through: the actions of ranks (order.h), one after the other on each, given how long each takes
// by itself.
//
// A rank has one queue of collectives, first come first served; messages into it and out of it pass each other. A
// collective begins when the last of its ranks has come to it, and is at the head of the queue of each. Where
// collectives work while ranks compute, a rank goes on, and waits where it needs what has not arrived; where not, it
// waits at once. That time is "exposed".
#pragma once

#include <optional>
#include <vector>

#include "src/parallel/order.h"
#include "src/parallel/plan.h"

namespace owt {

// Seconds that actions take by themselves.
class ActionTimes {
 public:
  virtual ~ActionTimes() = default;
  // From when all who take part are ready, of whom this rank is one, to the end. Of sums that a layer's ops wait for
  // while they run (LayerTransfers::sums) it is the layer's action that starts them.
  virtual double transfer(int rank, const Action& start) const = 0;
  // What the rank itself does; of a start or a wait what it does besides, before it.
  virtual double compute(int rank, const Action& action) const = 0;
  // What the rank does before the first action.
  virtual double before(int) const { return 0; }
};

// When an action runs, in seconds from the step's beginning: one that computes, a wait that is exposed, or, for the
// start of a transfer, the transfer itself, without what its ranks do besides.
struct TimedAction {
  Action action;
  double begin_s = 0, end_s = 0;
  int place = 0;  // whose action it is: of a predicted pipeline the place in its model group, else the rank
};

// A part of the longest way through a step, from its beginning to its end, on which everything waits for what is before
// it.
struct OnPath {
  std::optional<Action> action;  // a start: the transfer; none: what comes before the first action
  int rank = 0;                  // of a transfer: that came to it last
  double begin_s = 0, end_s = 0;
};

struct StepWalk {
  struct Rank {
    double end_s = 0;
    double computed_s = 0, updated_s = 0, exposed_s = 0;
    double sent_s = 0;  // by transfers it starts, hidden or not
    double busy_s() const { return computed_s + updated_s; }
  };
  std::vector<Rank> ranks;         // in the order of WalkedStep::ranks
  std::vector<TimedAction> times;  // none of those that take no time
  std::vector<OnPath> path;        // without gaps, as far as ranks wait for each other

  double end_s() const;  // of the last rank
};

struct WalkedStep {
  // Those whose time matters; the others do the same at the same time as one of them. Transfers are among those of
  // their group that are here.
  std::vector<int> ranks{};
  StepKind kind = StepKind::kSynchronous;
  bool overlaps = true;  // computation goes on while a collective is under way
  bool in_turn = true;   // nothing is done beside what follows it
};
StepWalk walk(const Plan& plan, const WalkedStep& step, const ActionTimes& times);

}  // namespace owt
