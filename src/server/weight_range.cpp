#include "src/server/weight_range.h"

#include "src/comm/communicator.h"
#include "src/comm/sums.h"
#include "src/system/activity.h"

namespace owt {
namespace {

// The most gradients that may have arrived and not been applied. In place, the own worker's gradient is borrowed, not
// held.
int64_t most_waiting(int workers, int own, const ConsistencyRules& rules) {
  if (rules.synchronous()) return own == kNoWorker ? workers : workers - 1;
  return rules.by_task() ? workers * (rules.delay + 1) : workers + rules.pushes - 1;
}

}  // namespace

// Unless in place: the weights, and the last answer to every other worker.
int64_t WeightRange::tensors(int workers, int own, const ConsistencyRules& rules) {
  const int answered = own == kNoWorker ? workers : workers - 1;
  const bool in_place = rules.synchronous() && own != kNoWorker;
  return most_waiting(workers, own, rules) + (in_place ? 0 : answered + 1);
}

WeightRange::WeightRange(int workers, int own, const ConsistencyRules& rules, DType gradients, const Tensor& mine,
                         Update update, Answer answer)
    : gradients_(gradients),
      rules_(rules),
      own_(own),
      update_(std::move(update)),
      answer_(std::move(answer)),
      mine_(mine),
      weights_(mine),
      consistency_(workers, rules),
      workers_(static_cast<size_t>(workers)) {
  OWT_CHECK(!rules.by_task() || rules.delay != kNoBound, "gradients would wait for others without a bound");
  const auto tensor = [&] { return Tensor(mine.shape(), DType::kF32); };
  for (int64_t i = 0; i < most_waiting(workers, own, rules); ++i) free_.emplace_back(mine.shape(), gradients);
  if (in_place()) return;
  weights_ = tensor();
  for (int w = 0; w < workers; ++w)
    if (w != own) at(w).weights = tensor();
}

void WeightRange::begin(int64_t updates) {
  const std::lock_guard lock(mutex_);
  before_ = updates;
  if (!in_place()) weights_.copy_from(mine_);
  for (int w = 0; w < static_cast<int>(workers_.size()); ++w) start(w);
}

Tensor WeightRange::memory() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return Tensor(mine_.shape(), gradients_);
  const Tensor memory = std::move(free_.back());
  free_.pop_back();
  return memory;
}

void WeightRange::push(int worker, const Tensor& gradient, const PushedFor& pushed) {
  take(worker, {gradient, pushed, false});
}

void WeightRange::push_own(const Tensor& gradient, const PushedFor& pushed) {
  if (in_place()) return take(own_, {gradient, pushed, true});
  Tensor copy = memory();
  copy.copy_from(gradient);
  take(own_, {copy, pushed, false});
}

void WeightRange::take(int worker, Arrived arrived) {
  const std::lock_guard lock(mutex_);
  Worker& its = at(worker);
  its.waits = true;
  arrived_.emplace(std::pair(worker, its.task), std::move(arrived));
  if (const std::vector<Push> all = consistency_.take({worker, its.task, its.read}); !all.empty()) update(all);
  answer_who_may();
}

void WeightRange::forget(int worker) {
  const std::lock_guard lock(mutex_);
  consistency_.forget(worker);
  lacks_workers_ = true;
  at(worker).waits = false;
  for (std::vector<Push> all; !(all = consistency_.take_complete()).empty();) update(all);
  answer_who_may();
}

// The `share`s of all pushes of one task sum to 1 (up to rounding) unless a worker is missing.
void WeightRange::update(const std::vector<Push>& with) {
  std::vector<const void*> addends;
  double share = 0;
  ServedUpdate now{.weights = weights_, .updates = before_ + consistency_.updates()};
  for (const Push& push : with) {
    const Arrived& arrived = arrived_.at({push.worker, push.task});
    if (addends.empty()) now.gradient = arrived.gradient;
    addends.push_back(arrived.gradient.raw());
    now.pushed = arrived.pushed;
    share += arrived.pushed.share;
    ++staleness_[consistency_.staleness(push)];
  }
  if (addends.size() > 1) sum_up(Cpu(), gradients_, addends, now.gradient.elements(), now.gradient.raw(), Stream());
  now.pushed.share = rules_.by_task() && !lacks_workers_ ? 1 : share;
  if (now.pushed.share > 0) update_(now);
  consistency_.updated(with);
  for (const Push& push : with) {
    const auto arrived = arrived_.extract({push.worker, push.task});
    if (!arrived.mapped().borrowed) free_.push_back(arrived.mapped().gradient);
  }
}

void WeightRange::start(int worker) {
  at(worker).task = consistency_.start(worker);
  at(worker).read = consistency_.updates();
  at(worker).waits = false;
}

// Other workers than the one that has pushed may have waited for this push.
void WeightRange::answer_who_may() {
  for (int w = 0; w < static_cast<int>(workers_.size()); ++w) {
    Worker& its = at(w);
    if (!its.waits || !consistency_.may_start(w)) continue;
    start(w);
    if (w == own_) {
      changed_.notify_all();
      continue;
    }
    if (!in_place()) its.weights.copy_from(weights_);
    answer_(w, in_place() ? weights_ : its.weights);
  }
}

// The worker gets the weights that are current when it wakes up.
void WeightRange::await() {
  std::unique_lock lock(mutex_);
  {
    const Waits waits(WaitsFor::kOthers);
    changed_.wait(lock, [&] { return given_up_ || !at(own_).waits; });
  }
  if (given_up_) throw Aborted("another rank failed");
  if (in_place()) return;
  mine_.copy_from(weights_);
  at(own_).read = consistency_.updates();
}

void WeightRange::give_up() {
  const std::lock_guard lock(mutex_);
  given_up_ = true;
  changed_.notify_all();
}

void WeightRange::settle() {
  const std::lock_guard lock(mutex_);
  if (const std::vector<Push> rest = consistency_.take_rest(); !rest.empty()) update(rest);
  if (!in_place()) mine_.copy_from(weights_);
  for (Worker& each : workers_) each.read = consistency_.updates();
}

void WeightRange::take_mine() {
  const std::lock_guard lock(mutex_);
  if (!in_place()) weights_.copy_from(mine_);
}

int64_t WeightRange::updates() const {
  const std::lock_guard lock(mutex_);
  return before_ + consistency_.updates();
}

}  // namespace owt
