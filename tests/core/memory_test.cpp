#include "src/core/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/harness.h"

// Read by AddressSanitizer if the program is built with it; otherwise it would end the program.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

namespace owt::memory_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using MemoryTest = DeviceTest;
INSTANTIATE_TEST_SUITE_P(Devices, MemoryTest, ::testing::ValuesIn(devices()), device_name);

TEST_P(MemoryTest, TooMuchAskedForIsAnErrorThatSaysHowMuchAndTheCure) {
  constexpr int64_t kElements = int64_t{1} << 50;
  const Working at("fc6", "backward");
  try {
    Tensor({kElements}, DType::kF32, device());
    FAIL() << "there is no such memory";
  } catch (const OutOfMemory& e) {
    EXPECT_EQ(e.asked_bytes, 4 * kElements);
    EXPECT_THAT(e.what(), AllOf(HasSubstr("out of memory"), HasSubstr("4294967296 MiB asked for"),
                                HasSubstr("use a smaller batch")));
    if (device() == Device::kCpu) return;
    EXPECT_THAT(e.what(), AllOf(HasSubstr("at fc6, backward"), HasSubstr("MiB are free")));
    EXPECT_GT(e.free_bytes, 0);
    EXPECT_GE(e.total_bytes, e.free_bytes);
  }
}

TEST(HostMemory, KnowsWhatIsInUseTheMostThatWasAndTheSum) {
  const HostMemory before = host_memory();
  restart_host_memory_peak();
  { const Tensor large({1000}), small({10}); }
  const Tensor after({100});
  EXPECT_EQ(host_memory().in_use - before.in_use, 400);
  EXPECT_EQ(host_memory().most - before.in_use, 4040);
  EXPECT_EQ(host_memory().allocated - before.allocated, 4440);
}

TEST_P(MemoryTest, WorksAfterTooMuchWasAskedFor) {
  EXPECT_THROW(Tensor({int64_t{1} << 50}, DType::kF32, device()), OutOfMemory);
  Tensor small({3}, DType::kF32, device());
  const Stream stream(device());
  small.zero(stream);
  stream.synchronize();
  EXPECT_THAT(download(small), ::testing::ElementsAre(0, 0, 0));
}

}  // namespace
}  // namespace owt::memory_test
