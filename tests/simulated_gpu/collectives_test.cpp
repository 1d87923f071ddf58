#include "tests/simulated_gpu/device.h"

#include <gmock/gmock.h>
#include <nccl.h>

#include <chrono>
#include <functional>
#include <thread>

#include "tests/simulated_gpu/elements.h"
#include "tests/simulated_gpu/runtime.h"
#include "tests/simulated_gpu/test_memory.h"

using testing::ElementsAre;
using testing::HasSubstr;

namespace simulated_gpu::collectives_test {
namespace {

constexpr int kRanks = 3;

// Three ranks as threads, each with a separate device.
class Nccl : public testing::Test {
 protected:
  Nccl() { set_devices(kRanks); }
  ~Nccl() override { set_devices(1); }

  struct Rank {
    int rank;
    ncclComm_t comm;
    cudaStream_t stream;
    const owt::Stream& owner;
  };

  void on_each(const std::function<void(Rank)>& work) {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank)
      threads.emplace_back([&, rank] {
        ASSERT_EQ(cudaSetDevice(rank), cudaSuccess);
        const owt::Stream stream(owt::Device::kCuda);
        ncclComm_t comm = nullptr;
        ASSERT_EQ(ncclCommInitRank(&comm, kRanks, id, rank), ncclSuccess);
        work({rank, comm, cuda_stream(stream), stream});
        stream.synchronize();
        ncclCommDestroy(comm);
      });
    for (std::thread& thread : threads) thread.join();
  }
};

TEST_F(Nccl, ReducesAndGathers) {
  on_each([](Rank r) {
    const auto own = static_cast<float>(r.rank);
    const DeviceArray<float> send({own, 10 + own, 20 + own}, r.owner), sum(3), part(1), all(9), mean(3), largest(3),
        root_sum(3);
    EXPECT_EQ(ncclAllReduce(send.data(), sum.data(), 3, ncclFloat32, ncclSum, r.comm, r.stream), ncclSuccess);
    EXPECT_EQ(ncclAllReduce(send.data(), mean.data(), 3, ncclFloat32, ncclAvg, r.comm, r.stream), ncclSuccess);
    EXPECT_EQ(ncclAllReduce(send.data(), largest.data(), 3, ncclFloat32, ncclMax, r.comm, r.stream), ncclSuccess);
    EXPECT_EQ(ncclReduceScatter(send.data(), part.data(), 1, ncclFloat32, ncclSum, r.comm, r.stream), ncclSuccess);
    EXPECT_EQ(ncclAllGather(send.data(), all.data(), 3, ncclFloat32, r.comm, r.stream), ncclSuccess);
    EXPECT_EQ(ncclReduce(send.data(), root_sum.data(), 3, ncclFloat32, ncclSum, 1, r.comm, r.stream), ncclSuccess);
    EXPECT_THAT(sum.read(r.owner), ElementsAre(3, 33, 63));
    EXPECT_THAT(mean.read(r.owner), ElementsAre(1, 11, 21));
    EXPECT_THAT(largest.read(r.owner), ElementsAre(2, 12, 22));
    EXPECT_THAT(part.read(r.owner), ElementsAre(3 + 30 * own));
    EXPECT_THAT(all.read(r.owner), ElementsAre(0, 10, 20, 1, 11, 21, 2, 12, 22));
    if (r.rank == 1) {
      EXPECT_THAT(root_sum.read(r.owner), ElementsAre(3, 33, 63));
    }
  });
}

TEST_F(Nccl, WorksInPlace) {
  on_each([](Rank r) {
    const DeviceArray<int> values({r.rank, 1, 2}, r.owner), blocks({r.rank, r.rank, r.rank}, r.owner);
    EXPECT_EQ(ncclAllReduce(values.data(), values.data(), 3, ncclInt32, ncclSum, r.comm, r.stream), ncclSuccess);
    EXPECT_EQ(ncclAllGather(blocks.data() + r.rank, blocks.data(), 1, ncclInt32, r.comm, r.stream), ncclSuccess);
    EXPECT_THAT(values.read(r.owner), ElementsAre(3, 3, 6));
    EXPECT_THAT(blocks.read(r.owner), ElementsAre(0, 1, 2));
  });
}

TEST_F(Nccl, AddsEveryType) {
  on_each([](Rank r) {
    const auto check = [&](auto value, ncclDataType_t type, auto wanted) {
      using T = decltype(value);
      const DeviceArray<T> memory({value}, r.owner);
      EXPECT_EQ(ncclAllReduce(memory.data(), memory.data(), 1, type, ncclSum, r.comm, r.stream), ncclSuccess);
      EXPECT_EQ(memory.read(r.owner)[0], wanted);
    };
    check(1.5f, ncclFloat32, 4.5f);
    check(1.5, ncclFloat64, 4.5);
    check(int32_t{-2}, ncclInt32, -6);
    check(int64_t{1} << 40, ncclInt64, int64_t{3} << 40);
    check(uint8_t{7}, ncclUint8, uint8_t{21});
    check(float_to_bf16(1.5f), ncclBfloat16, float_to_bf16(4.5f));
  });
}

TEST_F(Nccl, BroadcastsScattersAndExchanges) {
  on_each([](Rank r) {
    const DeviceArray<int> own({10 * r.rank, 10 * r.rank + 1, 10 * r.rank + 2}, r.owner), of_root(3), part(1),
        turned(3), gathered(3);
    EXPECT_EQ(ncclBroadcast(own.data(), of_root.data(), 3, ncclInt32, 2, r.comm, r.stream), ncclSuccess);
    EXPECT_EQ(ncclScatter(own.data(), part.data(), 1, ncclInt32, 1, r.comm, r.stream), ncclSuccess);
    EXPECT_EQ(ncclAlltoAll(own.data(), turned.data(), 1, ncclInt32, r.comm, r.stream), ncclSuccess);
    EXPECT_EQ(ncclGather(own.data(), gathered.data(), 1, ncclInt32, 0, r.comm, r.stream), ncclSuccess);
    EXPECT_THAT(of_root.read(r.owner), ElementsAre(20, 21, 22));
    EXPECT_THAT(part.read(r.owner), ElementsAre(10 + r.rank));
    EXPECT_THAT(turned.read(r.owner), ElementsAre(r.rank, 10 + r.rank, 20 + r.rank));
    if (r.rank == 0) {
      EXPECT_THAT(gathered.read(r.owner), ElementsAre(0, 10, 20));
    }
  });
}

TEST_F(Nccl, SendsAndReceivesInGroups) {
  on_each([](Rank r) {
    const int next = (r.rank + 1) % kRanks, previous = (r.rank + kRanks - 1) % kRanks;
    const DeviceArray<int> own({r.rank}, r.owner), from_both(2);
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclSend(own.data(), 1, ncclInt32, next, r.comm, r.stream), ncclSuccess);
    EXPECT_EQ(ncclSend(own.data(), 1, ncclInt32, previous, r.comm, r.stream), ncclSuccess);
    EXPECT_EQ(ncclRecv(from_both.data(), 1, ncclInt32, previous, r.comm, r.stream), ncclSuccess);
    EXPECT_EQ(ncclRecv(from_both.data() + 1, 1, ncclInt32, next, r.comm, r.stream), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    EXPECT_THAT(from_both.read(r.owner), ElementsAre(previous, next));
  });
}

TEST_F(Nccl, WaitsForTheStreamsOfAllRanks) {
  on_each([](Rank r) {
    const DeviceArray<int> value(1);
    ASSERT_EQ(enqueue(r.stream, {"test"},
                      [at = value.data(), rank = r.rank] {
                        std::this_thread::sleep_for(std::chrono::milliseconds(5 * rank));
                        *at = 1;
                      }),
              cudaSuccess);
    EXPECT_EQ(ncclAllReduce(value.data(), value.data(), 1, ncclInt32, ncclSum, r.comm, r.stream), ncclSuccess);
    EXPECT_THAT(value.read(r.owner), ElementsAre(kRanks));
  });
}

TEST_F(Nccl, CanBeCapturedIntoGraphs) {
  on_each([](Rank r) {
    const DeviceArray<int> value({1}, r.owner);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(ncclAllReduce(value.data(), value.data(), 1, ncclInt32, ncclSum, r.comm, r.stream), ncclSuccess);
    ASSERT_EQ(cudaStreamEndCapture(r.stream, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphLaunch(executable, r.stream), cudaSuccess);
    EXPECT_EQ(cudaGraphLaunch(executable, r.stream), cudaSuccess);
    EXPECT_THAT(value.read(r.owner), ElementsAre(9));
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
  });
}

TEST_F(Nccl, RefusesTwoRanksOnOneDevice) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      ncclComm_t comm = nullptr;
      EXPECT_EQ(ncclCommInitRank(&comm, 2, id, rank), ncclInvalidUsage);
      EXPECT_THAT(ncclGetLastError(comm), HasSubstr("Duplicate GPU detected"));
      ncclCommAbort(comm);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Nccl, AbortReleasesAStreamThatWaitsForALostRank) {
  on_each([](Rank r) {
    ncclComm_t comm = r.comm;
    const DeviceArray<int> value({1}, r.owner);
    r.owner.synchronize();
    if (r.rank == 2) {  // is lost
      EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
      return;
    }
    EXPECT_EQ(ncclAllReduce(value.data(), value.data(), 1, ncclInt32, ncclSum, comm, r.stream), ncclSuccess);
    ncclResult_t error = ncclSuccess;
    while (error == ncclSuccess) ASSERT_EQ(ncclCommGetAsyncError(comm, &error), ncclSuccess);
    EXPECT_EQ(error, ncclRemoteError);
    EXPECT_EQ(cudaStreamQuery(r.stream), cudaErrorNotReady);
    cudaGetLastError();
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(r.stream), cudaSuccess);
    EXPECT_EQ(ncclAllReduce(value.data(), value.data(), 1, ncclInt32, ncclSum, comm, r.stream), ncclInvalidArgument);
  });
}

