// A clock that jumps from one event to the next, and links in its time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

namespace owt {

// Events at the same time come in the order in which they were asked for, so that a simulation is a function of what
// goes into it.
class VirtualClock {
 public:
  double now() const { return now_; }                 // seconds
  void at(double when, std::function<void()> event);  // `when` is not past
  void after(double seconds, std::function<void()> event) { at(now_ + seconds, std::move(event)); }
  bool step();  // to the next event, which happens; false: there is none

 private:
  std::map<std::pair<double, int64_t>, std::function<void()>> events_;
  double now_ = 0;
  int64_t count_ = 0;
};

// One way through a link that transfers share: each of n under way has a bandwidth of min(each, all / n), from moment
// to moment.
class SharedLink {
 public:
  // Bytes per second, > 0. The clock must outlive this, and this all transfers.
  SharedLink(VirtualClock& clock, double all, double each) : clock_(clock), all_(all), each_(each) {}

  void send(int64_t bytes, std::function<void()> arrived);
  int64_t bytes() const { return bytes_; }  // of all transfers so far

 private:
  struct Transfer {
    double left;  // bytes
    std::function<void()> arrived;
  };
  double rate() const;  // of each
  void go_on();         // to the clock's time
  void plan_next();
  void end_transfers();

  VirtualClock& clock_;
  double all_, each_, at_ = 0;
  std::vector<Transfer> under_way_;
  int64_t plans_ = 0, bytes_ = 0;
};

}  // namespace owt
