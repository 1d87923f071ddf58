#include "src/roster/roster.h"

#include <unistd.h>

#include <algorithm>
#include <map>

#include "src/comm/watch.h"
#include "src/system/check.h"

namespace owt {
namespace {

// After so many worlds in a row that did no step, another one would do none either.
constexpr int kMostWithoutSteps = 5;

using Seconds = std::chrono::duration<double>;

Roster::Clock::time_point after(Roster::Clock::time_point begin, double seconds) {
  return begin + std::chrono::duration_cast<Roster::Clock::duration>(Seconds(seconds));
}

std::string name_of(const std::string& host, int process, int rank) {
  return concat("rank ", rank, " on ", host, " (process ", process, ")");
}

std::string workers(int64_t count) { return concat(count, count == 1 ? " worker" : " workers"); }

}  // namespace

Roster::Roster(Listener listener, const Limits& limits)
    : listener_(listener),
      limits_(limits),
      run_(concat(getpid(), '-', std::chrono::system_clock::now().time_since_epoch().count())),
      next_number_(limits.first) {}

Roster::~Roster() { close(listener_.socket); }

std::vector<int> Roster::sockets() const {
  std::vector<int> all{listener_.socket};
  for (const ListedWorker& worker : workers_)
    if (worker.connection.open()) all.push_back(worker.connection.socket());
  for (const MessageConnection& comer : comers_) all.push_back(comer.socket());
  return all;
}

// The time of the next event that needs no message.
std::optional<Roster::Clock::time_point> Roster::deadline() const {
  if (end_) return {};
  if (world_ < 0) return after(began_, limits_.start_s);
  if (!over_since_ || workers_.empty()) return {};
  const bool all_named =
      std::ranges::all_of(workers_, [&](const ListedWorker& each) { return !in_world(each) || each.named; });
  return all_named ? after(last_departure_.value_or(*over_since_), limits_.grace_s) : after(*over_since_, patience_s_);
}

std::chrono::milliseconds Roster::rest() const {
  constexpr auto kLongest = std::chrono::milliseconds(60000);
  const auto next = deadline();
  if (!next) return kLongest;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now());
  return std::clamp(left, std::chrono::milliseconds(0), kLongest);
}

void Roster::look() {
  for (MessageConnection come = accept_from(listener_.socket); come.open(); come = accept_from(listener_.socket))
    comers_.push_back(std::move(come));
  for (MessageConnection& comer : comers_) {
    ListedWorker worker;
    std::optional<Message> said;
    comer.receive([&](const Message& message) { said = message; });
    if (!said) continue;
    worker.connection = std::move(comer);
    take_introduction(worker, *said);
    if (worker.connection.open()) workers_.push_back(std::move(worker));
  }
  std::erase_if(comers_, [](const MessageConnection& comer) { return !comer.open(); });
  for (ListedWorker& worker : workers_) receive(worker);
  if (!end_) drop_late();
  std::erase_if(workers_, [](const ListedWorker& worker) { return !worker.connection.open(); });
  if (!end_) make_world();
}

void Roster::receive(ListedWorker& worker) {
  if (!worker.connection.open()) return;
  worker.connection.flush();
  worker.connection.receive([&](const Message& message) {
    try {
      if (message.kind == kFinished) finished_ = true;
      if (message.kind == kReady) take_departure(worker, departure_in(message.text));
    } catch (const Error&) {
      worker.connection.close();  // another program
    }
  });
  if (worker.connection.open()) return;
  if (in_world(worker)) call(kCallLost);
  lose(worker, "its process has ended");
}

