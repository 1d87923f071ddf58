// The roster of a run whose workers change: who they are, and their ranks. owt launch --elastic keeps it.
//
// The workers are in a world: ranks 0 to K - 1 that are connected to each other. The roster takes no part in its steps.
// The world ends when a rank is lost, which the other ranks notice themselves (src/comm/watch.h), or when the roster
// calls all ranks because workers have come, or asks some to leave because fewer are wanted. Each remaining rank then
// leaves the world and says so to the roster. When all have, the roster makes the next world of them and the newcomers.
// Old ranks come first, in their old order.
//
// A rank that does not leave its world is dropped: after `grace_s` if another rank has named it as lost and all others
// have left, and in any case after Departure::patience_s. A closed connection drops a rank at once.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/roster/roster_words.h"
#include "src/system/sockets.h"

namespace owt {

class Roster {
 public:
  using Clock = std::chrono::steady_clock;
  struct Limits {
    int first = 1;            // workers of the first world
    int least = 1, most = 1;  // workers of the later ones
    double start_s = 60;      // for the first world; then the run ends
    double grace_s = 1;
  };

  Roster(Listener listener, const Limits& limits);
  ~Roster();
  Roster(const Roster&) = delete;
  Roster& operator=(const Roster&) = delete;

  // look() is due when one of the sockets is readable, and at the latest after this time. It does not wait.
  std::vector<int> sockets() const;
  std::chrono::milliseconds rest() const;
  void look();

  int connected() const { return static_cast<int>(workers_.size()); }  // number of workers
  bool finished() const { return finished_; }                          // rank 0 has said so
  // Lines for people since the last call: which workers have come and gone.
  std::vector<std::string> take_news();
  // Numbers (Introduction::order) of the workers that were asked for since the last call (ask_roster()), to be started.
  std::vector<int> take_wanted();
  // The worker of this number could not be started, or has ended.
  void forget(int number) { coming_.erase(number); }
  // Processes of this process space that were dropped since the last call, although they exist: their connections were
  // open.
  std::vector<int> take_dropped();
  // Why the run has ended, if the roster has ended it.
  const std::optional<std::string>& end() const { return end_; }

 private:
  struct ListedWorker {
    MessageConnection connection;
    Introduction who;
    std::string address;                 // the address that the roster sees; empty: this host
    int rank = -1;                       // in the current world; -1: none
    std::optional<Departure> departure;  // it has left the current world
    bool named = false;                  // another rank has named it as lost
    bool asked = false;                  // to leave the run
  };

  bool in_world(const ListedWorker& worker) const { return worker.rank >= 0 && !worker.departure; }
  void receive(ListedWorker& worker);
  void take_introduction(ListedWorker& worker, const Message& message);
  void take_departure(ListedWorker& worker, const Departure& departure);
  void answer(MessageConnection& asker, const RunQuestion& question);
  std::string why_not(const RunQuestion& question) const;
  int soon() const;
  void change_to(int workers);
  void lose(ListedWorker& worker, const std::string& how);
  void drop_late();
  void make_world();
  void call(const std::string& why);
  void end_run(const std::string& why);
  std::string change() const;
  std::optional<Clock::time_point> deadline() const;

  const Listener listener_;
  const Limits limits_;
  const std::string run_;  // RunAddress::run
  const Clock::time_point began_ = Clock::now();
  std::vector<ListedWorker> workers_;      // by rank; then newcomers
  std::vector<MessageConnection> comers_;  // have not said yet who they are
  bool finished_ = false;
  int world_ = -1;
  int worlds_without_steps_ = 0;
  // About the current world:
  std::optional<Clock::time_point> over_since_, last_departure_;
  int patience_s_ = 0;
  std::string why_;                         // the first reason for its end
  std::map<int, std::string> reasons_;      // why other ranks have named a rank as lost
  std::map<int, std::string> lost_, left_;  // lines about ranks that are lost or have left
  std::vector<std::string> news_;
  std::vector<int> dropped_;
  std::set<int> coming_;     // numbers of the workers that were asked for and have not come yet
  std::vector<int> wanted_;  // for take_wanted()
  int next_number_;
  std::optional<std::string> end_;
};

}  // namespace owt
