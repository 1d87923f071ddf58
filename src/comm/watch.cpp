#include "src/comm/watch.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "src/comm/watch_links.h"
#include "src/system/activity.h"
#include "src/system/joined_threads.h"

namespace owt {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr auto kPatience = Milliseconds(3000);  // time for messages to be received

std::atomic<double> timeout_seconds{20}, stall_seconds{600};

Milliseconds timeout_now() {
  return std::chrono::duration_cast<Milliseconds>(std::chrono::duration<double>(watch_timeout()));
}

}  // namespace

void set_watch_timeout(double seconds) { timeout_seconds.store(std::max(seconds, 0.5)); }
double watch_timeout() { return timeout_seconds.load(); }
void set_stall_timeout(double seconds) { stall_seconds.store(seconds); }
double stall_timeout() { return stall_seconds.load(); }

Milliseconds alive_every() { return std::min(Milliseconds(1000), timeout_now() / 4); }

std::string process_space() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::error_code none;
  const std::string space = std::filesystem::read_symlink("/proc/self/ns/pid", none).string();
  return std::getline(file, boot) && !none ? boot + " " + space : "";
}

double start_timeout() {
  const char* const said = std::getenv("OWT_START_TIMEOUT");
  if (!said) return 60;
  char* end = nullptr;
  const double seconds = std::strtod(said, &end);
  if (end == said || *end || !(seconds >= 1 && seconds <= 86400))
    fail("the environment variable OWT_START_TIMEOUT is '", said, "', wanted seconds from 1 to 86400");
  return seconds;
}

// Listens to the other ranks, and sends for this rank.
class Watch::Thread {
 public:
  Thread(int rank, std::vector<Peer> peers, std::vector<WatchLink> links, LostRanks& lost_ranks,
         std::vector<Overdue> overdue)
      : rank_(rank),
        peers_(std::move(peers)),
        lost_ranks_(lost_ranks),
        overdue_(std::move(overdue)),
        links_(std::move(links)),
        bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        thread_(start_thread("the thread that watches the other ranks", "", [this] { loop(); })) {}

  ~Thread() {
    tell([&] { stopped_ = true; });
    thread_.join();
    close(bell_);
  }

  void say_goodbye() {
    wait_until_said([&] { goodbye_ = true; });
  }
  void say_failed(const std::string& text) {
    wait_until_said([&] { failure_ = text; });
  }

 private:
  const Peer& peer(int rank) const { return peers_[static_cast<size_t>(rank)]; }

  template <class Change>
  void tell(const Change& change) {
    const std::lock_guard lock(mutex_);
    change();
    eventfd_write(bell_, 1);
  }

  template <class Change>
  void wait_until_said(const Change& change) {
    tell([&] { change(), said_ = false; });
    std::unique_lock lock(mutex_);
    said_changed_.wait_for(lock, kPatience, [&] { return said_; });
  }

  void set_said() {
    const std::lock_guard lock(mutex_);
    said_ = true;
    said_changed_.notify_all();
  }

  void loop() {
    auto last = Clock::now(), next_alive = last;  // the start of the last iteration; the time of the next sign of life
    while (true) {
      const auto timeout = timeout_now();
      wait_readable(readable(),
                    std::chrono::ceil<Milliseconds>(std::min(next_alive, next_deadline(timeout)) - Clock::now()));
      const auto now = Clock::now();
      // This process itself was stopped: messages that arrived meanwhile have not been read.
      const bool was_stopped = now - last > timeout / 2;
      if (was_stopped)
        for (WatchLink& link : links_) link.heard = now, link.standing.reset();
      last = now;
      look_at_activity(now, was_stopped);
      listen();
      if (!speak()) return;
      look_for_answers();
      if (now >= next_alive) {
        announce({kAlive, rank_, standing(now).text()});
        next_alive = now + alive_every();
        if (rank_ == 0) look_for_stuck(now);
      }
      for (WatchLink& link : links_) {
        link.connection.flush();
        if (link.connection.open() && !link.left && now - link.heard >= timeout)
          lose(link, concat("it has not answered for ", watch_timeout(), " s"));
      }
      if (lost_ranks_.any() && !loss_at_) loss_at_ = now;
      while (overdue_at() <= now) overdue_[called_++].call();
    }
  }

