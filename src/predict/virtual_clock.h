// A clock that jumps from event to event, and links that work by its time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

namespace owt {

// Simultaneous events happen in the order in which they were added, so a simulation is a function of its input.
class VirtualClock {
 public:
  double now() const { return now_; }                 // seconds
  void at(double when, std::function<void()> event);  // `when` must not be in the past
  void after(double seconds, std::function<void()> event) { at(now_ + seconds, std::move(event)); }
  bool step();  // advances to the next event and runs it; false: there is none

 private:
  std::map<std::pair<double, int64_t>, std::function<void()>> events_;
  double now_ = 0;
  int64_t count_ = 0;
};

// Links that transfers share by max-min fairness, each in one direction. At any time all transfers have the same
// bandwidth, except those limited to less by a full link; no link is idle that a transfer could use.
class SharedLinks {
 public:
  // The fraction of a transfer's bytes that passes through a link, 0 to 1.
  struct Passes {
    size_t link = 0;
    double share = 1;
  };
  using Way = std::vector<Passes>;

  // bandwidths: bytes per second of every link, > 0. The clock must outlive this, and this must outlive all transfers.
  SharedLinks(VirtualClock& clock, std::vector<double> bandwidths)
      : clock_(clock), bandwidths_(std::move(bandwidths)), taken_(bandwidths_.size()) {}

  // way: contains at least one link with share 1.
  void send(int64_t bytes, Way way, std::function<void()> arrived);
  double taken(size_t link) const { return taken_[link]; }  // bytes of all transfers that have begun

 private:
  struct Transfer {
    double left;  // bytes left to transfer
    Way way;
    std::function<void()> arrived;
    double rate = 0;
  };
  void share_out();
  void advance();  // advances all transfers to the clock's time
  void plan_next();
  void end_transfers();

  VirtualClock& clock_;
  std::vector<double> bandwidths_, taken_;
  double at_ = 0;
  std::vector<Transfer> under_way_;
  int64_t plans_ = 0;
};

}  // namespace owt
