#include "src/comm/lost_ranks.h"

#include <algorithm>

#include "src/core/profiler.h"
#include "src/system/activity.h"

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

void LostRanks::tolerate(const std::vector<int>& ranks) {
  const std::lock_guard lock(mutex_);
  tolerated_.insert(ranks.begin(), ranks.end());
}

bool LostRanks::tolerates(int rank) const {
  const std::lock_guard lock(mutex_);
  return tolerated_.contains(rank);
}

void LostRanks::set_lost(int rank, const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    if (tolerated_.contains(rank)) {
      if (std::ranges::find(gone_, rank, &std::pair<int, std::string>::first) != gone_.end()) return;
      gone_.emplace_back(rank, text);
      ++gone_count_;
      return;
    }
  }
  set(text, rank);
}

void LostRanks::set_failed(const std::string& text) { set(text, std::nullopt); }

std::optional<int> LostRanks::lost_rank() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

void LostRanks::set(const std::string& text, std::optional<int> lost) {
  const std::lock_guard lock(mutex_);
  if (any_.load()) return;
  text_ = text;
  lost_ = lost;
  any_.store(true);
}

std::string LostRanks::text(std::string_view during) const {
  const std::lock_guard lock(mutex_);
  return lost_ ? with_place(text_, during) : text_;
}

std::string LostRanks::with_place(const std::string& text, std::string_view during) {
  std::string place;
  if (!during.empty()) place = concat(during.starts_with("after ") ? "" : "during ", during);
  const int64_t step = step_under_way.load();
  if (step >= 0) place += concat(place.empty() ? "" : ", ", "step ", step);
  return place.empty() ? text : concat(text, "; ", place);
}

std::vector<std::string> LostRanks::what_is_gone() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> texts;
  for (const auto& [rank, text] : gone_) texts.push_back(text);
  return texts;
}

void LostRanks::check_peer(int rank, std::string_view during) const {
  if (gone() == 0) return;
  const std::lock_guard lock(mutex_);
  for (const auto& [gone, text] : gone_)
    if (gone == rank) throw PeerGone(with_place(text, during));
}

void LostRanks::check_group(const std::vector<int>& ranks, std::string_view during) const {
  if (gone() == 0) return;
  const std::lock_guard lock(mutex_);
  for (const auto& [gone, text] : gone_)
    if (std::ranges::find(ranks, gone) != ranks.end()) throw RankLost(with_place(text, during));
}

void LostRanks::check(std::string_view during) const {
  if (!any_.load()) return;
  const std::string said = text(during);
  const std::lock_guard lock(mutex_);
  if (lost_) throw RankLost(said);
  throw Aborted(said);
}

}  // namespace owt
