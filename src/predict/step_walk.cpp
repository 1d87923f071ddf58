#include "src/predict/step_walk.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "src/plan/plan_updates.h"
#include "src/system/check.h"

namespace owt {
namespace {

constexpr int kNone = -1;

// Identifies a call of a transfer: transfer, round, bucket. A transfer that starts once for all rounds has round
// kOwnRows.
using Call = std::tuple<TransferId, int, int>;
Call call_of(const Action& action) { return {action.transfer, action.round, action.bucket}; }

// A transfer that has begun.
struct Sent {
  Action start;
  double begin_s, end_s;
  int last;     // index in walkers_ of the participating rank that came last
  int held_by;  // index of the previous transfer on that rank's link that delayed this one; kNone: none
};

// An action that the rank did or waited for.
struct Passed {
  std::optional<Action> action;
  double begin_s, end_s;
  int sent;  // the transfer waited for; kNone: the rank was busy
};

struct Started {  // a transfer that a rank has started; it may have to wait for other ranks
  Action action;
  double ready_s;
  int sent = kNone;
};

// One direction of a rank's link: until when it is busy, and with which transfer.
struct Way {
  double until_s = 0;
  int by = kNone;
};

struct Walker {
  int rank;
  std::vector<Action> actions;
  size_t next = 0;
  double now_s = 0, beside_s = 0;  // the rank's time; the time of work beside
  Way in{}, out{};
  std::vector<Started> started{};
  size_t begun = 0;                  // number of begun entries of `started`, which begin in order
  std::map<Call, size_t> newest{};   // indexes into `started`
  std::optional<size_t> waits_at{};  // index of a start; the rank does not continue before its end
  StepWalk::Rank sums{};
  std::vector<Passed> passed{};
};

class Walking {
 public:
  Walking(const Plan& plan, const WalkedStep& step, const ActionTimes& times)
      : plan_(plan), step_(step), times_(times) {
    for (const int rank : step.ranks) {
      Walker walker{.rank = rank, .actions = training(plan, plan.request.step_rows, step.kind, plan.place_of(rank))};
      if (const double before = times.before(rank); before != 0) pass(walker, {}, before);
      walkers_.push_back(std::move(walker));
    }
  }

