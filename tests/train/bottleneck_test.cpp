#include "src/train/bottleneck.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/alike_steps.h"

namespace owt::bottleneck_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Kind = StepPart::Kind;

// A rank whose step is its rows plus this time outside of all rows.
RankTimes rank_of(std::vector<RowTimes> rows, double rest_ms = 0) {
  RankTimes rank{.rows = std::move(rows), .step_ms = rest_ms, .steps = 20};
  for (const RowTimes& row : rank.rows) rank.step_ms += row.ms;
  return rank;
}

// A small network on one of several ranks; a step of 100 ms with the transfer's 10.
std::vector<RowTimes> network() {
  return {{"conv1", Phase::kForward, 10},
          {"conv2", Phase::kForward, 15},
          {"loss", Phase::kLoss, 1},
          {"conv2", Phase::kBackward, 25},
          {"conv1", Phase::kBackward, 24},
          {"conv1", Phase::kUpdate, 5},
          {"gradients", Phase::kTransfer, 10, 10, 1'000'000},
          {"data wait", Phase::kData, 5}};
}

RowTimes& row(std::vector<RowTimes>& rows, const std::string& name, Phase phase) {
  return *std::find_if(rows.begin(), rows.end(),
                       [&](const RowTimes& each) { return each.name == name && each.phase == phase; });
}

void expect_that_it_adds_up(const Bottleneck& found) {
  double sum = 0, before = found.step_ms;
  for (const StepPart& part : found.parts) {
    EXPECT_GE(part.ms, 0) << part.name;
    EXPECT_LE(part.ms, before) << "the longest part is first";
    before = part.ms;
    sum += part.ms;
  }
  EXPECT_NEAR(sum, found.step_ms, 1e-9 * found.step_ms) << found.text();
}

Bottleneck find(std::vector<RankTimes> ranks, const std::map<std::string, double>& known = {}) {
  const Bottleneck found = find_bottleneck(alike_steps(ranks), known);
  expect_that_it_adds_up(found);
  return found;
}

TEST(Bottleneck, DataThatNobodyMeasuredTheMakingOfIsNamed) {
  std::vector<RowTimes> rows = network();
  row(rows, "data wait", Phase::kData).ms = 105;
  EXPECT_EQ(find({rank_of(rows)}).parts.front().kind, Kind::kData);
}

// The figures of the example in docs.
TEST(Bottleneck, ALimitedLinkIsNamedWithItsRate) {
  std::vector<RowTimes> rows = network();
  row(rows, "gradients", Phase::kTransfer) = {"gradients", Phase::kTransfer, 212, 212.4, 23'100'000};
  std::vector<RankTimes> ranks{rank_of(rows), rank_of(rows)};
  // It arrived early, and waits for the other rank first.
  RowTimes& early = row(ranks[1].rows, "gradients", Phase::kTransfer);
  early.ms += 5, early.transfer_ms += 5, row(ranks[1].rows, "conv1", Phase::kForward).ms -= 5;
  Bottleneck found = find(ranks, {{"gradients", 196.6}});
  EXPECT_EQ(found.parts.front().kind, Kind::kTransfer);
  EXPECT_EQ(found.text(),
            "step 297.0 ms: 71 % waiting for `gradients` (23.1 MB at 0.87 of 0.94 Gbit/s); then conv2 backward 8 %; "
            "data 2 %.");
  found.advice = "Try --parallel owt-d (predicted 40.0 ms).";
  EXPECT_THAT(found.text(), HasSubstr("data 2 %. Try --parallel owt-d (predicted 40.0 ms)."));
  EXPECT_THAT(find(ranks).text(), HasSubstr("(23.1 MB at 0.87 Gbit/s)"));
}

// Ranks 0 and 2 wait only for rank 1, which takes twice as long for everything.
TEST(Bottleneck, ASlowRankIsNamed) {
  std::vector<RowTimes> slow = network(), others = network();
  for (RowTimes& each : slow)
    if (each.phase != Phase::kTransfer) each.ms *= 2;
  for (double* const ms :
       {&row(others, "gradients", Phase::kTransfer).ms, &row(others, "gradients", Phase::kTransfer).transfer_ms})
    *ms += 85;
  row(slow, "data wait", Phase::kData).ms = row(others, "data wait", Phase::kData).ms = 0;
  const Bottleneck found = find({rank_of(others), rank_of(slow), rank_of(others)});
  EXPECT_EQ(found.parts.front().kind, Kind::kSlowRank);
  EXPECT_EQ(found.rank, 1);
  EXPECT_THAT(found.text(), HasSubstr("step 170.0 ms: 47 % waiting for rank 1 (which is busy for 160.0 ms, the others "
                                      "for 80.0 ms); then conv2 backward 15 %"));
}

TEST(Bottleneck, ARankThatIsSlowForItsDataSaysSo) {
  std::vector<RowTimes> slow = network(), others = network();
  row(slow, "data wait", Phase::kData).ms = 205;
  row(others, "gradients", Phase::kTransfer).ms += 200;
  const Bottleneck found = find({rank_of(slow), rank_of(others)});
  EXPECT_EQ(found.parts.front().kind, Kind::kSlowRank);
  EXPECT_THAT(found.text(), HasSubstr("waiting for rank 0 (which waits 205.0 ms for data; the others 5.0 ms)"));
  EXPECT_THAT(found.text(), HasSubstr("; then conv2 backward 8 %; data 2 %."));
}

TEST(Bottleneck, RanksThatDifferALittleAreNotBlamed) {
  std::vector<RowTimes> slow = network();
  row(slow, "conv1", Phase::kForward).ms += 4;
  EXPECT_EQ(find({rank_of(network()), rank_of(slow)}).parts.front().name, "conv2 backward");
}

// Many layers of next to no time each.
TEST(Bottleneck, AHostBoundStepIsNamed) {
  std::vector<RowTimes> rows;
  for (int i = 0; i < 60; ++i) {
    rows.push_back({"relu" + std::to_string(i), Phase::kForward, 0.01});
    rows.push_back({"relu" + std::to_string(i), Phase::kBackward, 0.01});
  }
  const Bottleneck found = find({rank_of(rows, 4)});
  EXPECT_EQ(found.parts.front().kind, Kind::kHost);
  EXPECT_THAT(found.text(), HasSubstr("step 5.20 ms: 77 % the host, between layers and transfers (all 120 passes and "
                                      "transfers take 1.2 ms); then relu"));
  EXPECT_THAT(found.text(), Not(HasSubstr("data")));
}

// The sum of medians is no median of sums.
TEST(Bottleneck, RowsThatComeToMoreThanTheStepStillAddUpToIt) {
  const Bottleneck found = find({rank_of(network(), -3)});
  EXPECT_DOUBLE_EQ(found.step_ms, 92);
}

TEST(Bottleneck, ATransferTakesWhatTheLastToComeSees) {
  const std::vector<RankTimes> ranks{
      rank_of({{"labels", Phase::kTransfer, 9, 8, 10}, {"rows", Phase::kTransfer, 2, 0, 0}}),
      rank_of({{"labels", Phase::kTransfer, 9, 3, 10}})};
  EXPECT_EQ(transfer_ms_of(ranks, "labels"), 3);
  EXPECT_EQ(transfer_ms_of(ranks, "rows"), 2);  // it could not be timed by itself
  EXPECT_EQ(transfer_ms_of(ranks, "none"), 0);
}

}  // namespace
}  // namespace owt::bottleneck_test
