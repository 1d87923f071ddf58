#include "tests/simulated_gpu/device.h"

#include <gmock/gmock.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "src/core/gpus.h"
#include "tests/simulated_gpu/device.h"
#include "tests/simulated_gpu/runtime.h"
#include "tests/simulated_gpu/test_memory.h"
#include "tests/support/message_of.h"

using testing::Each;
using testing::ElementsAre;

namespace simulated_gpu::streams_test {
namespace {

class Gate {
 public:
  // A stream stops here until open().
  void hold(cudaStream_t stream) {
    ASSERT_EQ(enqueue(stream, {"test"}, [open = open_] { open->wait(false); }), cudaSuccess);
  }
  void open() {
    *open_ = true;
    open_->notify_all();
  }

 private:
  // The stream may read it after the test has continued.
  std::shared_ptr<std::atomic<bool>> open_ = std::make_shared<std::atomic<bool>>(false);
};

class Streams : public testing::Test {
 protected:
  Streams() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&first_, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&second_, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaEventCreate(&event_), cudaSuccess);
    EXPECT_EQ(cudaEventCreate(&other_event_), cudaSuccess);
  }
  ~Streams() override {
    cudaDeviceSynchronize();
    for (cudaEvent_t event : {event_, other_event_}) cudaEventDestroy(event);
    for (cudaStream_t stream : {first_, second_}) cudaStreamDestroy(stream);
    cudaGetLastError();
  }

