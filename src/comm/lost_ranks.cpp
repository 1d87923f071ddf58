#include "src/comm/lost_ranks.h"

#include "src/core/activity.h"
#include "src/core/profiler.h"

namespace owt {
namespace {

std::atomic<int64_t> step_under_way{-1};

struct LastCollective {
  std::mutex mutex;
  NotedCollective noted;
};
LastCollective& last_collective() {
  static LastCollective last;
  return last;
}

}  // namespace

void note_step(int64_t step) { step_under_way.store(step); }

void note_collective(const std::string& name, bool under_way) {
  note_work();
  const std::lock_guard lock(last_collective().mutex);
  ++last_collective().noted.number;
  last_collective().noted.name = name;
  last_collective().noted.under_way = under_way;
}

void note_end_of_collective() {
  const std::lock_guard lock(last_collective().mutex);
  last_collective().noted.under_way = false;
}

NotedCollective noted_collective() {
  const std::lock_guard lock(last_collective().mutex);
  return last_collective().noted;
}

std::string noted_place() {
  const NotedCollective noted = noted_collective();
  if (!noted.message.empty()) return noted.message;
  return noted.under_way || noted.name.empty() ? noted.name : concat("after ", noted.name);
}

WaitsForMessage::WaitsForMessage(const std::string& name, int peer) {
  const std::lock_guard lock(last_collective().mutex);
  last_collective().noted.message = name;
  last_collective().noted.peer = peer;
}

WaitsForMessage::~WaitsForMessage() {
  const std::lock_guard lock(last_collective().mutex);
  last_collective().noted.message.clear();
  last_collective().noted.peer = -1;
}

std::string described(Collective collective, int peer) {
  const std::string scope = working_on(), transfer = concat(", ", name_of(Phase::kTransfer));
  std::string text = name_of(collective);
  if (scope.ends_with(transfer)) text += concat(" of '", scope.substr(0, scope.size() - transfer.size()), "'");
  if (is_message(collective)) text += concat(collective == Collective::kSend ? " to rank " : " from rank ", peer);
  return text;
}

void LostRanks::set_lost(const std::string& text) { set(text, true); }
void LostRanks::set_failed(const std::string& text) { set(text, false); }

void LostRanks::set(const std::string& text, bool lost) {
  const std::lock_guard lock(mutex_);
  if (any_.load()) return;
  text_ = text;
  lost_ = lost;
  any_.store(true);
}

std::string LostRanks::text(std::string_view during) const {
  const std::lock_guard lock(mutex_);
  if (!lost_) return text_;
  std::string place;
  if (!during.empty()) place = concat(during.starts_with("after ") ? "" : "during ", during);
  const int64_t step = step_under_way.load();
  if (step >= 0) place += concat(place.empty() ? "" : ", ", "step ", step);
  return place.empty() ? text_ : concat(text_, "; ", place);
}

void LostRanks::check(std::string_view during) const {
  if (!any_.load()) return;
  const std::string said = text(during);
  const std::lock_guard lock(mutex_);
  if (lost_) throw RankLost(said);
  throw Aborted(said);
}

}  // namespace owt
