// Events in virtual time, and transfers that share a link.
#include "src/predict/virtual_clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/system/check.h"

namespace owt::virtual_clock_test {
namespace {

using ::testing::ElementsAre;

void run(VirtualClock& clock) {
  while (clock.step()) {
  }
}

TEST(VirtualClockTest, EventsComeInTheOrderOfTimeAndThenOfAsking) {
  VirtualClock clock;
  std::vector<int> seen;
  clock.at(2, [&] { seen.push_back(2); });
  clock.at(1, [&] {
    seen.push_back(1);
    clock.after(1, [&] { seen.push_back(4); });
  });
  clock.at(2, [&] { seen.push_back(3); });
  run(clock);
  EXPECT_THAT(seen, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(clock.now(), 2);
  EXPECT_THROW(clock.at(1, [] {}), Error);
}

class SharedLinksTest : public ::testing::Test {
 protected:
  // Sends at `when`; the place of the time of arrival.
  void send(SharedLinks& links, double when, int64_t bytes, const SharedLinks::Way& way) {
    arrivals_.emplace_back();
    clock_.at(when, [=, this, &links, to = arrivals_.size() - 1] {
      links.send(bytes, way, [=, this] { arrivals_[to] = clock_.now(); });
    });
  }
  VirtualClock clock_;
  std::vector<double> arrivals_;
};

TEST_F(SharedLinksTest, OneTransferHasTheBandwidthOfTheNarrowestLink) {
  SharedLinks links(clock_, {400, 100, 30});
  send(links, 1, 1000, {{0}, {1}});
  send(links, 20, 1000, {{0}, {2, 0.1}});  // a tenth passes through the third link
  run(clock_);
  EXPECT_DOUBLE_EQ(arrivals_[0], 11);
  EXPECT_NEAR(arrivals_[1], 20 + 1000.0 / 300, 1e-9);
}

// The first alone for 5 s, half of it; then each has a half: the second, of 250 bytes, is done 5 s later, and the first
// has 250 left for itself.
TEST_F(SharedLinksTest, SeveralShareFromMomentToMoment) {
  SharedLinks links(clock_, {100});
  send(links, 0, 1000, {{0}});
  send(links, 5, 250, {{0}});
  run(clock_);
  EXPECT_NEAR(arrivals_[1], 10, 1e-9);
  EXPECT_NEAR(arrivals_[0], 12.5, 1e-9);
}

// Four links of senders into one as wide as two of them.
TEST_F(SharedLinksTest, SeveralServersHaveSeveralLinks) {
  SharedLinks links(clock_, {100, 100, 100, 100, 200});
  for (size_t i = 0; i < 4; ++i) send(links, 0, 100, {{i}, {4}});
  run(clock_);
  for (const double arrival : arrivals_) EXPECT_NEAR(arrival, 2, 1e-9);
}

// Two share a link, and one of them another with a third, which has all that the two leave of it.
TEST_F(SharedLinksTest, WhatAFullLinkLeavesOthersTake) {
  SharedLinks links(clock_, {30, 100});
  send(links, 0, 15, {{0}});
  send(links, 0, 15, {{0}, {1}});
  send(links, 0, 85, {{1}});
  run(clock_);
  for (const double arrival : arrivals_) EXPECT_NEAR(arrival, 1, 1e-9);
}

TEST_F(SharedLinksTest, NothingTakesNoTime) {
  SharedLinks links(clock_, {100});
  send(links, 3, 0, {{0}});
  run(clock_);
  EXPECT_EQ(arrivals_[0], 3);
}

TEST_F(SharedLinksTest, BytesOverTheBandwidthIsTheTimeOfManyTransfers) {
  SharedLinks links(clock_, {1e9, 2e9});
  int64_t bytes = 0;
  for (int i = 0; i < 1000; ++i) {
    const int64_t each = 1'000'000 + 1000 * (i % 7);
    send(links, i * 1e-4, each, {{0}, {1, 0.5}});
    bytes += each;
  }
  run(clock_);
  EXPECT_NEAR(clock_.now(), static_cast<double>(bytes) / 1e9, 1e-6);
}

}  // namespace
}  // namespace owt::virtual_clock_test