  void append(cudaStream_t stream, int value) {
    ASSERT_EQ(enqueue(stream, {"test"},
                      [this, value] {
                        const std::lock_guard lock(mutex_);
                        done_.push_back(value);
                      }),
              cudaSuccess);
  }
  std::vector<int> done() {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  // Captures first_, on which `work` may fork to second_.
  template <class Work>
  cudaError_t capture(cudaGraph_t* graph, Work work) {
    EXPECT_EQ(cudaStreamBeginCapture(first_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    work();
    return cudaStreamEndCapture(first_, graph);
  }

  cudaStream_t first_ = nullptr, second_ = nullptr;
  cudaEvent_t event_ = nullptr, other_event_ = nullptr;
  std::mutex mutex_;
  std::vector<int> done_;
};

TEST_F(Streams, DoTheirWorkInOrder) {
  for (int i = 0; i < 100; ++i) append(first_, i);
  EXPECT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  const auto order = done();
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST_F(Streams, WorkAtTheSameTime) {
  Gate gate;
  gate.hold(first_);
  append(first_, 1);
  append(second_, 2);
  EXPECT_EQ(cudaStreamSynchronize(second_), cudaSuccess);
  EXPECT_THAT(done(), ElementsAre(2));
  EXPECT_EQ(cudaStreamQuery(first_), cudaErrorNotReady);
  gate.open();
  EXPECT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  EXPECT_THAT(done(), ElementsAre(2, 1));
}

TEST_F(Streams, WaitForAnEventOfAnother) {
  Gate gate;
  gate.hold(first_);
  append(first_, 1);
  EXPECT_EQ(cudaEventRecord(event_, first_), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(second_, event_), cudaSuccess);
  append(second_, 2);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorNotReady);
  gate.open();
  EXPECT_EQ(cudaStreamSynchronize(second_), cudaSuccess);
  EXPECT_THAT(done(), ElementsAre(1, 2));
  EXPECT_EQ(cudaEventQuery(event_), cudaSuccess);
}

TEST_F(Streams, AnEventStandsForTheTimeOfItsRecord) {
  EXPECT_EQ(cudaEventRecord(event_, first_), cudaSuccess);
  Gate gate;
  gate.hold(first_);
  EXPECT_EQ(cudaEventSynchronize(event_), cudaSuccess);  // work that was queued later does not count
  EXPECT_EQ(cudaStreamWaitEvent(second_, event_), cudaSuccess);
  append(second_, 2);
  EXPECT_EQ(cudaStreamSynchronize(second_), cudaSuccess);
  gate.open();
}

TEST_F(Streams, AnEventThatWasNeverRecordedHoldsNobodyUp) {
  EXPECT_EQ(cudaStreamWaitEvent(second_, event_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(second_), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event_), cudaSuccess);
}

TEST_F(Streams, EventsMeasureTime) {
  EXPECT_EQ(cudaEventRecord(event_, first_), cudaSuccess);
  enqueue(first_, {"test"}, [] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
  EXPECT_EQ(cudaEventRecord(other_event_, first_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  float ms = 0;
  EXPECT_EQ(cudaEventElapsedTime(&ms, event_, other_event_), cudaSuccess);
  EXPECT_GE(ms, 5);
}

TEST_F(Streams, TheDefaultStreamIsAnError) {
  DeviceArray<int> memory(1);
  EXPECT_EQ(cudaMemsetAsync(memory.data(), 0, 4, nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(event_, nullptr), cudaErrorInvalidResourceHandle);
}

TEST_F(Streams, ReadPageableMemoryAtOnceAndPinnedMemoryLater) {
  DeviceArray<int> memory(2);
  int pageable = 1;
  int* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, sizeof *pinned), cudaSuccess);
  *pinned = 1;
  Gate gate;
  gate.hold(first_);
  EXPECT_EQ(cudaMemcpyAsync(memory.data(), &pageable, 4, cudaMemcpyHostToDevice, first_), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(memory.data() + 1, pinned, 4, cudaMemcpyHostToDevice, first_), cudaSuccess);
  pageable = *pinned = 2;
  gate.open();
  int values[2];
  EXPECT_EQ(cudaMemcpyAsync(values, memory.data(), 8, cudaMemcpyDeviceToHost, first_), cudaSuccess);
  EXPECT_THAT(values, ElementsAre(1, 2));
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(Streams, CopyRowsOfDifferentPitch) {
  DeviceArray<unsigned char> memory(12);
  ASSERT_EQ(cudaMemsetAsync(memory.data(), 0, 12, first_), cudaSuccess);
  const unsigned char rows[] = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(cudaMemcpy2DAsync(memory.data(), 4, rows, 2, 2, 3, cudaMemcpyHostToDevice, first_), cudaSuccess);
  unsigned char values[12];
  EXPECT_EQ(cudaMemcpyAsync(values, memory.data(), 12, cudaMemcpyDeviceToHost, first_), cudaSuccess);
  EXPECT_THAT(values, ElementsAre(1, 2, 0, 0, 3, 4, 0, 0, 5, 6, 0, 0));
}

TEST_F(Streams, RefuseCopiesThatDoNotFitTheMemory) {
  DeviceArray<int> memory(2);
  int host[4] = {};
  EXPECT_EQ(cudaMemcpyAsync(memory.data(), host, 12, cudaMemcpyHostToDevice, first_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(memory.data(), host, 8, cudaMemcpyDeviceToHost, first_), cudaErrorInvalidMemcpyDirection);
}

TEST_F(Streams, SynchronousCopiesDoNotWaitForStreamsThatDoNotBlock) {
  DeviceArray<int> memory(1);
  ASSERT_EQ(cudaMemset(memory.data(), 0, 4), cudaSuccess);
  Gate gate;
  gate.hold(first_);
  ASSERT_EQ(cudaMemsetAsync(memory.data(), 1, 4, first_), cudaSuccess);
  int value = -1;
  EXPECT_EQ(cudaMemcpy(&value, memory.data(), 4, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(value, 0);
  gate.open();
}

using Memory = Streams;

TEST_F(Memory, IsFreshWithEveryAllocation) {
  for (int i = 0; i < 2; ++i) {
    DeviceArray<unsigned char> memory(100);
    unsigned char values[100];
    EXPECT_EQ(cudaMemcpyAsync(values, memory.data(), 100, cudaMemcpyDeviceToHost, first_), cudaSuccess);
    EXPECT_THAT(values, Each(0xff));
    ASSERT_EQ(cudaMemsetAsync(memory.data(), 1, 100, first_), cudaSuccess);
  }
}

TEST_F(Memory, RunsOut) {
  size_t before = 0, total = 0, after = 0;
  ASSERT_EQ(cudaMemGetInfo(&before, &total), cudaSuccess);
  const size_t limit = total - before + (1 << 20);  // other tests of this process may hold some
  set_memory(limit);
  ASSERT_EQ(cudaMemGetInfo(&before, &total), cudaSuccess);
  EXPECT_EQ(total, limit);
  {
    const DeviceArray<char> half(1 << 19);
    ASSERT_EQ(cudaMemGetInfo(&after, &total), cudaSuccess);
    EXPECT_EQ(before - after, size_t{1} << 19);
    void* more = nullptr;
    EXPECT_EQ(cudaMalloc(&more, before - (1 << 19) + 1), cudaErrorMemoryAllocation);
    EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }
  ASSERT_EQ(cudaMemGetInfo(&after, &total), cudaSuccess);
  EXPECT_EQ(after, before);
  set_memory(size_t{8} << 30);
}

TEST_F(Memory, IsFreedWhenTheStreamsAreDone) {
  auto memory = std::make_unique<DeviceArray<int>>(1);
  enqueue(first_, {"test"}, [at = memory->data()] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    *at = 7;
  });
  memory.reset();
  EXPECT_EQ(cudaStreamQuery(first_), cudaSuccess);
}

TEST_F(Memory, ReportsItsLocation) {
  const DeviceArray<int> memory(10);
  cudaPointerAttributes attributes;
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, memory.data() + 9), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, this), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
}

TEST(MemoryDeathTest, TheHostCannotTouchItWhenNothingRuns) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "device memory is plain memory under AddressSanitizer";
#endif
  EXPECT_DEATH(
      {
        const owt::Stream stream(owt::Device::kCuda);
        DeviceArray<int> memory(std::vector<int>{1}, stream);
        stream.synchronize();
        volatile int value = *memory.data();
        static_cast<void>(value);
      },
      "");
}

TEST(MemoryDeathTest, AWritePastItsEndIsReported) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        const owt::Stream stream(owt::Device::kCuda);
        DeviceArray<int> memory(3);
        enqueue(owt::cuda_stream(stream), {"test"}, [at = memory.data()] { at[3] = 1; });
      },
      "past the end|heap-buffer-overflow");
}

TEST(Devices, HaveTheirOwnMemoryAndStreams) {
  set_devices(2);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  const DeviceArray<char> memory(1000);
  cudaPointerAttributes attributes;
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, memory.data()), cudaSuccess);
  EXPECT_EQ(attributes.device, 1);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  int device = -1;
  EXPECT_EQ(cudaStreamGetDevice(stream, &device), cudaSuccess);
  EXPECT_EQ(device, 1);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  launch_kernel(stream, 1, 1, 0, nullptr, [] {});
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);  // another device's stream
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  cudaGetLastError();
  set_devices(1);
}

