#include "src/roster/membership.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "src/comm/launch.h"
#include "src/comm/signals.h"
#include "src/comm/watch.h"
#include "src/roster/roster_words.h"
#include "src/system/check.h"
#include "src/system/sockets.h"

namespace owt {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr const char* kVariable = "OWT_ROSTER";
// A roster that does not answer the system's probes for so long is out of reach.
constexpr int kIdle = 10, kProbe = 5, kProbes = 4;  // seconds; seconds; number
// Ranks may need this much longer than the watch to leave a world.
constexpr int kToLeave = 5;  // seconds

RunAddress address_of_roster() {
  const char* const said = std::getenv(kVariable);
  const std::optional<RunAddress> address = run_address_in(said ? said : "");
  if (!address) fail("the environment variable ", kVariable, " is '", said ? said : "", "', wanted HOST:PORT");
  return *address;
}

int number_of(const char* variable) {
  const char* const said = std::getenv(variable);
  return said ? std::atoi(said) : -1;
}

void probe_when_idle(int socket) {
  const int on = 1;
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &kIdle, sizeof kIdle);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &kProbe, sizeof kProbe);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof kProbes);
  const unsigned int unanswered_ms = 1000 * (kIdle + kProbe * kProbes);
  setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof unanswered_ms);
}

class Membership {
 public:
  Membership() : roster_(address_of_roster()) {
    ReachedRoster roster = reach_roster(roster_);
    connection_ = std::move(roster.connection);
    reached_ = roster.address;
    probe_when_idle(connection_.socket());
    listen_anew();
    Introduction introduction;
    introduction.host = host_name();
    introduction.process = getpid();
    introduction.process_space = process_space();
    introduction.port = door_.port;
    introduction.order = number_of("RANK");
    connection_.send({kCome, 0, introduction.text()});
    enter("");
  }

  const RunWorld& world() const { return world_; }
  RunAddress address() const { return {roster_.host, roster_.port, run_}; }

  bool calls() {
    const std::lock_guard lock(mutex_);
    listen();
    return called_ || over_ || end_ || !connection_.open();
  }

  // Whether a rank of this world is lost.
  bool is_over() {
    const std::lock_guard lock(mutex_);
    listen();
    return over_ || end_ || !connection_.open();
  }

  bool roster_is_gone() {
    const std::lock_guard lock(mutex_);
    listen();
    return end_ || !connection_.open();
  }

  void finish() {
    const std::lock_guard lock(mutex_);
    connection_.send({kFinished, 0, ""});
  }

  bool leave(const WorldEnd& end) {
    listen_anew();
    Departure departure;
    departure.world = world_.number;
    departure.port = door_.port;
    departure.patience_s = static_cast<int>(std::ceil(watch_timeout())) + kToLeave;
    departure.leaves = end.leaves;
    departure.did_steps = end.did_steps;
    departure.lost = end.lost;
    departure.why = end.why;
    connection_.send({kReady, 0, departure.text()});
    return enter(end.why);
  }

 private:
  // For the case that this worker becomes rank 0.
  void listen_anew() {
    if (door_.socket >= 0) close(door_.socket);
    door_ = is_loopback(reached_) ? listen_on(reached_, 0) : listen_anywhere();
  }

  void listen() {
    if (!connection_.open()) return;
    connection_.flush();
    connection_.receive([&](const Message& message) {
      if (message.kind == kCall) take_call(message.text);
      if (message.kind == kEnd) end_ = message.text;
      if (message.kind != kWorld) return;
      next_ = new_world_in(message.text);
      called_ = over_ = false;  // these calls were in the world before
    });
  }

  void take_call(const std::string& call) {
    if (call == kCallLeave) return request_leave();
    (call == kCallLost ? over_ : called_) = true;
  }

  // Waits for the next world. False: there is none for this worker, as it wished. why: the reason for the end of the
  // world before; may be empty.
  bool enter(const std::string& why) {
    while (true) {
      {
        const std::lock_guard lock(mutex_);
        listen();
        if (end_ && end_->empty()) return false;
        if (end_) fail(*end_);
        if (next_) break;
        if (!connection_.open())
          fail(why, why.empty() ? "" : "; then ", "the run at ", roster_.host, ":", roster_.port,
               " has ended, has given this worker up, or cannot be reached any more");
      }
      wait_readable({connection_.socket()}, Milliseconds(100));
    }
    const NewWorld now = *std::exchange(next_, std::nullopt);
    world_ = {now.world, now.least, now.change};
    run_ = now.run;
    ProcessLaunch launch;
    launch.rank = now.rank;
    launch.ranks = now.ranks;
    launch.local_rank = now.local_rank;
    launch.local_ranks = now.local_ranks;
    launch.by = "owt launch";
    launch.address = now.address.empty() ? roster_.host : now.address;
    launch.port = now.port;
    launch.shares_gpu = std::getenv("OWT_SHARE_GPU") != nullptr;
    launch.is_over = [this] { return is_over(); };
    if (now.rank == 0) launch.door = std::exchange(door_.socket, -1);
    set_launch(launch);
    return true;
  }

  const RunAddress roster_;
  std::string reached_, run_;  // its numeric address; RunAddress::run
  MessageConnection connection_;
  Listener door_;
  RunWorld world_;

  std::mutex mutex_;  // guards connection_ and the members below
  bool called_ = false, over_ = false;
  std::optional<std::string> end_;
  std::optional<NewWorld> next_;
};

std::unique_ptr<Membership>& membership() {
  static std::unique_ptr<Membership> own;
  return own;
}

}  // namespace

bool has_roster() { return std::getenv(kVariable) != nullptr; }
void come_to_roster() { membership() = std::make_unique<Membership>(); }
const RunWorld& run_world() { return membership()->world(); }
RunAddress run_address() { return membership()->address(); }
bool roster_calls() { return membership() && membership()->calls(); }
bool roster_is_gone() { return membership()->roster_is_gone(); }
void finish_run() { membership()->finish(); }
bool next_world(const WorldEnd& end) { return membership()->leave(end); }

}  // namespace owt
