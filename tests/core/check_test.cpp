#include "src/core/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/core/device.h"
#include "src/core/dispatch.h"

namespace owt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StrEq;
using ::testing::ThrowsMessage;

TEST(Check, FailJoinsItsPartsToTheMessage) {
  EXPECT_THAT([] { fail("batch is ", 30, ", wanted a multiple of ", 4); },
              ThrowsMessage<Error>(StrEq("batch is 30, wanted a multiple of 4")));
}

TEST(Check, NamesThePlaceTheConditionAndTheNote) {
  const int ranks = 0;
  EXPECT_THAT([&] { OWT_CHECK(ranks >= 1, "ranks ", ranks); },
              ThrowsMessage<Error>(MatchesRegex(".*check_test.cpp:[0-9]+: not true: ranks >= 1; ranks 0")));
  EXPECT_THAT([&] { OWT_CHECK(ranks >= 1); }, ThrowsMessage<Error>(MatchesRegex(".*not true: ranks >= 1")));
  EXPECT_NO_THROW(OWT_CHECK(ranks == 0));
}

TEST(Check, EqNamesWhatWasFoundAndWhatWasWanted) {
  const int found = 2;
  EXPECT_THAT([&] { OWT_CHECK_EQ(found, 4, "layer 'pool5'"); },
              ThrowsMessage<Error>(MatchesRegex(".*check_test.cpp:[0-9]+: found is 2, wanted 4; layer 'pool5'")));
  EXPECT_NO_THROW(OWT_CHECK_EQ(found, 2));
}

TEST(Check, EqEvaluatesItsValuesOnce) {
  int calls = 0;
  OWT_CHECK_EQ(++calls, 1);
  EXPECT_EQ(calls, 1);
}

TEST(DeviceNames, AreReadAndPrinted) {
  EXPECT_EQ(device_from("cpu"), Device::kCpu);
  EXPECT_STREQ(name_of(Device::kCpu), "cpu");
  EXPECT_STREQ(name_of(Device::kCuda), "cuda");
}

TEST(DeviceNames, UnknownOnesAreAnErrorWithTheCure) {
  EXPECT_THAT([] { device_from("gpu"); }, ThrowsMessage<Error>(AllOf(HasSubstr("'gpu'"), HasSubstr("use cpu"))));
  EXPECT_THAT([] { device_from(""); }, ThrowsMessage<Error>(HasSubstr("no device ''")));
}

TEST(DeviceNames, OneThatWasNotBuiltIsAnErrorWithTheCure) {
  EXPECT_THAT([] { device_from("cuda"); }, ThrowsMessage<Error>(AllOf(HasSubstr("'cuda'"), HasSubstr("--device cpu"))));
}

TEST(Dispatch, CallsWithTheTagOfTheDevice) {
  EXPECT_TRUE(dispatch(Device::kCpu, [](auto tag) { return std::is_same_v<decltype(tag), Cpu>; }));
  EXPECT_THROW(dispatch(Device::kCuda, [](auto) {}), Error);
}

}  // namespace
}  // namespace owt
