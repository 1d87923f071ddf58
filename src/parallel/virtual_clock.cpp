#include "src/parallel/virtual_clock.h"

#include <algorithm>
#include <iterator>

#include "src/core/check.h"

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

double SharedLink::rate() const { return std::min(each_, all_ / static_cast<double>(under_way_.size())); }

void SharedLink::go_on() {
  for (Transfer& each : under_way_) each.left -= rate() * (clock_.now() - at_);
  at_ = clock_.now();
}

void SharedLink::send(int64_t bytes, std::function<void()> arrived) {
  go_on();
  bytes_ += bytes;
  under_way_.push_back({static_cast<double>(bytes), std::move(arrived)});
  plan_next();
}

// What was planned before holds no more.
void SharedLink::plan_next() {
  const int64_t plan = ++plans_;
  if (under_way_.empty()) return;
  const auto less = [](const Transfer& a, const Transfer& b) { return a.left < b.left; };
  const double least = std::max(0.0, std::min_element(under_way_.begin(), under_way_.end(), less)->left);
  clock_.after(least / rate(), [this, plan] {
    if (plan == plans_) end_transfers();
  });
}

// All those that have less than a byte left, since times are rounded.
void SharedLink::end_transfers() {
  go_on();
  constexpr double kDone = 0.5;
  std::vector<Transfer> ended;
  const auto done = [](const Transfer& each) { return each.left < kDone; };
  std::copy_if(under_way_.begin(), under_way_.end(), std::back_inserter(ended), done);
  std::erase_if(under_way_, done);
  plan_next();
  for (const Transfer& each : ended) each.arrived();
}

}  // namespace owt
