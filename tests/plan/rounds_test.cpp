#include "src/plan/rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "src/system/check.h"
#include "tests/support/message_of.h"

namespace owt::rounds_test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

constexpr Strategy kSchemes[] = {Strategy::kOwtA, Strategy::kOwtB, Strategy::kOwtC, Strategy::kOwtD};

// One text per round: "0:0-4 1:0-4" is rows [0, 4) of rank 0, then of rank 1.
std::vector<std::string> texts(const std::vector<Round>& rounds) {
  std::vector<std::string> all;
  for (const Round& round : rounds) {
    all.emplace_back();
    for (const RowRange& range : round)
      all.back() += concat(all.back().empty() ? "" : " ", range.rank, ":", range.begin, "-", range.end);
  }
  return all;
}

std::vector<std::string> rounds_of(Strategy strategy, int ranks, int64_t step_rows, int rank = 0) {
  return texts(StepRows(strategy, ranks, step_rows).rounds(rank));
}

TEST(Rounds, OfSchemeAAreOneBatchOfAllRows) {
  EXPECT_THAT(rounds_of(Strategy::kOwtA, 2, 8), ElementsAre("0:0-4 1:0-4"));
  EXPECT_THAT(rounds_of(Strategy::kOwtA, 3, 15), ElementsAre("0:0-5 1:0-5 2:0-5"));
}

TEST(Rounds, OfSchemeBAreOneRanksRowsEach) {
  EXPECT_THAT(rounds_of(Strategy::kOwtB, 2, 8), ElementsAre("0:0-4", "1:0-4"));
  EXPECT_THAT(rounds_of(Strategy::kOwtB, 3, 15), ElementsAre("0:0-5", "1:0-5", "2:0-5"));
}

TEST(Rounds, OfSchemeCAreAShareOfEveryRanksRows) {
  EXPECT_THAT(rounds_of(Strategy::kOwtC, 2, 8), ElementsAre("0:0-2 1:0-2", "0:2-4 1:2-4"));
  EXPECT_THAT(rounds_of(Strategy::kOwtC, 3, 15),
              ElementsAre("0:0-2 1:0-2 2:0-2", "0:2-4 1:2-4 2:2-4", "0:4-5 1:4-5 2:4-5"));
}

TEST(Rounds, OfAModelGroupHoldItsOwnRowsOnly) {
  // Four ranks with two rows each, in two groups.
  const StepRows rows(Strategy::kOwtC, 4, 8, 2);
  EXPECT_THAT(texts(rows.rounds(3)), ElementsAre("0:0-1 1:0-1", "0:1-2 1:1-2"));
  EXPECT_THAT(rows.indexes(rows.rounds(3)[1], 3), ElementsAre(5, 7));
  EXPECT_THAT(rows.indexes(rows.rounds(0)[1], 0), ElementsAre(1, 3));
  const StepRows whole(Strategy::kModelParallel, 4, 9, 2);
  EXPECT_EQ(whole.of(1), (Slice{0, 5}));
  EXPECT_EQ(whole.of(2), (Slice{5, 9}));
  EXPECT_THAT(whole.indexes(whole.rounds(2)[0], 2), ElementsAre(5, 6, 7, 8));
}

TEST(Rounds, OfUnevenRowsGiveTheFirstRanksOneMore) {
  EXPECT_THAT(rounds_of(Strategy::kOwtA, 3, 7), ElementsAre("0:0-3 1:0-2 2:0-2"));
  EXPECT_THAT(rounds_of(Strategy::kOwtB, 3, 7), ElementsAre("0:0-3", "1:0-2", "2:0-2"));
  EXPECT_THAT(rounds_of(Strategy::kOwtC, 3, 7),
              ElementsAre("0:0-1 1:0-1 2:0-1", "0:1-2 1:1-2 2:1-2", "0:2-3 1:2-2 2:2-2"));
}

