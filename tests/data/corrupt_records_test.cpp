#include "data/corrupt_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace owt::corrupt_records_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr auto kWhenMerged = CorruptRecords::Report::kWhenMerged;

// Exchanges news between two processes, one of which logs; returns the log.
std::string exchanged(CorruptRecords& one, CorruptRecords& other) {
  const std::vector<std::string> news{one.news(), other.news()};
  testing::internal::CaptureStderr();
  one.merge(news, true);
  other.merge(news, false);
  return testing::internal::GetCapturedStderr();
}

TEST(CorruptRecords, OfSeveralProcessesEachRecordCountsOnceAndIsReportedOnceWithTheRank) {
  CorruptRecords one(5, kWhenMerged), other(5, kWhenMerged);
  one.add(7, CorruptRecord("seven"));
  other.add(7, CorruptRecord("seven"));
  other.add(9, CorruptRecord("nine"));
  EXPECT_THAT(exchanged(one, other),
              AllOf(HasSubstr("damaged record 1 of at most 5, met by rank 0, replaced by the next image: seven"),
                    HasSubstr("damaged record 2 of at most 5, met by rank 1, replaced by the next image: nine"),
                    Not(HasSubstr("record 3"))));
  EXPECT_EQ(one.count(), 2);
  EXPECT_EQ(other.count(), 2);
  one.add(9, CorruptRecord("nine"));  // the other process has met it before
  EXPECT_EQ(exchanged(one, other), "");
  EXPECT_EQ(one.count(), 2);
}

TEST(CorruptRecords, OfAllProcessesTogetherTooManyEndTheRunOnAll) {
  CorruptRecords one(3, kWhenMerged), other(3, kWhenMerged);
  for (const int64_t index : {1, 2}) one.add(index, CorruptRecord("bad"));
  for (const int64_t index : {3, 4}) other.add(index, CorruptRecord("bad"));
  const std::vector<std::string> news{one.news(), other.news()};
  EXPECT_THROW(one.merge(news, false), Error);
  EXPECT_THROW(other.merge(news, false), Error);
}

TEST(CorruptRecords, WhatOthersHaveMetCountsTowardsTheLimit) {
  CorruptRecords one(2, kWhenMerged), other(2, kWhenMerged);
  other.add(1, CorruptRecord("bad"));
  other.add(2, CorruptRecord("bad"));
  exchanged(one, other);
  one.add(2, CorruptRecord("bad"));
  EXPECT_THROW(one.add(3, CorruptRecord("bad")), Error);
}

}  // namespace
}  // namespace owt::corrupt_records_test