  // The time at which the next call is overdue.
  Clock::time_point overdue_at() const {
    return loss_at_ && called_ < overdue_.size() ? *loss_at_ + overdue_[called_].grace : Clock::time_point::max();
  }

  // The first time at which another rank is silent for too long, or a call is overdue. It is exact to the millisecond,
  // so that all ranks that lose rank 0 notice it at the same time, before the launcher ends them because the first one
  // exits.
  Clock::time_point next_deadline(Milliseconds timeout) const {
    auto next = overdue_at();
    for (const WatchLink& link : links_)
      if (link.connection.open() && !link.left) next = std::min(next, link.heard + timeout);
    return next;
  }

  // Compares the number of signs of work, so that a sign between two looks is not missed.
  void look_at_activity(Clock::time_point now, bool was_stopped) {
    const Activity seen = activity();
    if (!(seen == seen_) || was_stopped) seen_since_ = now;
    seen_ = seen;
  }

  Standing standing(Clock::time_point now) const {
    const NotedCollective last = noted_collective();
    const double still_s = std::chrono::duration<double>(now - seen_since_).count();
    return {seen_.waits_for, still_s, last.number, last.message.empty() ? last.name : last.message, last.peer};
  }

  // On rank 0, which receives all reports.
  void look_for_stuck(Clock::time_point now) {
    if (lost_ranks_.any() || said_goodbye_) return;
    std::vector<std::optional<Standing>> standings(peers_.size());
    standings[0] = standing(now);
    for (const WatchLink& link : links_) {
      if (link.left || !link.connection.open()) continue;
      if (!link.standing) return;  // it has not sent a report yet
      standings[static_cast<size_t>(link.rank)] = link.standing;
    }
    if (const auto stuck = find_stuck(standings, watch_timeout(), stall_timeout())) give_up(*stuck);
  }

  void give_up(const Stuck& stuck) {
    const Peer& its = peer(stuck.rank);
    const std::string text =
        concat("rank ", stuck.rank, " on ", its.host, " (process ", its.process, ") makes no progress: ", stuck.how);
    lost_ranks_.set_lost(stuck.rank, text);
    for (WatchLink& link : links_) {
      const bool is_it = link.rank == stuck.rank;
      link.left = link.left || is_it;  // its end is no loss
      link.given_up = link.given_up || is_it;
      link.connection.send(
          {kLost, stuck.rank, is_it ? concat("the other ranks have given this one up: ", stuck.how) : text});
    }
  }

  static std::optional<Standing> standing_in(const std::string& text) {
    try {
      return Standing::from(text);
    } catch (const Error&) {  // it comes from another program
      return {};
    }
  }

  std::vector<int> readable() const {
    std::vector<int> sockets{bell_};
    for (const WatchLink& link : links_)
      if (link.connection.open()) sockets.push_back(link.connection.socket());
    return sockets;
  }

  void listen() {
    for (WatchLink& link : links_) {
      if (link.connection.open()) link.connection.receive([&](const Message& message) { take(link, message); });
      if (!link.connection.open() && !link.left) lose(link, "its process has ended");
    }
  }

  void take(WatchLink& link, const Message& message) {
    link.heard = Clock::now();
    switch (message.kind) {
      case kAlive:
        link.standing = standing_in(message.text);
        return;
      case kGoodbye:
        link.left = true;
        return;
      case kFailed:
        lost_ranks_.set_failed(concat("rank ", message.rank, " failed: ", message.text));
        for (WatchLink& other : links_)
          if (&other != &link) other.connection.send(message);
        link.connection.send({kAcknowledged, rank_, ""});
        link.left = true;  // its end is no loss
        return;
      case kAcknowledged:
        link.acknowledged = true;
        return;
      case kLost:
        return lost_ranks_.set_lost(message.rank, message.text);
      default:
        return;
    }
  }

