#include "tests/simulated_gpu/device.h"

#include <gmock/gmock.h>

#include <mutex>
#include <thread>

#include "tests/simulated_gpu/kernels.h"
#include "tests/simulated_gpu/runtime.h"

using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;

namespace simulated_gpu::graphs_test {
namespace {

template <class T>
void count_up(T* value) {
  ++*value;
}

class Graphs : public testing::Test {
 protected:
  Graphs() {
    for (cudaStream_t* stream : {&first_, &second_})
      EXPECT_EQ(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), cudaSuccess);
    for (cudaEvent_t* event : {&fork_, &join_}) EXPECT_EQ(cudaEventCreate(event), cudaSuccess);
  }
  ~Graphs() override {
    cudaDeviceSynchronize();  // work that is queued writes into this
    if (graph_) cudaGraphDestroy(graph_);
    if (executable_) cudaGraphExecDestroy(executable_);
    for (cudaEvent_t event : {fork_, join_}) cudaEventDestroy(event);
    for (cudaStream_t stream : {first_, second_}) cudaStreamDestroy(stream);
    cudaGetLastError();
  }

  void append(cudaStream_t stream, int value, int ms = 0) {
    ASSERT_EQ(enqueue(stream, {"append"},
                      [this, value, ms] {
                        std::this_thread::sleep_for(std::chrono::milliseconds(ms));
                        const std::lock_guard lock(mutex_);
                        done_.push_back(value);
                      }),
              cudaSuccess);
  }
  void fork() {
    ASSERT_EQ(cudaEventRecord(fork_, first_), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(second_, fork_), cudaSuccess);
  }
  void join() {
    ASSERT_EQ(cudaEventRecord(join_, second_), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(first_, join_), cudaSuccess);
  }
  template <class Work>
  cudaError_t capture(Work work, cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    EXPECT_EQ(cudaStreamBeginCapture(first_, mode), cudaSuccess);
    work();
    return cudaStreamEndCapture(first_, &graph_);
  }
  void launch() {
    if (!executable_) {
      ASSERT_EQ(cudaGraphInstantiate(&executable_, graph_, 0), cudaSuccess);
    }
    ASSERT_EQ(cudaGraphLaunch(executable_, first_), cudaSuccess);
  }
  std::vector<int> finish() {
    EXPECT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
    const std::lock_guard lock(mutex_);
    return std::exchange(done_, {});
  }

  cudaStream_t first_ = nullptr, second_ = nullptr;
  cudaEvent_t fork_ = nullptr, join_ = nullptr;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
  std::mutex mutex_;
  std::vector<int> done_;
};

TEST_F(Graphs, CapturingDoesNothingAndEachLaunchDoesItAll) {
  ASSERT_EQ(capture([&] {
              append(first_, 1);
              append(first_, 2);
            }),
            cudaSuccess);
  EXPECT_THAT(finish(), IsEmpty());
  launch();
  EXPECT_THAT(finish(), ElementsAre(1, 2));
  launch();
  launch();
  EXPECT_THAT(finish(), ElementsAre(1, 2, 1, 2));
  size_t nodes = 0;
  EXPECT_EQ(cudaGraphGetNodes(graph_, nullptr, &nodes), cudaSuccess);
  EXPECT_EQ(nodes, 2u);
}

TEST_F(Graphs, ReportTheirMemoryWhileTheyLive) {
  int* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 4), cudaSuccess);
  ASSERT_EQ(capture([&] {
              append(first_, 1);
              ASSERT_EQ(cudaMemsetAsync(memory, 0, 4, first_), cudaSuccess);
              fork();
              append(second_, 2);
              join();
              launch_kernel(first_, 1, 1, 0, reinterpret_cast<const void*>(count_up<int>), [] {});
            }),
            cudaSuccess);
  EXPECT_THAT(live_graphs(), IsEmpty());
  ASSERT_EQ(cudaGraphInstantiate(&executable_, graph_, 0), cudaSuccess);
  const auto node = [](const char* name, size_t stream) {
    return AllOf(Field(&GraphNode::name, name), Field(&GraphNode::stream, stream));
  };
  EXPECT_THAT(live_graphs(), ElementsAre(ElementsAre(node("append", 0), node("cudaMemsetAsync", 0), node("append", 1),
                                                     node("graphs_test::count_up<int>", 0))));
  EXPECT_EQ(cudaGraphExecDestroy(std::exchange(executable_, nullptr)), cudaSuccess);
  EXPECT_THAT(live_graphs(), IsEmpty());
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(Graphs, KeepTheOrderBetweenCapturedStreams) {
  ASSERT_EQ(capture([&] {
              append(first_, 1, 2);
              fork();
              append(second_, 2, 2);
              join();
              append(first_, 3);
            }),
            cudaSuccess);
  for (int i = 0; i < 5; ++i) launch();
  EXPECT_THAT(finish(), ElementsAre(1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3));
}

