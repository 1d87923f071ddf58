// When the workers of a parameter server may go on, and which gradients an update of its weights is made of: rules on
// whole numbers, the same for virtual workers and for real ones.
//
// Every worker has tasks 0, 1, 2, ...: to compute the gradient of its part of batch t and push it. A task is finished
// when the weights have been updated with its gradient, or, where that may have to wait for another task of the same
// worker (pushes > 0), when its gradient has come.
//   delay     task t starts when the tasks before t - delay are finished, those of all workers but the `backup`
//             slowest. 0: sequential; kNoBound: eventual. A worker leads the slowest by at most so many tasks (SSP).
//   pushes    0: an update is made of the gradients of one task number, as soon as those of all workers but `backup`
//             are there; the others are dropped when they come, and a worker that is late goes on with the newest task.
//             n > 0: of any n gradients, in the order in which they come (n = 1: asynchronous; more: softsync).
// With delay = 0, pushes = 0 and backup = 0 it is synchronous SGD.
//
// Sources: bounded delay, sequential, eventual: Li et al. 2014, "Scaling Distributed Machine Learning with the
// Parameter Server", section 3.5; SSP: Ho et al. 2013, "More Effective Distributed ML via a Stale Synchronous Parallel
// Parameter Server"; softsync: Zhang et al. 2016, "Staleness-aware Async-SGD for Distributed Deep Learning" (whose
// n-softsync waits for workers / n of them); backup workers: Chen et al. 2016, "Revisiting Distributed Synchronous
// SGD".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace owt {

constexpr int64_t kNoBound = -1;

struct ConsistencyRules {
  int64_t delay = 0;   // >= 0, or kNoBound
  int64_t pushes = 0;  // >= 0
  int backup = 0;      // workers that nobody waits for, fewer than there are

  bool by_task() const { return pushes == 0; }
  bool synchronous() const { return delay == 0 && by_task(); }
  std::string text() const;  // for people
  bool operator==(const ConsistencyRules&) const = default;
};

struct Push {
  int worker = 0;
  int64_t task = 0;
  int64_t read = 0;  // updates that the weights had had with which it was computed

  bool operator==(const Push&) const = default;
};

class Consistency {
 public:
  // Throws Error for rules that so many workers cannot keep.
  Consistency(int workers, const ConsistencyRules& rules);

  const ConsistencyRules& rules() const { return rules_; }
  bool may_start(int worker) const;  // its next task
  int64_t start(int worker);         // returns the task's number

  // A gradient has come: those of the update that it completes, in the order in which they are added up, by worker or,
  // with pushes > 0, as they came; none: it waits for others, or it was dropped.
  std::vector<Push> take(const Push& push);
  bool is_late(const Push& push) const { return rules_.by_task() && push.task < complete_; }  // take() will drop it
  // All tasks are over whose gradients could still come: those that wait for further ones, with pushes > 0, make an
  // update by themselves.
  std::vector<Push> take_rest() { return std::exchange(as_they_came_, {}); }
  // From now on nobody waits for that worker, of which no gradient will come; those that have come count. Updates that
  // waited for it alone are take_complete()'s, one after the other, until it returns none.
  void forget(int worker);
  std::vector<Push> take_complete();
  void updated(const std::vector<Push>& with);  // the weights have been, with what take() has returned

  int64_t updates() const { return updates_; }
  int64_t dropped() const { return dropped_; }
  // The updates that the weights have had since the gradient's were read.
  int64_t staleness(const Push& push) const { return updates_ - push.read; }

  // All tasks that were started are finished, and from now on other rules hold.
  void change(const ConsistencyRules& rules);

 private:
  int64_t next_task(int worker) const;
  int64_t finished() const;  // tasks of every worker that counts
  bool is_complete(const std::vector<Push>& of_task) const;
  bool is_here(int worker) const { return !gone_[static_cast<size_t>(worker)]; }

  ConsistencyRules rules_;
  std::vector<int64_t> next_, finished_;  // of each worker: tasks that were started, and that are finished
  std::vector<bool> gone_;                // workers that were forgotten
  std::map<int64_t, std::vector<Push>> by_task_;
  std::vector<Push> as_they_came_;
  int64_t complete_ = 0;  // tasks whose gradients take() has returned, where these are gathered by task
  int64_t updates_ = 0, dropped_ = 0;
};

}  // namespace owt