  // Advances each rank until it must wait for another one, and repeats.
  StepWalk run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Walker& walker : walkers_) moved = advance(walker) || moved;
      for (Walker& walker : walkers_)
        while (begin_next(walker)) moved = true;
    }
    StepWalk result;
    for (Walker& walker : walkers_) {
      OWT_CHECK(walker.next == walker.actions.size() && !walker.waits_at, "rank ", walker.rank,
                " waits for what nobody sends");
      walker.sums.end_s = walker.now_s;
      result.ranks.push_back(walker.sums);
    }
    result.path = path();
    result.times = std::move(timed_);
    return result;
  }

 private:
  const Transfer& of(const Action& action) const { return plan_.transfer(action.transfer); }
  // On a GPU, work beside does not delay later actions, but its time counts.
  bool apart(const Action& action) const { return action.beside && !step_.in_turn; }
  bool receives(const Walker& walker, const Action& action) const {
    return of(action).receiver == plan_.place_of(walker.rank);
  }

  bool advance(Walker& walker) {
    const size_t before = walker.next;
    const bool waited = walker.waits_at.has_value();
    while (arrived(walker) && walker.next < walker.actions.size() && run(walker, walker.actions[walker.next]))
      ++walker.next;
    return walker.next > before || (waited && !walker.waits_at);
  }

  // Returns false if the end of the transfer that the rank waits for is unknown yet.
  bool arrived(Walker& walker) {
    if (!walker.waits_at) return true;
    const Started& start = walker.started[*walker.waits_at];
    if (start.sent == kNone) return false;
    Action waits = start.action;
    waits.kind = Action::Kind::kWait;
    wait(walker, waits, start.sent);
    walker.waits_at.reset();
    return true;
  }

  // Returns false if the rank must wait for a transfer that has not begun.
  bool run(Walker& walker, const Action& action) {
    switch (action.kind) {
      case Action::Kind::kStart:
        if (const double own = times_.compute(walker.rank, action); own > 0)
          walker.sums.computed_s += pass(walker, action, own);
        if (!receives(walker, action)) start(walker, action);
        while (begin_next(walker)) continue;
        return true;
      case Action::Kind::kWait: {
        const int sent = brought(walker, action);
        if (sent == kNone) return false;
        wait(walker, action, sent);
        return true;
      }
      case Action::Kind::kTakeWeights:
        return true;
      default:
        (action.is_of_weights() ? walker.sums.updated_s : walker.sums.computed_s) +=
            pass(walker, action, times_.compute(walker.rank, action));
        exchange(walker, action);
        return true;
    }
  }

  // Starts the transfer inside of an action, a collective that is waited for at once.
  void exchange(Walker& walker, const Action& action) {
    Action inside = action;
    inside.transfer = transfer_inside(plan_, action);
    if (inside.transfer == kNoTransfer) return;
    walker.waits_at = walker.started.size();
    walker.started.push_back({inside, walker.now_s});
    while (begin_next(walker)) continue;
  }

  double pass(Walker& walker, const std::optional<Action>& action, double seconds) {
    if (action && !action->moves_bytes()) note(*action, walker.now_s, walker.now_s + seconds, walker.rank);
    walker.passed.push_back({action, walker.now_s, walker.now_s + seconds, kNone});
    walker.now_s += seconds;
    walker.beside_s = std::max(walker.now_s, walker.beside_s + seconds);
    return seconds;
  }

  void start(Walker& walker, const Action& action) {
    walker.newest[call_of(action)] = walker.started.size();
    if (!step_.overlaps) walker.waits_at = walker.started.size();
    walker.started.push_back({action, apart(action) ? walker.beside_s : walker.now_s});
  }

  // The transfer that a wait is for; kNone: it has not begun. A transfer that starts once for all rounds is waited for
  // in each round.
  int brought(const Walker& walker, const Action& action) const {
    if (receives(walker, action)) {
      const auto sent = messages_.find({walker.rank / plan_.model_ranks, call_of(action)});
      return sent == messages_.end() ? kNone : sent->second;
    }
    const auto of_round = walker.newest.find(call_of(action));
    const size_t started = of_round != walker.newest.end()
                               ? of_round->second
                               : walker.newest.at(Call{action.transfer, kOwnRows, action.bucket});
    return walker.started[started].sent;
  }

  std::vector<Walker*> members(const Transfer& transfer, Walker& walker) {
    if (transfer.is_between_places()) return {&walker};
    std::vector<Walker*> all;
    for (Walker& other : walkers_)
      if (are_together(plan_, walker.rank, other.rank, transfer.group)) all.push_back(&other);
    return all;
  }

  // Begins the transfer at the head of the rank's queue if all its ranks have reached it. Returns false if it must
  // wait, or if the queue is empty.
  bool begin_next(Walker& walker) {
    if (walker.begun == walker.started.size()) return false;
    const Action action = walker.started[walker.begun].action;
    const std::vector<Walker*> all = members(of(action), walker);
    const bool here = std::all_of(all.begin(), all.end(), [&](const Walker* each) {
      return each->begun < each->started.size() && call_of(each->started[each->begun].action) == call_of(action);
    });
    if (here) begin(action, all);
    return here;
  }

  void begin(const Action& action, const std::vector<Walker*>& all) {
    const Collective collective = of(action).collective;
    const bool in = collective != Collective::kSend, out = collective != Collective::kReceive;
    Sent sent{action, 0, 0, kNone, kNone};
    const auto not_before = [&](double seconds, const Walker* walker, int held_by) {
      if (sent.last != kNone && seconds <= sent.begin_s) return;
      sent.begin_s = seconds, sent.held_by = held_by, sent.last = static_cast<int>(walker - walkers_.data());
    };
    for (const Walker* each : all) {
      not_before(each->started[each->begun].ready_s, each, kNone);
      if (in) not_before(each->in.until_s, each, each->in.by);
      if (out) not_before(each->out.until_s, each, each->out.by);
    }
    const double seconds = times_.transfer(all.front()->rank, action);
    sent.end_s = sent.begin_s + seconds;
    const int number = static_cast<int>(sent_.size());
    for (Walker* each : all) {
      if (in) each->in = {sent.end_s, number};
      if (out) each->out = {sent.end_s, number};
      each->sums.sent_s += seconds;
      each->started[each->begun++].sent = number;
      if (action.kind == Action::Kind::kStart) note(action, sent.begin_s, sent.end_s, each->rank);
    }
    sent.start.kind = Action::Kind::kStart;
    if (of(action).is_between_places()) messages_[{all.front()->rank / plan_.model_ranks, call_of(action)}] = number;
    sent_.push_back(std::move(sent));
  }

  void wait(Walker& walker, const Action& action, int sent) {
    const double end = sent_[static_cast<size_t>(sent)].end_s;
    if (apart(action)) return void(walker.beside_s = std::max(walker.beside_s, end));
    if (end <= walker.now_s) return;
    note(action, walker.now_s, end, walker.rank);
    walker.passed.push_back({action, walker.now_s, end, sent});
    walker.sums.exposed_s += end - walker.now_s;
    walker.now_s = end;
  }

  void note(const Action& action, double begin, double end, int rank) {
    if (end > begin) timed_.push_back({action, begin, end, rank});
  }

  // The critical path, backwards from the end of the last rank: through the rank's own work and, where it waited,
  // through the transfer to the last rank that reached that transfer.
  std::vector<OnPath> path() const {
    const auto sooner = [](const Walker& a, const Walker& b) { return a.now_s < b.now_s; };
    const Walker* walker = &*std::max_element(walkers_.begin(), walkers_.end(), sooner);
    std::vector<OnPath> path;
    if (!std::isfinite(walker->now_s)) return path;  // a link has no bandwidth
    const auto add = [&](const std::optional<Action>& action, int rank, double begin, double end) {
      if (end > begin) path.push_back({action, rank, begin, end});
    };
    // Number of the rank's entries that began before a time; entries are in order.
    const auto begun_before = [&](double seconds) {
      const auto& passed = walker->passed;
      return std::ranges::partition_point(passed, [=](const Passed& each) { return each.begin_s < seconds; }) -
             passed.begin();
    };
    auto left = begun_before(walker->now_s);
    for (double now = walker->now_s; left > 0;) {
      const Passed& at = walker->passed[static_cast<size_t>(--left)];
      if (at.begin_s >= now) continue;  // took no time
      // With work beside on a GPU, a transfer may begin after the wait for it was cut off; the rank is then on the
      // path.
      if (at.sent == kNone || sent_[static_cast<size_t>(at.sent)].begin_s >= now) {
        add(at.action, walker->rank, at.begin_s, std::min(at.end_s, now));
        now = at.begin_s;
        continue;
      }
      int number = at.sent;
      for (;; number = sent_[static_cast<size_t>(number)].held_by) {
        const Sent& sent = sent_[static_cast<size_t>(number)];
        add(sent.start, walkers_[static_cast<size_t>(sent.last)].rank, sent.begin_s, std::min(sent.end_s, now));
        now = std::min(now, sent.begin_s);
        if (sent.held_by == kNone) break;
      }
      walker = &walkers_[static_cast<size_t>(sent_[static_cast<size_t>(number)].last)];
      left = begun_before(now);
    }
    std::reverse(path.begin(), path.end());
    return path;
  }

  const Plan& plan_;
  const WalkedStep& step_;
  const ActionTimes& times_;
  std::vector<Walker> walkers_;
  std::vector<Sent> sent_;
  std::map<std::pair<int, Call>, int> messages_;  // key: model group and call; the latest message
  std::vector<TimedAction> timed_;
};

}  // namespace

double StepWalk::end_s() const {
  double end = 0;
  for (const Rank& rank : ranks) end = std::max(end, rank.end_s);
  return end;
}

StepWalk walk(const Plan& plan, const WalkedStep& step, const ActionTimes& times) {
  return Walking(plan, step, times).run();
}

}  // namespace owt