TEST(Rounds, OfDataAndModelParallelAreTheRanksOwnRows) {
  EXPECT_THAT(rounds_of(Strategy::kDataParallel, 3, 7, 0), ElementsAre("0:0-3"));
  EXPECT_THAT(rounds_of(Strategy::kDataParallel, 3, 7, 2), ElementsAre("2:0-2"));
  EXPECT_THAT(rounds_of(Strategy::kModelParallel, 3, 7, 2), ElementsAre("2:0-7"));
}

TEST(Rounds, EveryRowOfEveryRankIsSentExactlyOnce) {
  for (const Strategy scheme : kSchemes)
    for (int ranks = 1; ranks <= 8; ++ranks)
      for (const int64_t step_rows : {0, 1, 3, 7, 8, 16, 61, 64}) {
        SCOPED_TRACE(concat(name_of(scheme), ", ", ranks, " ranks, ", step_rows, " rows"));
        const StepRows rows(scheme, ranks, step_rows);
        std::vector<int> sent(static_cast<size_t>(step_rows), 0);
        for (const Round& round : rows.rounds(0))
          for (const RowRange& range : round) {
            ASSERT_LE(range.end, rows.of(range.rank).size());
            for (int64_t i = range.begin; i < range.end; ++i)
              ++sent[static_cast<size_t>(rows.of(range.rank).begin + i)];
          }
        EXPECT_THAT(sent, Each(1));
      }
}

TEST(Rounds, AllRanksAgreeOnTheRoundsOfAScheme) {
  for (const Strategy scheme : kSchemes)
    for (int ranks = 1; ranks <= 8; ++ranks)
      for (int rank = 1; rank < ranks; ++rank)
        EXPECT_EQ(rounds_of(scheme, ranks, 29, rank), rounds_of(scheme, ranks, 29, 0));
}

TEST(Rounds, ThereIsOneOfSchemesAAndDAndOnePerRankOfSchemesBAndC) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    EXPECT_EQ(rounds_of(Strategy::kOwtA, ranks, 16).size(), 1u);
    EXPECT_EQ(rounds_of(Strategy::kOwtD, ranks, 16), rounds_of(Strategy::kOwtA, ranks, 16));
    EXPECT_EQ(rounds_of(Strategy::kOwtB, ranks, 16).size(), static_cast<size_t>(ranks));
    EXPECT_EQ(rounds_of(Strategy::kOwtC, ranks, 16).size(), static_cast<size_t>(ranks));
  }
}

TEST(Rounds, OfSchemeCDifferByOneRowPerRankAtMost) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    const auto rounds = StepRows(Strategy::kOwtC, ranks, 61).rounds(0);
    EXPECT_LE(rows_of(rounds.front()) - rows_of(rounds.back()), ranks);
  }
}

TEST(StepRows, AreDealtInRankOrder) {
  const StepRows rows(Strategy::kOwtA, 3, 7);
  EXPECT_EQ(rows.of(0), (Slice{0, 3}));
  EXPECT_EQ(rows.of(1), (Slice{3, 5}));
  EXPECT_EQ(rows.of(2), (Slice{5, 7}));
  EXPECT_EQ(rows.most(), 3);
  EXPECT_EQ(rows.total(), 7);
}

TEST(StepRows, UnderModelParallelAreAllOnEveryRank) {
  const StepRows rows(Strategy::kModelParallel, 3, 7);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(rows.of(rank), (Slice{0, 7}));
  EXPECT_EQ(rows.most(), 7);
}

void expect_sizes_of_rounds(const StepRows& rows, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    const auto rounds = rows.rounds(rank);
    const auto sizes = rows.round_sizes(rank);
    EXPECT_EQ(rows.count_rounds(), std::ssize(rounds));
    ASSERT_EQ(sizes.size(), rounds.size());
    for (size_t r = 0; r < rounds.size(); ++r) {
      int64_t longest = 0;
      for (const RowRange& range : rounds[r]) longest = std::max(longest, range.size());
      EXPECT_EQ(sizes[r].rows, rows_of(rounds[r]));
      EXPECT_EQ(sizes[r].longest, longest);
    }
  }
}