// Refuses everything but a worker of this program for which there is room.
void Roster::take_introduction(ListedWorker& worker, const Message& message) {
  try {
    if (message.kind == kAsk) return answer(worker.connection, run_question_in(message.text));
    if (message.kind != kCome) return worker.connection.close();
    worker.who = introduction_in(message.text);
  } catch (const Error&) {
    return worker.connection.close();
  }
  worker.address = address_of_peer(worker.connection.socket());
  const auto refuse = [&](const std::string& why) {
    worker.connection.send({kEnd, 0, why});
    worker.connection.close();
  };
  if (worker.who.version != kRosterVersion)
    return refuse(concat("the roster of the run speaks version ", kRosterVersion, ", this process version ",
                         worker.who.version, "; use the same owt everywhere"));
  if (end_) return refuse(*end_);
  if (finished_) return refuse("the run has finished");
  const int room = world_ < 0 ? limits_.first : limits_.most;
  if (std::ssize(workers_) >= room)
    return refuse(concat("the run has ", workers(std::ssize(workers_)), " already, which --elastic allows at most"));
  coming_.erase(worker.who.order);
  if (world_ >= 0) call(kCallChange);
}

void Roster::answer(MessageConnection& asker, const RunQuestion& question) {
  RunAnswer answer{connected(), limits_.least, limits_.most, soon(), why_not(question)};
  if (answer.refusal.empty() && question.workers > 0) {
    change_to(question.workers);
    answer.soon = soon();
  }
  asker.send({kAnswer, 0, answer.text()});
  asker.close();
}

std::string Roster::why_not(const RunQuestion& question) const {
  if (question.version != kRosterVersion)
    return concat("the roster of the run speaks version ", kRosterVersion, ", this program version ", question.version);
  if (!question.run.empty() && question.run != run_) return "the run has ended, and another one is at its address";
  if (end_ || finished_) return end_ ? concat("the run has ended: ", *end_) : "the run has finished";
  if (question.workers == 0) return "";
  if (question.workers < limits_.least || question.workers > limits_.most)
    return concat("the run allows ", limits_.least, " to ", workers(limits_.most), " (--elastic), not ",
                  question.workers);
  if (world_ < 0) return "the run has not begun yet";
  const bool changes = !coming_.empty() || std::ranges::any_of(workers_, &ListedWorker::asked);
  return changes ? concat("the run is still changing to ", workers(soon()), "; ask again later") : "";
}

int Roster::soon() const {
  return static_cast<int>(std::ranges::count(workers_, false, &ListedWorker::asked) + std::ssize(coming_));
}

// The last workers leave.
void Roster::change_to(int count) {
  const int now = connected();
  if (count != now) news_.push_back(concat("asked for ", workers(count), " in place of ", now));
  for (int rank = count; rank < now; ++rank) {
    ListedWorker& worker = workers_[static_cast<size_t>(rank)];
    worker.asked = true;
    worker.connection.send({kCall, worker.rank, kCallLeave});
  }
  for (int missing = count - now; missing > 0; --missing) {
    wanted_.push_back(next_number_);
    coming_.insert(next_number_++);
  }
}

void Roster::take_departure(ListedWorker& worker, const Departure& departure) {
  if (!in_world(worker) || departure.world != world_) return;
  if (!over_since_) {
    over_since_ = Clock::now();
    worlds_without_steps_ = departure.did_steps ? 0 : worlds_without_steps_ + 1;
  }
  if (!departure.why.empty()) call(kCallLost);
  if (why_.empty()) why_ = departure.why;
  last_departure_ = Clock::now();
  patience_s_ = std::max(patience_s_, departure.patience_s);
  worker.departure = departure;
  worker.who.port = departure.port;
  if (departure.lost) {
    reasons_.emplace(*departure.lost, departure.why);
    for (ListedWorker& other : workers_) other.named = other.named || other.rank == *departure.lost;
  }
  if (!departure.leaves) return;
  left_[worker.rank] = concat(name_of(worker.who.host, worker.who.process, worker.rank), " leaves, as it was asked to");
  worker.connection.send({kEnd, 0, ""});
  worker.rank = -1;
  worker.connection.close();
}

void Roster::lose(ListedWorker& worker, const std::string& how) {
  if (worker.rank >= 0)
    lost_.emplace(worker.rank, concat(name_of(worker.who.host, worker.who.process, worker.rank), " was lost: ", how));
  worker.rank = -1;
}

