#include "src/plan/consistency.h"

#include <algorithm>
#include <utility>

#include "src/system/check.h"

namespace owt {
namespace {

size_t at(int worker) { return static_cast<size_t>(worker); }

}  // namespace

std::string ConsistencyRules::text() const {
  std::string text = synchronous()       ? "synchronous"
                     : delay == kNoBound ? std::string("unbounded delay")
                                         : concat("delay of at most ", delay);
  if (!by_task())
    text += pushes == 1 ? ", an update for every push" : concat(", an update for every ", pushes, " pushes");
  if (by_task() && !synchronous()) text += ", an update for every task of all workers";
  if (backup > 0) text += concat(", ", backup, backup == 1 ? " backup worker" : " backup workers");
  return text;
}

Consistency::Consistency(int workers, const ConsistencyRules& rules)
    : rules_(rules), next_(at(workers)), finished_(at(workers)), gone_(at(workers)) {
  if (rules.backup < 0 || rules.backup >= workers)
    fail("backup workers: ", rules.backup, ", wanted fewer than the ", workers, workers == 1 ? " worker" : " workers",
         "; at least one worker must not be a backup");
}

int64_t Consistency::next_task(int worker) const {
  return rules_.by_task() ? std::max(next_[at(worker)], complete_) : next_[at(worker)];
}

int64_t Consistency::finished() const {
  std::vector<int64_t> sorted;
  for (int worker = 0; worker < std::ssize(finished_); ++worker)
    if (is_here(worker)) sorted.push_back(finished_[at(worker)]);
  const auto slowest = sorted.begin() + std::min<int64_t>(rules_.backup, std::ssize(sorted) - 1);
  std::nth_element(sorted.begin(), slowest, sorted.end());
  return *slowest;
}

bool Consistency::may_start(int worker) const {
  return rules_.delay == kNoBound || next_task(worker) - rules_.delay <= finished();
}

int64_t Consistency::start(int worker) {
  const int64_t task = next_task(worker);
  next_[at(worker)] = task + 1;
  return task;
}

std::vector<Push> Consistency::take(const Push& push) {
  if (!rules_.by_task()) {
    as_they_came_.push_back(push);
    finished_[at(push.worker)] = push.task + 1;
    return std::ssize(as_they_came_) < rules_.pushes ? std::vector<Push>() : std::exchange(as_they_came_, {});
  }
  if (is_late(push)) {
    ++dropped_;
    return {};
  }
  by_task_[push.task].push_back(push);
  return take_complete();
}

bool Consistency::is_complete(const std::vector<Push>& of_task) const {
  const int64_t here = std::ranges::count(gone_, false);
  const int64_t come = std::ranges::count_if(of_task, [&](const Push& push) { return is_here(push.worker); });
  return come + rules_.backup >= here;
}

std::vector<Push> Consistency::take_complete() {
  const auto found = std::find_if(by_task_.lower_bound(complete_), by_task_.end(),
                                  [&](const auto& task) { return is_complete(task.second); });
  if (found == by_task_.end()) return {};
  complete_ = found->first + 1;
  std::vector<Push> all = std::move(found->second);
  by_task_.erase(found);
  std::sort(all.begin(), all.end(), [](const Push& a, const Push& b) { return a.worker < b.worker; });
  return all;
}

void Consistency::forget(int worker) {
  gone_[at(worker)] = true;
  OWT_CHECK(std::ranges::count(gone_, false) > 0, "a worker is left");
}

void Consistency::updated(const std::vector<Push>& with) {
  ++updates_;
  for (const Push& push : with) finished_[at(push.worker)] = std::max(finished_[at(push.worker)], push.task + 1);
}

void Consistency::change(const ConsistencyRules& rules) {
  OWT_CHECK(by_task_.empty() && as_they_came_.empty(), "tasks are under way");
  rules_ = rules;
}

}  // namespace owt
