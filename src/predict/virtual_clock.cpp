#include "src/predict/virtual_clock.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "src/system/check.h"

namespace owt {

void VirtualClock::at(double when, std::function<void()> event) {
  OWT_CHECK(when >= now_, "an event of the past");
  events_.emplace(std::pair(when, count_++), std::move(event));
}

bool VirtualClock::step() {
  if (events_.empty()) return false;
  const auto next = events_.extract(events_.begin());
  now_ = next.key().first;
  next.mapped()();
  return true;
}

// Raises all rates together until a link is full; the rates of the transfers through it are then fixed.
void SharedLinks::share_out() {
  // Share of each link that transfers with rising rates use.
  std::vector<double> free = bandwidths_, wanted(bandwidths_.size());
  std::vector<Transfer*> rising;
  for (Transfer& each : under_way_) {
    rising.push_back(&each);
    for (const Passes& at : each.way) wanted[at.link] += at.share;
  }
  while (!rising.empty()) {
    double rate = INFINITY;
    size_t full = 0;
    for (size_t link = 0; link < free.size(); ++link)
      if (constexpr double kNobody = 1e-9; wanted[link] > kNobody && free[link] / wanted[link] < rate)
        rate = free[link] / wanted[link], full = link;
    const auto stays = [&](Transfer* each) {
      if (std::ranges::none_of(each->way, [&](const Passes& at) { return at.link == full; })) return false;
      each->rate = rate;
      for (const Passes& at : each->way) free[at.link] -= rate * at.share, wanted[at.link] -= at.share;
      return true;
    };
    OWT_CHECK(std::isfinite(rate) && std::erase_if(rising, stays) > 0, "a transfer passes through no link");
  }
}

void SharedLinks::advance() {
  for (Transfer& each : under_way_) each.left -= each.rate * (clock_.now() - at_);
  at_ = clock_.now();
}

void SharedLinks::send(int64_t bytes, Way way, std::function<void()> arrived) {
  advance();
  for (const Passes& at : way) taken_[at.link] += static_cast<double>(bytes) * at.share;
  under_way_.push_back({static_cast<double>(bytes), std::move(way), std::move(arrived)});
  plan_next();
}

// Schedules the next end of a transfer; earlier schedules become invalid.
void SharedLinks::plan_next() {
  const int64_t plan = ++plans_;
  if (under_way_.empty()) return;
  share_out();
  double least = INFINITY;
  for (const Transfer& each : under_way_) least = std::min(least, std::max(0.0, each.left) / each.rate);
  clock_.after(least, [this, plan] {
    if (plan == plans_) end_transfers();
  });
}

// Ends all transfers with less than half a byte left, since times are rounded.
void SharedLinks::end_transfers() {
  advance();
  constexpr double kDone = 0.5;
  std::vector<Transfer> ended;
  const auto done = [](const Transfer& each) { return each.left < kDone; };
  std::copy_if(under_way_.begin(), under_way_.end(), std::back_inserter(ended), done);
  std::erase_if(under_way_, done);
  plan_next();
  for (const Transfer& each : ended) each.arrived();
}

}  // namespace owt