TEST_F(Graphs, RunWhatIsUnorderedAtTheSameTime) {
  ASSERT_EQ(capture([&] {
              fork();
              append(first_, 1, 20);
              append(second_, 2);
              join();
              append(first_, 3);
            }),
            cudaSuccess);
  launch();
  EXPECT_THAT(finish(), ElementsAre(2, 1, 3));
}

TEST_F(Graphs, ComeInTurnWithOtherWorkOfTheirStream) {
  ASSERT_EQ(capture([&] { append(first_, 2); }), cudaSuccess);
  append(first_, 1, 2);
  launch();
  append(first_, 3);
  EXPECT_THAT(finish(), ElementsAre(1, 2, 3));
}

TEST_F(Graphs, WorkThatIsNotJoinedIsAnError) {
  EXPECT_EQ(capture([&] {
              fork();
              append(second_, 1);
              join();
              append(second_, 2);  // after the join
            }),
            cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(graph_, nullptr);
  append(first_, 3);  // the streams are usable again
  append(second_, 4);
  EXPECT_EQ(cudaStreamSynchronize(second_), cudaSuccess);
}

TEST_F(Graphs, SynchronisationSpoilsACapture) {
  EXPECT_EQ(capture([&] { EXPECT_EQ(cudaStreamSynchronize(first_), cudaErrorStreamCaptureUnsupported); }),
            cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(capture([&] { EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported); }),
            cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(capture([&] {
              EXPECT_EQ(cudaEventRecord(fork_, first_), cudaSuccess);
              EXPECT_EQ(cudaEventSynchronize(fork_), cudaErrorCapturedEvent);
            }),
            cudaErrorStreamCaptureInvalidated);
}

TEST_F(Graphs, AllocationSpoilsACapture) {
  void* memory = nullptr;
  EXPECT_EQ(capture([&] { EXPECT_EQ(cudaMalloc(&memory, 4), cudaErrorStreamCaptureUnsupported); }),
            cudaErrorStreamCaptureInvalidated);
}

TEST_F(Graphs, PageableMemorySpoilsACapture) {
  void* memory = nullptr;
  int value = 1;
  ASSERT_EQ(cudaMalloc(&memory, 4), cudaSuccess);
  EXPECT_EQ(capture([&] {
              EXPECT_EQ(cudaMemcpyAsync(memory, &value, 4, cudaMemcpyHostToDevice, first_),
                        cudaErrorStreamCaptureUnsupported);
            }),
            cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(Graphs, AnEventFromOutsideCannotBeWaitedFor) {
  EXPECT_EQ(cudaEventRecord(fork_, second_), cudaSuccess);
  EXPECT_EQ(capture([&] { EXPECT_EQ(cudaStreamWaitEvent(first_, fork_), cudaErrorStreamCaptureIsolation); }),
            cudaErrorStreamCaptureInvalidated);
}

TEST_F(Graphs, AnotherThreadMayAllocateDuringAThreadLocalCaptureOnly) {
  const auto allocate_elsewhere = [] {
    cudaError_t status = cudaSuccess;
    std::thread([&] {
      void* memory = nullptr;
      status = cudaMalloc(&memory, 4);
      cudaFree(memory);
    }).join();
    return status;
  };
  EXPECT_EQ(capture([&] { EXPECT_EQ(allocate_elsewhere(), cudaSuccess); }), cudaSuccess);
  cudaGraphDestroy(std::exchange(graph_, nullptr));
  EXPECT_EQ(
      capture([&] { EXPECT_EQ(allocate_elsewhere(), cudaErrorStreamCaptureUnsupported); }, cudaStreamCaptureModeGlobal),
      cudaErrorStreamCaptureInvalidated);
}

TEST_F(Graphs, RecordExternalEventsWhenTheyRun) {
  ASSERT_EQ(capture([&] {
              EXPECT_EQ(cudaEventRecordWithFlags(fork_, first_, cudaEventRecordExternal), cudaSuccess);
              append(first_, 1, 5);
              EXPECT_EQ(cudaEventRecordWithFlags(join_, first_, cudaEventRecordExternal), cudaSuccess);
            }),
            cudaSuccess);
  float ms = 0;
  EXPECT_EQ(cudaEventElapsedTime(&ms, fork_, join_), cudaErrorInvalidResourceHandle);  // not recorded yet
  launch();
  EXPECT_EQ(cudaEventSynchronize(join_), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&ms, fork_, join_), cudaSuccess);
  EXPECT_GE(ms, 5);
}

TEST_F(Graphs, ReportWhetherAStreamIsBeingCaptured) {
  cudaStreamCaptureStatus status;
  EXPECT_EQ(capture([&] {
              fork();
              EXPECT_EQ(cudaStreamIsCapturing(second_, &status), cudaSuccess);
              EXPECT_EQ(status, cudaStreamCaptureStatusActive);
              join();
            }),
            cudaSuccess);
  EXPECT_EQ(cudaStreamIsCapturing(second_, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
}

}  // namespace
}  // namespace simulated_gpu::graphs_test
