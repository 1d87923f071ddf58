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

// Links that transfers share, each in one direction, as by max-min fairness: from moment to moment all transfers have
// the same bandwidth but for those that a full link gives less, and no link stays idle that one of them could use.
class SharedLinks {
 public:
  // What of a transfer's bytes passes through a link, 0 to 1.
  struct Passes {
    size_t link = 0;
    double share = 1;
  };
  using Way = std::vector<Passes>;

  // Bytes per second of every link, > 0. The clock must outlive this, and this all transfers.
  SharedLinks(VirtualClock& clock, std::vector<double> bandwidths)
      : clock_(clock), bandwidths_(std::move(bandwidths)), taken_(bandwidths_.size()) {}

  // way: at least one link that all of it passes through.
  void send(int64_t bytes, Way way, std::function<void()> arrived);
  double taken(size_t link) const { return taken_[link]; }  // bytes of all transfers that have begun

 private:
  struct Transfer {
    double left;  // bytes
    Way way;
    std::function<void()> arrived;
    double rate = 0;
  };
  void share_out();
  void go_on();  // to the clock's time
  void plan_next();
  void end_transfers();

  VirtualClock& clock_;
  std::vector<double> bandwidths_, taken_;
  double at_ = 0;
  std::vector<Transfer> under_way_;
  int64_t plans_ = 0;
};

}  // namespace owt
