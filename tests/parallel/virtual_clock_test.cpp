// Events in virtual time, and transfers that share a link.
#include "src/parallel/virtual_clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/core/check.h"

namespace owt {
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

class SharedLinkTest : public ::testing::Test {
 protected:
  // Sends at `when`; the place of the time of arrival.
  void send(SharedLink& link, double when, int64_t bytes) {
    arrivals_.emplace_back();
    clock_.at(when, [=, this, &link, to = arrivals_.size() - 1] {
      link.send(bytes, [=, this] { arrivals_[to] = clock_.now(); });
    });
  }
  VirtualClock clock_;
  std::vector<double> arrivals_;
};

TEST_F(SharedLinkTest, OneTransferHasWhatOneMayHave) {
  SharedLink link(clock_, 400, 100);
  send(link, 1, 1000);
  run(clock_);
  EXPECT_DOUBLE_EQ(arrivals_[0], 11);
  EXPECT_EQ(link.bytes(), 1000);
}

// The first alone for 5 s, half of it; then each has a half: the second, of 250 bytes, is done 5 s later, and the first
// has 250 left for itself.
TEST_F(SharedLinkTest, SeveralShareFromMomentToMoment) {
  SharedLink link(clock_, 100, 100);
  send(link, 0, 1000);
  send(link, 5, 250);
  run(clock_);
  EXPECT_NEAR(arrivals_[1], 10, 1e-9);
  EXPECT_NEAR(arrivals_[0], 12.5, 1e-9);
}

TEST_F(SharedLinkTest, SeveralServersHaveSeveralLinks) {
  SharedLink link(clock_, 200, 100);
  for (int i = 0; i < 4; ++i) send(link, 0, 100);
  run(clock_);
  for (const double arrival : arrivals_) EXPECT_NEAR(arrival, 2, 1e-9);
}

TEST_F(SharedLinkTest, NothingTakesNoTime) {
  SharedLink link(clock_, 100, 100);
  send(link, 3, 0);
  run(clock_);
  EXPECT_EQ(arrivals_[0], 3);
}

TEST_F(SharedLinkTest, BytesOverTheBandwidthIsTheTimeOfManyTransfers) {
  SharedLink link(clock_, 1e9, 1e9);
  for (int i = 0; i < 1000; ++i) send(link, i * 1e-4, 1'000'000 + 1000 * (i % 7));
  run(clock_);
  EXPECT_NEAR(clock_.now(), static_cast<double>(link.bytes()) / 1e9, 1e-6);
}

}  // namespace
}  // namespace owt
