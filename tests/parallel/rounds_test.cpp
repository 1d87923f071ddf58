#include "src/parallel/rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/core/check.h"

namespace owt {
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

TEST(StepRows, SizesOfRoundsAreThoseOfTheirRanges) {
  for (const Strategy strategy : all_strategies())
    for (const int ranks : {1, 2, 3, 6, 8})
      for (const int model_ranks : {0, 1, 2})
        for (const int64_t step_rows : {1, 7, 61, 96}) {
          if (model_ranks > 0 && ranks % model_ranks != 0) continue;
          const StepRows rows(strategy, ranks, step_rows, model_ranks);
          for (int rank = 0; rank < ranks; ++rank) {
            const auto rounds = rows.rounds(rank);
            const auto sizes = rows.round_sizes(rank);
            ASSERT_EQ(sizes.size(), rounds.size());
            for (size_t r = 0; r < rounds.size(); ++r) {
              int64_t longest = 0;
              for (const RowRange& range : rounds[r]) longest = std::max(longest, range.size());
              EXPECT_EQ(sizes[r].rows, rows_of(rounds[r]));
              EXPECT_EQ(sizes[r].longest, longest);
            }
          }
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

TEST(Strategy, NamesAreReadBack) {
  EXPECT_THAT(strategy_names(), ElementsAre("dp", "dp-zero", "owt-a", "owt-b", "owt-c", "owt-d", "mp"));
  for (const std::string& name : strategy_names()) EXPECT_EQ(name_of(strategy_from(name)), name);
}

TEST(Strategy, AnUnknownNameIsAnErrorWithTheListAndTheNearest) {
  EXPECT_THAT([] { strategy_from("owt-e"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("'owt-e'"), HasSubstr("dp, dp-zero, owt-a, owt-b, owt-c, owt-d, mp"),
                                         HasSubstr("did you mean 'owt-"))));
  EXPECT_THAT([] { strategy_from("pipeline"); }, ThrowsMessage<Error>(Not(HasSubstr("did you mean"))));
}

}  // namespace
}  // namespace owt