TEST(StepRows, SizesOfRoundsAreThoseOfTheirRanges) {
  for (const Strategy strategy : all_strategies())
    for (const int ranks : {1, 2, 3, 6, 8})
      for (const int model_ranks : {0, 1, 2})
        for (const int64_t step_rows : {1, 7, 61, 96}) {
          if (model_ranks > 0 && ranks % model_ranks != 0) continue;
          std::vector<double> shares;
          for (int rank = 0; rank < ranks; ++rank) shares.push_back(1 + rank * 5 % 7);
          for (const bool unequal : {false, true})
            expect_sizes_of_rounds(
                StepRows(strategy, ranks, step_rows, model_ranks, unequal ? shares : std::vector<double>()), ranks);
        }
}

TEST(StepRows, OfDataParallelCoverTheStepOnce) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    int64_t next = 0;
    const StepRows rows(Strategy::kDataParallel, ranks, 61);
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(rows.of(rank).begin, next);
      EXPECT_EQ(rows_of(rows.rounds(rank).at(0)), rows.of(rank).size());
      next = rows.of(rank).end;
    }
    EXPECT_EQ(next, 61);
  }
}

TEST(EndsOfParts, AreThoseOfRoundedQuotasAndTheLargestRemaindersGetWhatIsLeft) {
  EXPECT_THAT(ends_of_parts(8, {2, 1, 1}), ElementsAre(4, 6, 8));
  EXPECT_THAT(ends_of_parts(10, {2, 1, 1}), ElementsAre(5, 8, 10));  // 5, 2.5 and 2.5: the first of equals
  EXPECT_THAT(ends_of_parts(10, {1, 0.52}), ElementsAre(7, 10));     // 6.58 and 3.42
  EXPECT_THAT(ends_of_parts(3, {1, 100, 1}), ElementsAre(0, 3, 3));  // 0.03, 2.94 and 0.03
  EXPECT_THAT(ends_of_parts(0, {1, 2}), ElementsAre(0, 0));
  EXPECT_THAT(ends_of_parts(7, {3}), ElementsAre(7));
  EXPECT_THAT(ends_of_parts(6, {1e308, 1e308, 1e-308}), ElementsAre(3, 6, 6));
}

// One to 40 parts with shares of many sizes, drawn from a list that repeats itself.
std::vector<double> drawn_shares(int parts, int draw) {
  std::vector<double> shares;
  for (int i = 0; i < parts; ++i) {
    const int number = 1 + (i * 7919 + draw * 104729) % 997;
    shares.push_back(draw % 3 == 0 ? number : draw % 3 == 1 ? 1.0 / number : std::exp(number / 40.0));
  }
  return shares;
}

TEST(EndsOfParts, CoverTheTotalInOrderWithPartsThatRoundTheirQuotas) {
  for (int parts = 1; parts <= 40; ++parts)
    for (int draw = 0; draw < 30; ++draw)
      for (const int64_t total : {0, 1, 5, 64, 1000, 1 << 24}) {
        SCOPED_TRACE(concat(parts, " parts, draw ", draw, ", of ", total));
        const std::vector<double> shares = drawn_shares(parts, draw);
        const std::vector<int64_t> ends = ends_of_parts(total, shares);
        ASSERT_EQ(std::ssize(ends), parts);
        ASSERT_EQ(ends.back(), total);
        const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
        for (size_t i = 0; i < ends.size(); ++i) {
          const double quota = static_cast<double>(total) * shares[i] / sum;
          ASSERT_NEAR(static_cast<double>(ends[i] - (i > 0 ? ends[i - 1] : 0)), quota, 1 + 1e-6);
        }
      }
}

TEST(EndsOfParts, OfEqualSharesAreThoseOfASplit) {
  for (int parts = 1; parts <= 50; ++parts)
    for (const double share : {1.0, 0.1, 7.0})
      for (const int64_t total : {0, 1, 49, 61, 1024}) {
        const std::vector<int64_t> ends = ends_of_parts(total, std::vector<double>(static_cast<size_t>(parts), share));
        for (int i = 0; i < parts; ++i) ASSERT_EQ(ends[static_cast<size_t>(i)], split(total, parts, i).end);
      }
}

