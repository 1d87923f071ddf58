#include "src/system/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/system/check.h"
#include "tests/support/message_of.h"

namespace owt::units_test {
namespace {

using ::testing::HasSubstr;

TEST(Units, BandwidthsAreBytesPerSecond) {
  EXPECT_DOUBLE_EQ(parse_bandwidth("1Gbit"), 125e6);
  EXPECT_DOUBLE_EQ(parse_bandwidth("100mbit"), 12.5e6);
  EXPECT_DOUBLE_EQ(parse_bandwidth("1.6Gbit/s"), 200e6);
  EXPECT_DOUBLE_EQ(parse_bandwidth("8bit"), 1);
  EXPECT_DOUBLE_EQ(parse_bandwidth("400MB/s"), 400e6);
  EXPECT_DOUBLE_EQ(parse_bandwidth("25GB/s"), 25e9);
  EXPECT_DOUBLE_EQ(parse_bandwidth("64KB/s"), 64e3);
  EXPECT_DOUBLE_EQ(parse_bandwidth("64B/s"), 64);
}

TEST(Units, BandwidthsWithoutAClearUnitAreErrors) {
  for (const char* text :
       {"", "1", "fast", "1G", "1Gb/s", "1GB", "0Gbit", "-1Gbit", "1Xbit", "1kMbit", "inf", "1 Gbit"})
    EXPECT_THAT(message_of([&] { parse_bandwidth(text); }), HasSubstr("wanted a bandwidth like 1Gbit")) << text;
}

TEST(Units, TimesAreSeconds) {
  EXPECT_NEAR(parse_seconds("50us"), 50e-6, 1e-18);
  EXPECT_DOUBLE_EQ(parse_seconds("1.5ms"), 1.5e-3);
  EXPECT_NEAR(parse_seconds("900ns"), 900e-9, 1e-18);
  EXPECT_DOUBLE_EQ(parse_seconds("2s"), 2);
  EXPECT_DOUBLE_EQ(parse_seconds("0"), 0);
  for (const char* text : {"", "50", "us", "-1us", "1h", "nan"})
    EXPECT_THAT(message_of([&] { parse_seconds(text); }), HasSubstr("wanted a time like 50us")) << text;
}

TEST(Units, SizesArePowersOf1024) {
  EXPECT_EQ(parse_bytes("4096"), 4096);
  EXPECT_EQ(parse_bytes("4K"), 4096);
  EXPECT_EQ(parse_bytes("64MiB"), 64 << 20);
  EXPECT_EQ(parse_bytes("0.5g"), 1 << 29);
  for (const char* text : {"", "0", "-4K", "4X", "0.3", "1e20", "4KM"})
    EXPECT_THAT(message_of([&] { parse_bytes(text); }), HasSubstr("wanted bytes like 4096")) << text;
}

TEST(Units, SizesAreWrittenAsTheyAreRead) {
  for (const char* text : {"4K", "64M", "3G", "1T", "1000", "1"}) EXPECT_EQ(bytes_text(parse_bytes(text)), text);
}

}  // namespace
}  // namespace owt::units_test