// Ranks that do not leave a world that is over.
void Roster::drop_late() {
  const auto due = deadline();
  if (!due || Clock::now() < *due) return;
  if (world_ < 0)
    return end_run(
        concat("only ", workers(std::ssize(workers_)), " of ", limits_.first, " came within ", limits_.start_s, " s"));
  for (ListedWorker& worker : workers_) {
    if (!in_world(worker)) continue;
    const std::string how = concat("it did not answer for ", patience_s_, " s");
    const auto said = reasons_.find(worker.rank);
    worker.connection.send(
        {kEnd, 0, concat("the other workers have given this one up: ", said == reasons_.end() ? how : said->second)});
    worker.connection.close();
    if (worker.who.process_space == process_space()) dropped_.push_back(worker.who.process);
    lose(worker, how);
  }
}

std::string Roster::change() const {
  std::vector<std::string> parts;
  // The other ranks know more, for example the step.
  for (const auto& [rank, what] : lost_) parts.push_back(reasons_.contains(rank) ? reasons_.at(rank) : what);
  for (const auto& [rank, what] : left_) parts.push_back(what);
  for (const ListedWorker& worker : workers_)
    if (world_ >= 0 && worker.rank < 0)
      parts.push_back(concat("a worker on ", worker.who.host, " (process ", worker.who.process, ") joins"));
  if (world_ >= 0 && parts.empty()) parts.push_back(why_.empty() ? "no worker has come or gone" : why_);
  std::string all;
  for (const std::string& part : parts) all += (all.empty() ? "" : "; ") + part;
  return all;
}

void Roster::make_world() {
  const bool first = world_ < 0;
  const bool any_is_old = std::ranges::any_of(workers_, [](const ListedWorker& worker) { return worker.rank >= 0; });
  if (first ? std::ssize(workers_) < limits_.first : any_is_old && !over_since_) return;
  if (std::ranges::any_of(workers_, [&](const ListedWorker& worker) { return in_world(worker); })) return;
  const int ranks = static_cast<int>(workers_.size());
  if (ranks == 0) return;  // the processes end by themselves
  if (finished_) return end_run("the run has finished");
  const std::string changed = change();
  if (!first && ranks < limits_.least)
    return end_run(concat(changed, "; ", workers(ranks), ranks == 1 ? " is" : " are", " left, and --elastic wants ",
                          limits_.least));
  if (worlds_without_steps_ >= kMostWithoutSteps)
    return end_run(
        concat("the workers have changed ", worlds_without_steps_, " times without a step between: ", changed));
  if (first) std::ranges::stable_sort(workers_, {}, [](const ListedWorker& worker) { return worker.who.order; });
  std::map<std::string, int> on_host;
  for (const ListedWorker& worker : workers_) ++on_host[worker.who.host];
  std::map<std::string, int> numbered;
  ++world_;
  const ListedWorker& rank_0 = workers_.front();
  for (int rank = 0; rank < ranks; ++rank) {
    ListedWorker& worker = workers_[static_cast<size_t>(rank)];
    worker.rank = rank;
    worker.departure.reset();
    worker.named = false;
    const std::string& host = worker.who.host;
    worker.connection.send({kWorld, rank,
                            NewWorld{world_, rank, ranks, numbered[host]++, on_host[host], rank_0.address,
                                     rank_0.who.port, limits_.least, run_, changed}
                                .text()});
  }
  if (!first) news_.push_back(concat(changed, "; ", workers(ranks), ranks == 1 ? " continues" : " continue"));
  over_since_.reset();
  last_departure_.reset();
  patience_s_ = 0;
  why_.clear();
  reasons_.clear();
  lost_.clear();
  left_.clear();
}

void Roster::call(const std::string& why) {
  for (ListedWorker& worker : workers_)
    if (in_world(worker)) worker.connection.send({kCall, worker.rank, why});
}

void Roster::end_run(const std::string& why) {
  end_ = why;
  for (ListedWorker& worker : workers_) worker.connection.send({kEnd, 0, why});
}

std::vector<int> Roster::take_wanted() { return std::exchange(wanted_, {}); }
std::vector<std::string> Roster::take_news() { return std::exchange(news_, {}); }
std::vector<int> Roster::take_dropped() { return std::exchange(dropped_, {}); }

}  // namespace owt