TEST_F(Nccl, InitialisesWithoutBlockingWhereAsked) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t first = nullptr, second = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&first, 2, id, 0, &config), ncclInProgress);
  ncclResult_t error = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(first, &error), ncclSuccess);
  EXPECT_EQ(error, ncclInProgress);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(ncclCommInitRankConfig(&second, 2, id, 1, &config), ncclSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(ncclCommGetAsyncError(first, &error), ncclSuccess);
  EXPECT_EQ(error, ncclSuccess);
  ncclCommDestroy(first);
  ncclCommDestroy(second);
}

TEST_F(Nccl, WithoutBlockingTakesNoCallBeforeTheLastOneIsSaidToBeQueued) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclSuccess);
  const DeviceArray<float> value(1);
  const owt::Stream stream(owt::Device::kCuda);
  const auto sum = [&] {
    return ncclAllReduce(value.data(), value.data(), 1, ncclFloat32, ncclSum, comm, cuda_stream(stream));
  };
  EXPECT_EQ(sum(), ncclSuccess);
  EXPECT_EQ(sum(), ncclInvalidUsage);
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) ASSERT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
  EXPECT_EQ(state, ncclSuccess);
  EXPECT_EQ(sum(), ncclSuccess);
  stream.synchronize();
  ncclCommDestroy(comm);
}