TEST(StepRows, AreDealtByShares) {
  const StepRows rows(Strategy::kOwtA, 3, 10, 0, {1, 3, 2});
  EXPECT_EQ(rows.of(0), (Slice{0, 2}));
  EXPECT_EQ(rows.of(1), (Slice{2, 7}));
  EXPECT_EQ(rows.of(2), (Slice{7, 10}));
  EXPECT_EQ(rows.most(), 5);
  EXPECT_EQ(rows.text(), "2 + 5 + 3");
  EXPECT_THAT(texts(rows.rounds(0)), ElementsAre("0:0-2 1:0-5 2:0-3"));
  EXPECT_THAT(texts(StepRows(Strategy::kOwtC, 3, 10, 0, {1, 3, 2}).rounds(2)),
              ElementsAre("0:0-1 1:0-2 2:0-1", "0:1-2 1:2-4 2:1-2", "0:2-2 1:4-5 2:2-3"));
}

TEST(StepRows, OfARankWithASmallShareMayBeNone) {
  const StepRows rows(Strategy::kOwtB, 3, 4, 0, {10, 1, 10});
  EXPECT_THAT(texts(rows.rounds(1)), ElementsAre("0:0-2", "1:0-0", "2:0-2"));
}

// Micro-batch s of the step is the s-th part of every rank's rows, wherever these are in the step.
TEST(StepRows, OfAMicroBatchArePartsOfTheRowsOfEveryRank) {
  const StepRows rows(Strategy::kOwtA, 3, 14, 0, {}, 1, 2);  // 5, 5 and 4 rows
  EXPECT_EQ(rows.slices(), 2);
  EXPECT_EQ(rows.of(1), (Slice{5, 10}));
  EXPECT_EQ(rows.slice(0).of(1), (Slice{5, 8}));
  EXPECT_EQ(rows.slice(1).of(1), (Slice{8, 10}));
  EXPECT_EQ(rows.slice(1).of(2), (Slice{12, 14}));
  EXPECT_EQ(rows.slice(0).most(), 3);
  EXPECT_THAT(texts(rows.slice(1).rounds(0)), ElementsAre("0:0-2 1:0-2 2:0-2"));
  EXPECT_THAT(texts(rows.rounds(0)), ElementsAre("0:0-3 1:0-3 2:0-2", "0:3-5 1:3-5 2:2-4"));
  EXPECT_THAT(rows.slice(1).indexes(rows.slice(1).rounds(0)[0], 0), ElementsAre(3, 4, 8, 9, 12, 13));
  EXPECT_EQ(rows.indexes(rows.rounds(0)[1], 0), rows.slice(1).indexes(rows.slice(1).rounds(0)[0], 0));
}

TEST(StepRows, OfAMicroBatchHaveTheRoundsOfTheScheme) {
  const auto of_slices = [](Strategy strategy, int rank) {
    return texts(StepRows(strategy, 2, 8, 0, {}, 1, 2).rounds(rank));
  };
  EXPECT_THAT(of_slices(Strategy::kDataParallel, 1), ElementsAre("1:0-2", "1:2-4"));
  EXPECT_THAT(of_slices(Strategy::kModelParallel, 0), ElementsAre("0:0-4", "0:4-8"));
  EXPECT_THAT(of_slices(Strategy::kOwtB, 0), ElementsAre("0:0-2", "1:0-2", "0:2-4", "1:2-4"));
  EXPECT_THAT(of_slices(Strategy::kOwtC, 0), ElementsAre("0:0-1 1:0-1", "0:1-2 1:1-2", "0:2-3 1:2-3", "0:3-4 1:3-4"));
}

TEST(StepRows, OfMicroBatchesAreEqualWhereEveryRankOfTheGroupHasAsMany) {
  const StepRows rows(Strategy::kOwtA, 2, 11, 0, {}, 1, 3);  // 2 2 2 and 2 2 1
  EXPECT_EQ(rows.first_alike(1, 0), 0);
  EXPECT_EQ(rows.first_alike(2, 0), 2);
  EXPECT_EQ(rows.first_alike(2, 1), 2);
  const StepRows alone(Strategy::kDataParallel, 2, 11, 1, {}, 1, 3);
  EXPECT_EQ(alone.first_alike(2, 0), 0);
}