TEST(Devices, CanBeNone) {
  set_devices(0);
  int count = -1;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(count, 0);
  cudaGetLastError();
  set_devices(1);
}

TEST(Devices, OfADriverThatIsTooOldCannotBeUsed) {
  set_driver(12040);
  const owt::Gpus gpus = owt::find_gpus();
  set_driver(CUDART_VERSION);
  EXPECT_TRUE(gpus.list.empty());
  EXPECT_EQ(gpus.why_none,
            "the NVIDIA driver is for CUDA 12.4, the program for CUDA " + gpus.runtime + " (update the driver)");
  EXPECT_EQ(owt::find_gpus().why_none, "");
}

// A thread asks once for each GPU.
TEST(Devices, HaveCodeThatWaitsForThePreviousKernelFromComputeCapability9On) {
  const auto waits = [](int capability) {
    set_capability(capability);
    bool waits = false;
    std::thread([&] { waits = owt::kernels_wait(); }).join();
    set_capability(90);
    return waits;
  };
  EXPECT_FALSE(waits(80));
  EXPECT_TRUE(waits(90));
  EXPECT_TRUE(waits(120));
}

TEST(Devices, AreRefusedWithoutCodeOrWithoutInstructionsForThePrecision) {
  const auto refusal = [](int capability, owt::Precision precision) {
    set_capability(capability);
    const std::string message = owt::message_of([&] { owt::check_gpu(precision); });
    set_capability(90);
    return message;
  };
  EXPECT_EQ(refusal(70, owt::Precision::kFp32),
            "this program has no code for the GPU Simulated GPU (compute capability 7.0); build it with "
            "-DCMAKE_CUDA_ARCHITECTURES=70, or use --device cpu");
  EXPECT_EQ(
      refusal(75, owt::Precision::kBf16),
      "precision bf16 needs a GPU of compute capability 8.0 or newer; for Simulated GPU (compute capability 7.5) use "
      "--precision fp32");
  EXPECT_EQ(refusal(75, owt::Precision::kFp32), "");
  EXPECT_EQ(refusal(80, owt::Precision::kBf16), "");
}

}  // namespace
}  // namespace simulated_gpu::streams_test
