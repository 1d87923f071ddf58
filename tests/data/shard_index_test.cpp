#include "data/shard_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/system/check.h"
#include "src/system/files.h"
#include "tests/support/message_of.h"

namespace owt::shard_index_test {
namespace {

using testing::HasSubstr;

ShardIndex two_records() {
  return {
      .tar_bytes = 4096,
      .records = {{.offset = 512, .checksum = 7, .bytes = 100, .height = 256, .width = 341, .label = 3, .name = "a/b"},
                  {.offset = 2048, .checksum = 8, .bytes = 2048, .height = 1, .width = 1, .label = 0}}};
}

std::string error_of(const std::string& bytes) {
  return message_of([&] { parse_shard_index(bytes, "x.index"); });
}

TEST(ShardIndex, ComesBackAsItWasWritten) {
  EXPECT_EQ(parse_shard_index(shard_index_bytes(two_records()), "x.index"), two_records());
  EXPECT_EQ(parse_shard_index(shard_index_bytes({}), "x.index"), ShardIndex{});
}

TEST(ShardIndex, EveryFlippedBitAndEveryMissingByteIsFound) {
  const std::string good = shard_index_bytes(two_records());
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    EXPECT_THAT(error_of(bad), HasSubstr("x.index")) << "bit " << bit;
  }
  for (size_t bytes = 0; bytes < good.size(); ++bytes)
    EXPECT_THAT(error_of(good.substr(0, bytes)), HasSubstr("x.index")) << bytes << " bytes";
  EXPECT_THAT(error_of(good + "x"), HasSubstr("x.index"));
}

TEST(ShardIndex, RecordsOutsideTheTarFileAreRefused) {
  ShardIndex index = two_records();
  index.records[1].bytes = 2049;
  EXPECT_THAT(error_of(shard_index_bytes(index)), HasSubstr("record 1"));
  index = two_records();
  index.records[0].offset = ~uint64_t{0};
  EXPECT_THAT(error_of(shard_index_bytes(index)), HasSubstr("record 0"));
}

TEST(ShardIndex, RecordsThatNoImageCanHaveAreRefused) {
  const auto refused = [](const auto& change) {
    ShardIndex index = two_records();
    change(index.records[1]);
    EXPECT_THAT(error_of(shard_index_bytes(index)), HasSubstr("record 1"));
  };
  refused([](ShardRecord& record) { record.bytes = 0; });
  refused([](ShardRecord& record) { record.height = 0; });
  refused([](ShardRecord& record) { record.width = 0; });
  refused([](ShardRecord& record) { record.label = -1; });
  refused([](ShardRecord& record) { record.offset = two_records().tar_bytes + 1; });
}

// With a matching checksum, so that the checksum does not reveal the change.
std::string with_byte(size_t place, int change) {
  std::string bytes = shard_index_bytes(two_records());
  bytes[place] = static_cast<char>(bytes[place] + change);
  bytes.resize(bytes.size() - sizeof(uint64_t));
  const uint64_t checksum = checksum_of(bytes);
  bytes.append(reinterpret_cast<const char*>(&checksum), sizeof checksum);
  return bytes;
}

TEST(ShardIndex, WhatTheChecksumCannotTellIsChecked) {
  constexpr size_t kHeader = 32, kNameBytes = 32, kZero = 36;  // positions of fields of an entry
  ASSERT_EQ(error_of(with_byte(0, 0)), "");
  EXPECT_THAT(error_of(with_byte(kHeader + kZero, 1)), HasSubstr("record 0"));
  EXPECT_THAT(error_of(with_byte(kHeader + kNameBytes, -1)), HasSubstr("1 bytes of names too many"));
  EXPECT_THAT(error_of(with_byte(kHeader + kNameBytes, 100)), HasSubstr("record 0"));
  EXPECT_THAT(error_of(with_byte(8, 1)), HasSubstr("version 2, wanted 1"));
}

}  // namespace
}  // namespace owt::shard_index_test