  void lose(WatchLink& link, const std::string& how) {
    link.left = link.given_up = true;
    const std::string text = concat("rank ", link.rank, " on ", peer(link.rank).host, " (process ",
                                    peer(link.rank).process, ") was lost: ", how);
    lost_ranks_.set_lost(link.rank, text);
    for (WatchLink& other : links_) {
      if (&other != &link) other.connection.send({kLost, link.rank, text});
    }
    // If it continues after all, it should end too.
    link.connection.send({kLost, link.rank, concat("the other ranks have given this one up: ", how)});
  }

  // A launcher that tolerates losses waits for the processes that were given up; other launchers end them. An open
  // connection proves that the process still exists, and that its number belongs to no other process.
  void end_given_up() const {
    const std::string& here = peer(rank_).process_space;
    for (const WatchLink& link : links_) {
      const Peer& its = peer(link.rank);
      if (rank_ == 0 && link.given_up && lost_ranks_.tolerates(link.rank) && link.connection.open() && !here.empty() &&
          its.process_space == here)
        kill(its.process, SIGKILL);
    }
  }

  // Sends the messages of the rest of the process. False at the end.
  bool speak() {
    const std::lock_guard lock(mutex_);
    eventfd_t rings = 0;
    eventfd_read(bell_, &rings);
    if (goodbye_ || failure_) end_given_up();
    if (goodbye_) announce({kGoodbye, rank_, ""});
    said_goodbye_ = said_goodbye_ || goodbye_;
    if (goodbye_) said_ = true, said_changed_.notify_all();
    if (failure_) announce({kFailed, rank_, *failure_}), awaits_answers_ = true;
    goodbye_ = false;
    failure_.reset();
    return !stopped_;
  }

  // If a process ends with unread data in its sockets, its last messages are discarded at receivers that have not read
  // them. So it stays until all have answered.
  void look_for_answers() {
    if (!awaits_answers_) return;
    for (const WatchLink& link : links_)
      if (link.connection.open() && !link.left && !link.acknowledged) return;
    awaits_answers_ = false;
    set_said();
  }

  void announce(const Message& message) {
    for (WatchLink& link : links_) link.connection.send(message);
  }

  int rank_;
  std::vector<Peer> peers_;
  LostRanks& lost_ranks_;
  std::vector<Overdue> overdue_;
  size_t called_ = 0;  // number of overdue calls made
  std::vector<WatchLink> links_;
  std::optional<Clock::time_point> loss_at_;
  bool said_goodbye_ = false, awaits_answers_ = false;
  Activity seen_;
  Clock::time_point seen_since_ = Clock::now();

  std::mutex mutex_;  // guards the members below
  int bell_;          // signalled after each change, to wake the thread
  bool stopped_ = false, goodbye_ = false, said_ = false;
  std::optional<std::string> failure_;
  std::condition_variable said_changed_;

  std::thread thread_;
};

Watch::Watch(Rendezvous& rendezvous, std::vector<Peer> peers, LostRanks& lost_ranks, std::vector<Overdue> overdue) {
  auto links = links_of_rank_0(rendezvous, peers);
  thread_ = std::make_unique<Thread>(0, std::move(peers), std::move(links), lost_ranks, std::move(overdue));
}

Watch::Watch(const std::string& address, int rank, std::vector<Peer> peers, LostRanks& lost_ranks,
             std::vector<Overdue> overdue) {
  auto links = links_to_rank_0(address, rank, peers);
  thread_ = std::make_unique<Thread>(rank, std::move(peers), std::move(links), lost_ranks, std::move(overdue));
}

Watch::~Watch() = default;

void Watch::say_goodbye() { thread_->say_goodbye(); }
void Watch::say_failed(const std::string& text) { thread_->say_failed(text); }

}  // namespace owt
