// Critical-path simulation of a step: runs the actions of ranks (order.h), one after the other on each rank, given the
// duration of each action.
//
// A rank has one queue of collectives, in the order of their starts; messages in and out use separate directions. A
// collective begins when it is at the head of the queue of each of its ranks. If collectives overlap computation, a
// rank continues and waits when it needs a result that has not arrived. If they do not overlap, it waits at once. The
// waiting time is "exposed".
#pragma once

#include <optional>
#include <vector>

#include "src/plan/order.h"
#include "src/plan/plan.h"

namespace owt {

// The duration of each action in seconds.
class ActionTimes {
 public:
  virtual ~ActionTimes() = default;
  // The duration of a transfer, once all its ranks are ready, of which `rank` is one. For sums that a layer's ops wait
  // for (LayerTransfers::sums), `start` is the action of the layer.
  virtual double transfer(int rank, const Action& start) const = 0;
  // The duration of the rank's own work; for a start or a wait, its work before that.
  virtual double compute(int rank, const Action& action) const = 0;
  // The duration of the rank's work before the first action.
  virtual double before(int) const { return 0; }
};

// When an action runs, in seconds from the beginning of the step. It is a computation, an exposed wait, or the start of
// a transfer, which stands for the transfer itself without the other work of its ranks.
struct TimedAction {
  Action action;
  double begin_s = 0, end_s = 0;
  int place = 0;  // for a predicted pipeline the place in the model group, else the rank
};

// A section of the critical path of a step, from its beginning to its end. Each section waits for the one before it.
struct OnPath {
  std::optional<Action> action;  // a start stands for its transfer; none: work before the first action
  int rank = 0;                  // for a transfer, the last rank to reach it
  double begin_s = 0, end_s = 0;
};

struct StepWalk {
  struct Rank {
    double end_s = 0;
    double computed_s = 0, updated_s = 0, exposed_s = 0;
    double sent_s = 0;  // in transfers that the rank starts, hidden or exposed
    double busy_s() const { return computed_s + updated_s; }
  };
  std::vector<Rank> ranks;         // in the order of WalkedStep::ranks
  std::vector<TimedAction> times;  // without actions that take no time
  std::vector<OnPath> path;        // without gaps, as far as ranks wait for each other

  double end_s() const;  // end of the last rank
};

struct WalkedStep {
  // The ranks whose time matters; every other rank does the same as one of them at the same time. A transfer is
  // simulated among the members of its group that are listed.
  std::vector<int> ranks{};
  StepKind kind = StepKind::kSynchronous;
  bool overlaps = true;  // computation continues during a collective
  bool in_turn = true;   // nothing runs beside later actions
};
StepWalk walk(const Plan& plan, const WalkedStep& step, const ActionTimes& times);

}  // namespace owt