TEST(StepRows, OfAllMicroBatchesAreThoseOfTheStepOnceAndTheFirstRankHasTheMostOfEach) {
  for (const std::vector<double>& shares : {std::vector<double>(), {2, 1, 4}})
    for (const Strategy strategy : {Strategy::kDataParallel, Strategy::kOwtC})
      for (int64_t step_rows = 0; step_rows < 40; ++step_rows)
        for (int slices = 1; slices < 6; ++slices) {
          const StepRows rows(strategy, 3, step_rows, strategy == Strategy::kDataParallel ? 1 : 3, shares, 1, slices);
          std::vector<int64_t> found;
          for (int s = 0; s < slices; ++s) {
            for (int rank = 0; rank < 3; ++rank) {
              const Slice of = rows.slice(s).of(rank);
              for (int64_t row = of.begin; row < of.end; ++row) found.push_back(row);
              if (shares.empty()) {
                EXPECT_LE(of.size(), rows.slice(s).of(0).size());
              }
            }
            expect_sizes_of_rounds(rows.slice(s), 3);
          }
          expect_sizes_of_rounds(rows, 3);
          std::sort(found.begin(), found.end());
          ASSERT_EQ(std::ssize(found), step_rows);
          for (int64_t row = 0; row < step_rows; ++row) ASSERT_EQ(found[static_cast<size_t>(row)], row);
        }
}

TEST(StepRows, OfModelGroupsDifferWhereSharesDo) {
  const StepRows rows(Strategy::kOwtA, 4, 16, 2, {1, 3, 6, 6});
  EXPECT_THAT(texts(rows.rounds(1)), ElementsAre("0:0-1 1:0-3"));
  EXPECT_THAT(texts(rows.rounds(2)), ElementsAre("0:0-6 1:0-6"));
  EXPECT_EQ(rows.most(), 6);
  EXPECT_EQ(rows.most_beside(0), 3);
  EXPECT_EQ(rows.most_beside(3), 6);
  EXPECT_EQ(rows.busiest_group(), 2);
}

TEST(StepRows, ThatAGroupHasInCommonFollowItsSlowestRank) {
  const StepRows rows(Strategy::kModelParallel, 4, 9, 2, {5, 2, 1, 8});
  EXPECT_EQ(rows.of(1), (Slice{0, 6}));
  EXPECT_EQ(rows.of(2), (Slice{6, 9}));
  EXPECT_EQ(rows.text(), "6 + 3");
  EXPECT_EQ(StepRows(Strategy::kModelParallel, 3, 7, 0, {1, 2, 3}).of(2), (Slice{0, 7}));
}

StepRows in_groups(Strategy strategy, int ranks, int64_t step_rows, int64_t row_group, int64_t round_group = 1,
                   const std::vector<double>& shares = {}, int equal_parts = 1) {
  return {strategy, ranks, step_rows, 0, shares, equal_parts, 1, row_group, round_group};
}

TEST(StepRows, AreDealtInWholeGroups) {
  const StepRows rows = in_groups(Strategy::kDataParallel, 2, 75, 32);
  EXPECT_EQ(rows.of(0), (Slice{0, 32}));
  EXPECT_EQ(rows.of(1), (Slice{32, 75}));
  EXPECT_EQ(rows.most(), 43);
  EXPECT_FALSE(rows.alike());
  EXPECT_EQ(rows.text(), "32 + 43");
  const StepRows even = in_groups(Strategy::kDataParallel, 4, 128, 32);
  EXPECT_TRUE(even.alike());
  EXPECT_EQ(even.text(), "32");
  EXPECT_EQ(in_groups(Strategy::kDataParallel, 3, 8, 4).of(2), (Slice{8, 8}));
  EXPECT_EQ(in_groups(Strategy::kDataParallel, 2, 32, 8, 1, {3, 1}).of(1), (Slice{24, 32}));
}

