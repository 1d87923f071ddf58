// Consistency rules of a parameter server: when its workers may start their next task, and which gradients make up an
// update of its weights. They work on whole numbers, for simulated and for real workers.
//
// Every worker has tasks 0, 1, 2, ...: to compute the gradient of its part of batch t and push it. A task is finished
// when its gradient has updated the weights. With pushes > 0 an update may have to wait for another task of the same
// worker; a task is then finished when its gradient has arrived.
//   delay     task t starts when the tasks before t - delay are finished by all workers but the `backup`
//             slowest. 0: sequential; kNoBound: eventual. A worker leads the slowest by at most `delay` tasks (SSP).
//   pushes    0: an update consists of the gradients of one task number, when all workers but `backup` have pushed
//             theirs. Gradients that arrive later are dropped; a late worker continues with the newest task.
//             n > 0: any n gradients, in the order of arrival (n = 1: asynchronous; more: softsync).
// With delay = 0, pushes = 0 and backup = 0 training is synchronous SGD.
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
// The most steps that a worker may lead the slowest worker if nothing else limits it, so that a wish to stop is
// received.
constexpr int64_t kMostApart = 64;

struct ConsistencyRules {
  int64_t delay = 0;   // >= 0, or kNoBound
  int64_t pushes = 0;  // >= 0
  int backup = 0;      // number of backup workers; less than the number of workers

  bool by_task() const { return pushes == 0; }
  bool synchronous() const { return delay == 0 && by_task(); }
  std::string text() const;  // for people
  bool operator==(const ConsistencyRules&) const = default;
};

struct Push {
  int worker = 0;
  int64_t task = 0;
  int64_t read = 0;  // number of updates in the weights that the gradient was computed with

  bool operator==(const Push&) const = default;
};

class Consistency {
 public:
  // Throws Error if this number of workers cannot keep the rules.
  Consistency(int workers, const ConsistencyRules& rules);

  const ConsistencyRules& rules() const { return rules_; }
  bool may_start(int worker) const;  // whether the worker may start its next task
  int64_t start(int worker);         // returns the task's number

  // Takes a gradient that has arrived. Returns the gradients of the update that it completes, in the order in which
  // they are added up: by worker, or with pushes > 0 in the order of arrival. Empty: the gradient waits for others, or
  // was dropped.
  std::vector<Push> take(const Push& push);
  // Whether take() would drop it.
  bool is_late(const Push& push) const { return rules_.by_task() && push.task < complete_; }
  // Call this when no more gradients will arrive. With pushes > 0, the gradients still waiting make up a last update.
  std::vector<Push> take_rest() { return std::exchange(as_they_came_, {}); }
  // A worker is lost: no worker waits for it any longer, and no gradient of it will arrive. Gradients that have arrived
  // count. take_complete() returns the updates that waited only for that worker, one after the other, and then an empty
  // list.
  void forget(int worker);
  std::vector<Push> take_complete();
  // The weights have been updated with these gradients, which take() has returned.
  void updated(const std::vector<Push>& with);

  int64_t updates() const { return updates_; }
  int64_t dropped() const { return dropped_; }
  // The number of updates of the weights since the gradient's weights were read.
  int64_t staleness(const Push& push) const { return updates_ - push.read; }

  // Changes the rules. All tasks that were started must be finished.
  void change(const ConsistencyRules& rules);

 private:
  int64_t next_task(int worker) const;
  int64_t finished() const;  // tasks finished by every worker that counts
  bool is_complete(const std::vector<Push>& of_task) const;
  bool is_here(int worker) const { return !gone_[static_cast<size_t>(worker)]; }

  ConsistencyRules rules_;
  std::vector<int64_t> next_, finished_;  // tasks started and finished, by worker
  std::vector<bool> gone_;                // workers that are lost
  std::map<int64_t, std::vector<Push>> by_task_;
  std::vector<Push> as_they_came_;
  int64_t complete_ = 0;  // with by_task(): all tasks below this number have been returned by take()
  int64_t updates_ = 0, dropped_ = 0;
};

}  // namespace owt