TEST_F(Nccl, RefusesBuffersThatAreTooSmallAndForeignStreams) {
  on_each([](Rank r) {
    const DeviceArray<float> small(2);
    EXPECT_EQ(ncclAllReduce(small.data(), small.data(), 3, ncclFloat32, ncclSum, r.comm, r.stream),
              ncclInvalidArgument);
    EXPECT_EQ(ncclAllGather(small.data(), small.data(), 1, ncclFloat32, r.comm, r.stream), ncclInvalidArgument);
    ASSERT_EQ(cudaSetDevice((r.rank + 1) % kRanks), cudaSuccess);
    const owt::Stream foreign(owt::Device::kCuda);
    EXPECT_EQ(ncclAllReduce(small.data(), small.data(), 1, ncclFloat32, ncclSum, r.comm, cuda_stream(foreign)),
              ncclInvalidArgument);
    ASSERT_EQ(cudaSetDevice(r.rank), cudaSuccess);
  });
}

TEST(NcclAlone, OneThreadCanDriveAllDevices) {
  set_devices(2);
  ncclComm_t comms[2];
  ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ncclSuccess);
  {
    std::vector<std::unique_ptr<owt::Stream>> streams;
    std::vector<std::unique_ptr<DeviceArray<int>>> values;
    for (int device = 0; device < 2; ++device) {
      ASSERT_EQ(cudaSetDevice(device), cudaSuccess);
      streams.push_back(std::make_unique<owt::Stream>(owt::Device::kCuda));
      values.push_back(std::make_unique<DeviceArray<int>>(std::vector<int>{device + 1}, *streams.back()));
    }
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (size_t i = 0; i < 2; ++i)
      EXPECT_EQ(ncclAllReduce(values[i]->data(), values[i]->data(), 1, ncclInt32, ncclSum, comms[i],
                              cuda_stream(*streams[i])),
                ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    for (size_t i = 0; i < 2; ++i) EXPECT_THAT(values[i]->read(*streams[i]), ElementsAre(3));
  }
  for (ncclComm_t comm : comms) ncclCommDestroy(comm);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  set_devices(1);
}

}  // namespace
}  // namespace simulated_gpu::collectives_test
