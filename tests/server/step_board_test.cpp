// What a rank of a parameter server learns about the others, without messages.
#include "src/server/step_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <stdexcept>

#include "src/comm/communicator.h"

namespace owt::step_board_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

StepBoard::Sums rows(double count) {
  StepBoard::Sums sums{};
  sums[kRowSum] = count;
  return sums;
}

TEST(StepBoardTest, SumsAreOfTheOldestStepHoweverFarOthersAre) {
  StepBoard board(0, 2);
  board.note(1, rows(10));
  board.note(1, rows(20));
  board.note(0, rows(1));
  EXPECT_EQ(board.take_sums()[kRowSum], 11);
  board.note(0, rows(2));
  EXPECT_EQ(board.take_sums()[kRowSum], 22);
}

TEST(StepBoardTest, SumsAreWaitedForUntilTheLastRankHasReported) {
  StepBoard board(0, 3);
  board.note(0, rows(1));
  board.note(2, rows(4));
  auto sums = std::async(std::launch::async, [&] { return board.take_sums(); });
  board.note(1, rows(2));
  EXPECT_EQ(sums.get()[kRowSum], 7);
}

// Its earlier reports count; later steps consist of the other ranks.
TEST(StepBoardTest, ALostRankIsNotWaitedFor) {
  StepBoard board(0, 3);
  for (const int rank : {0, 1, 2}) board.note(rank, rows(1));
  for (const int rank : {0, 1}) board.note(rank, rows(1));
  board.note_lost(2);
  EXPECT_EQ(board.take_sums()[kRowSum], 3);
  EXPECT_EQ(board.take_sums()[kRowSum], 2);
}

TEST(StepBoardTest, ARankThatIsLostWhileItsSumsAreWaitedForEndsTheWait) {
  StepBoard board(0, 2);
  board.note(0, rows(5));
  auto sums = std::async(std::launch::async, [&] { return board.take_sums(); });
  board.note_lost(1);
  EXPECT_EQ(sums.get()[kRowSum], 5);
}

TEST(StepBoardTest, RankZeroMeetsAllThatAreHereAndSaysWhoIsNot) {
  StepBoard board(0, 4);
  board.note_met(3);
  board.note_lost(2);
  auto without = std::async(std::launch::async, [&] { return board.meet(); });
  board.note_met(1);
  EXPECT_THAT(without.get(), ElementsAre(2));
}

TEST(StepBoardTest, WhereNobodyIsLostRanksMeetAsOftenAsTheyLike) {
  StepBoard first(0, 2), second(1, 2);
  for (int i = 0; i < 3; ++i) {
    first.note_met(1);
    EXPECT_THAT(first.meet(), IsEmpty());
    second.note_met(0);
    EXPECT_THAT(second.meet(), IsEmpty());
  }
  first.note_lost(1);
  EXPECT_THAT(first.meet(), ElementsAre(1));
}

// A meeting that does not wait may still end after the notes, so this is tried several times.
TEST(StepBoardTest, EveryRankIsWaitedForAgainInTheNextMeeting) {
  for (int i = 0; i < 20; ++i) {
    StepBoard board(0, 3);
    board.note_met(1);
    board.note_met(2);
    EXPECT_THAT(board.meet(), IsEmpty());
    const auto notes = std::async(std::launch::async, [&] {
      board.note_lost(1);
      board.note_met(2);
    });
    EXPECT_THAT(board.meet(), ElementsAre(1));
  }
}

// A rank that only this rank has lost still counts; a rank that rank 0 has lost is waited for until it is lost here
// too.
TEST(StepBoardTest, OthersGoByWhatRankZeroSays) {
  StepBoard board(1, 4);
  board.note_lost(3);
  board.note_without(2);
  board.note_met(0);
  auto without = std::async(std::launch::async, [&] { return board.meet(); });
  board.note_lost(2);
  EXPECT_THAT(without.get(), ElementsAre(2));
}

TEST(StepBoardTest, AFailureEndsEveryWaitAndTheFirstOneIsReported) {
  for (const bool meets : {false, true}) {
    StepBoard board(0, 2);
    EXPECT_NO_THROW(board.rethrow_failure());
    auto waits = std::async(std::launch::async, [&] { meets ? void(board.meet()) : void(board.take_sums()); });
    board.fail_with(std::make_exception_ptr(std::out_of_range("the cause")));
    board.fail_with(std::make_exception_ptr(std::runtime_error("what followed")));
    EXPECT_THROW(waits.get(), Aborted);
    EXPECT_THROW(board.rethrow_failure(), std::out_of_range);
  }
}

}  // namespace
}  // namespace owt::step_board_test