TEST(StepRows, OfRoundsAreWholeGroupsWhereDenseLayersHaveGroups) {
  EXPECT_THAT(texts(in_groups(Strategy::kOwtC, 2, 16, 4).rounds(0)), ElementsAre("0:0-4 1:0-4", "0:4-8 1:4-8"));
  EXPECT_THAT(texts(in_groups(Strategy::kOwtC, 2, 12, 4).rounds(0)), ElementsAre("0:0-4 1:0-2", "0:4-8 1:2-4"));
  EXPECT_THAT(texts(in_groups(Strategy::kOwtC, 2, 12, 4, 4).rounds(0)), ElementsAre("0:0-4 1:0-4", "0:4-8 1:4-4"));
  EXPECT_THAT(texts(in_groups(Strategy::kPipeline, 2, 15, 4, 4, {}, 2).rounds(0)), ElementsAre("0:0-8", "0:8-15"));
}

TEST(StepRows, OfMicroBatchesAreWholeGroups) {
  const StepRows rows(Strategy::kDataParallel, 2, 22, 0, {}, 1, 2, 4);
  EXPECT_THAT(texts(rows.rounds(0)), ElementsAre("0:0-8", "0:8-12"));
  EXPECT_THAT(texts(rows.rounds(1)), ElementsAre("1:0-8", "1:8-10"));
}

// What a rank or a round begins with is a multiple of the group's rows, and only the last one ends at none.
TEST(StepRows, BeginAtAGroupWhereverTheyAreDealt) {
  for (const Strategy strategy : all_strategies())
    for (const int ranks : {1, 2, 3, 4})
      for (const int64_t step_rows : {1, 5, 6, 7, 23, 24, 48}) {
        SCOPED_TRACE(concat(name_of(strategy), ", ", ranks, " ranks, ", step_rows, " rows"));
        const StepRows rows = in_groups(strategy, ranks, step_rows, 8, 4, {}, 3);
        for (const Round& round : rows.rounds(0))
          for (const RowRange& range : round) {
            const Slice own = rows.of(range.rank);
            EXPECT_TRUE(own.begin % 8 == 0 || own.begin == step_rows);
            EXPECT_TRUE(range.begin % 4 == 0 || own.begin + range.begin == step_rows);
            EXPECT_TRUE(range.end % 4 == 0 || own.begin + range.end == step_rows);
          }
        expect_sizes_of_rounds(rows, ranks);
      }
}

TEST(StepRows, AreShownForEachRankWhereTheyDiffer) {
  EXPECT_EQ(StepRows(Strategy::kDataParallel, 3, 100).text(), "34 + 33 + 33");
  EXPECT_EQ(StepRows(Strategy::kDataParallel, 3, 99).text(), "33");
  EXPECT_EQ(StepRows(Strategy::kModelParallel, 3, 100).text(), "100");
  EXPECT_EQ(StepRows(Strategy::kModelParallel, 6, 100, 2).text(), "34 + 33 + 33");
}

TEST(StepRows, OfManyRanksAreShownAsTheLeastAndTheMost) {
  EXPECT_EQ(StepRows(Strategy::kDataParallel, 9, 100, 1, {1, 1, 1, 1, 1, 1, 1, 1, 2}).text(), "10 to 20");
}

TEST(Strategy, NamesAreReadBack) {
  EXPECT_THAT(strategy_names(), ElementsAre("dp", "dp-zero", "dp-star", "ps", "owt-a", "owt-b", "owt-c", "owt-d", "mp",
                                            "mp-dense", "pipeline"));
  for (const std::string& name : strategy_names()) EXPECT_EQ(name_of(strategy_from(name)), name);
}

TEST(Strategy, AnUnknownNameIsAnErrorWithTheListAndTheNearest) {
  EXPECT_THAT(message_of([] { strategy_from("owt-e"); }),
              AllOf(HasSubstr("'owt-e'"), HasSubstr("dp, dp-zero, dp-star, ps, owt-a, owt-b, owt-c, owt-d, mp"),
                    HasSubstr("did you mean 'owt-")));
  EXPECT_THAT([] { strategy_from("bucketbrigade"); }, ThrowsMessage<Error>(Not(HasSubstr("did you mean"))));
}

}  // namespace
}  // namespace owt::rounds_test
