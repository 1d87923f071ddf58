#include "data/prepare/in_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "tests/support/few_threads.h"
#include "tests/support/message_of.h"

namespace owt::in_order_test {
namespace {

struct Number {
  int64_t value = 0, size = 1;
  int64_t bytes() const { return size; }
};

int64_t next_value(InOrder<Number>& numbers) {
  for (;;)
    if (const auto number = numbers.next(std::chrono::milliseconds(50))) return number->value;
}

TEST(InOrder, ResultsComeInOrderForEveryNumberOfThreads) {
  for (const int threads : {1, 2, 7}) {
    InOrder<Number> squares(
        500, threads, [](int64_t i) { return Number{i * i}; }, 16, 1000);
    for (int64_t i = 0; i < 500; ++i) EXPECT_EQ(next_value(squares), i * i);
  }
}

TEST(InOrder, NoMoreAreBegunThanTheWindowHolds) {
  std::atomic<int64_t> begun = 0;
  int64_t taken = 0;
  InOrder<Number> numbers(
      200, 4, [&](int64_t i) { return ++begun, Number{i}; }, 5, 1000);
  for (; taken < 200; ++taken) {
    EXPECT_LE(begun, taken + 5);
    next_value(numbers);
  }
}

TEST(InOrder, LargeResultsAreHeldFewAtATime) {
  std::atomic<int64_t> begun = 0;
  InOrder<Number> numbers(
      100, 3,
      [&](int64_t i) {
        return ++begun, Number{i, 1000};
      },
      50, 1500);
  for (int64_t taken = 0; taken < 100; ++taken) {
    EXPECT_LE(begun, taken + 2 + 3);  // two are over the limit; three may have begun before the second was done
    next_value(numbers);
  }
}

TEST(InOrder, ThreadsThatCannotBeStartedAreAnError) {
  const FewThreads few(2);
  const auto make = [] {
    InOrder<Number>(
        100, 64, [](int64_t i) { return Number{i}; }, 10, 1000);
  };
  EXPECT_THAT(message_of(make), ::testing::StartsWith("cannot start thread "));
}

TEST(InOrder, AnErrorOfTheWorkIsThrownToTheTaker) {
  InOrder<Number> numbers(
      100, 3, [](int64_t i) { return i == 20 ? throw std::runtime_error("twenty") : Number{i}; }, 10, 1000);
  EXPECT_THROW(for (int i = 0; i < 100; ++i) next_value(numbers), std::runtime_error);
}

TEST(InOrder, WhatIsNotTakenIsAbandoned) {
  std::atomic<int64_t> begun = 0;
  {
    InOrder<Number> numbers(
        1000000, 2, [&](int64_t i) { return ++begun, Number{i}; }, 8, 1000);
  }
  EXPECT_LE(begun, 8);
}

}  // namespace
}  // namespace owt::in_order_test
