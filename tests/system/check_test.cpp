#include "src/system/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/core/device.h"
#include "src/core/dispatch.h"
#include "src/core/gpus.h"
#include "tests/support/message_of.h"

namespace owt::check_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StrEq;

TEST(Check, FailJoinsItsPartsToTheMessage) {
  EXPECT_THAT(message_of([] { fail("batch is ", 30, ", wanted a multiple of ", 4); }),
              StrEq("batch is 30, wanted a multiple of 4"));
}

TEST(Check, NamesThePlaceTheConditionAndTheNote) {
  const int ranks = 0;
  EXPECT_THAT(message_of([&] { OWT_CHECK(ranks >= 1, "ranks ", ranks); }),
              MatchesRegex(".*check_test.cpp:[0-9]+: not true: ranks >= 1; ranks 0"));
  EXPECT_THAT(message_of([&] { OWT_CHECK(ranks >= 1); }), MatchesRegex(".*not true: ranks >= 1"));
  EXPECT_NO_THROW(OWT_CHECK(ranks == 0));
}

TEST(Check, EqNamesWhatWasFoundAndWhatWasWanted) {
  const int found = 2;
  EXPECT_THAT(message_of([&] { OWT_CHECK_EQ(found, 4, "layer 'pool5'"); }),
              MatchesRegex(".*check_test.cpp:[0-9]+: found is 2, wanted 4; layer 'pool5'"));
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
  EXPECT_THAT(message_of([] { device_from("gpu"); }), AllOf(HasSubstr("'gpu'"), HasSubstr("use cpu")));
  EXPECT_THAT(message_of([] { device_from(""); }), HasSubstr("no device ''"));
}

TEST(DeviceNames, CudaIsTakenWhereThereIsAGpuAndElseAnErrorWithTheReasonAndTheCure) {
  EXPECT_EQ(device_from("auto"), gpu_present() ? Device::kCuda : Device::kCpu);
  if (gpu_present()) {
    EXPECT_EQ(device_from("cuda"), Device::kCuda);
    EXPECT_EQ(find_gpus().why_none, "");
    return;
  }
  const std::string why = find_gpus().why_none;
  EXPECT_NE(why, "");
  EXPECT_THAT(message_of([] { device_from("cuda"); }),
              AllOf(HasSubstr("'cuda'"), HasSubstr(why), HasSubstr("--device cpu")));
}

TEST(PrecisionNames, AreReadAndPrinted) {
  for (const Precision precision : {Precision::kFp32, Precision::kTf32, Precision::kBf16})
    EXPECT_EQ(precision_from(name_of(precision)), precision);
  EXPECT_THAT(message_of([] { precision_from("fp16"); }), AllOf(HasSubstr("'fp16'"), HasSubstr("bf16")));
}

TEST(Dispatch, CallsWithTheTagOfTheDevice) {
  EXPECT_TRUE(dispatch(Device::kCpu, [](auto tag) { return std::is_same_v<decltype(tag), Cpu>; }));
  const auto cuda = [] {
    return dispatch(Device::kCuda, [](auto tag) { return std::is_same_v<decltype(tag), Cuda>; });
  };
  if (kCudaBuilt)
    EXPECT_TRUE(cuda());
  else
    EXPECT_THROW(cuda(), Error);
}

struct PrecisionOf {
  Precision operator()(Cpu) const { return Precision::kFp32; }
  Precision operator()(Cuda cuda) const { return cuda.precision; }
};

TEST(Dispatch, HandsThePrecisionToCuda) {
  if (kCudaBuilt) {
    EXPECT_EQ(dispatch({Device::kCuda, Precision::kBf16}, PrecisionOf()), Precision::kBf16);
  }
  EXPECT_EQ(dispatch(Device::kCpu, PrecisionOf()), Precision::kFp32);
}

TEST(Working, NamesWhatIsWorkedOnInnermostFirst) {
  EXPECT_EQ(working_on(), "");
  {
    const Working outer("conv1", "forward");
    EXPECT_EQ(working_on(), "conv1, forward");
    {
      const Working inner("fc2", "");
      EXPECT_EQ(working_on(), "fc2");
    }
    EXPECT_EQ(working_on(), "conv1, forward");
  }
  EXPECT_EQ(working_on(), "");
}

}  // namespace
}  // namespace owt::check_test
