#include "tests/simulated_gpu/device.h"

#include "src/comm/nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "src/comm/threads.h"
#include "src/core/gpus.h"
#include "src/core/graph.h"
#include "tests/simulated_gpu/runtime.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"

namespace owt::nccl_gpu_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor on_gpu(const std::vector<float>& values) {
  return upload(values, {static_cast<int64_t>(values.size())}, Device::kCuda);
}

class NcclTest : public ::testing::Test {
 protected:
  NcclTest() { simulated_gpu::set_devices(4); }
  ~NcclTest() override { simulated_gpu::set_devices(1); }

  // Runs body(communicator) on a thread with a separate GPU for each rank; `patience` by rank.
  static void run(const std::vector<std::chrono::milliseconds>& patience,
                  const std::function<void(Communicator&)>& body) {
    const int ranks = static_cast<int>(patience.size());
    const NcclId id = make_nccl_id(Cuda{});
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        use_gpu(rank);
        const auto comm = make_nccl_communicator(Cuda{}, {rank, ranks, id, {}, patience[static_cast<size_t>(rank)]});
        body(*comm);
      });
    for (std::thread& thread : threads) thread.join();
  }

  // Long enough for ranks that a busy machine delays before they meet.
  static constexpr std::chrono::milliseconds kLong = std::chrono::minutes(10), kShort{3000};
};

TEST_F(NcclTest, EveryRankHasAGpuOfItsOwnWhereThereAreEnough) {
  std::array<std::atomic<int>, 4> ranks_on{};
  run_ranks(
      4, 1,
      [&](Communicator& comm) {
        int gpu = -1;
        OWT_CUDA(cudaGetDevice(&gpu));
        ++ranks_on[static_cast<size_t>(gpu)];
        Tensor sum = on_gpu({static_cast<float>(comm.rank())});
        comm.all_reduce(sum, {}).wait();
        EXPECT_THAT(download(sum), ElementsAre(0 + 1 + 2 + 3));
      },
      Device::kCuda);
  for (const auto& ranks : ranks_on) EXPECT_EQ(ranks, 1);
}

TEST_F(NcclTest, FewerGpusThanRanksIsAnErrorThatNamesBoth) {
  EXPECT_THAT(message_of([] {
                run_ranks(
                    5, 1, [](Communicator&) {}, Device::kCuda);
              }),
              AllOf(HasSubstr("5 workers on 4 GPUs"), HasSubstr("use 4 workers"), HasSubstr("CUDA_VISIBLE_DEVICES")));
}

TEST_F(NcclTest, AMachineWithoutAGpuIsAnErrorThatNamesTheCpu) {
  simulated_gpu::set_devices(0);
  EXPECT_THAT(message_of([] {
                run_ranks(
                    1, 1, [](Communicator&) {}, Device::kCuda);
              }),
              HasSubstr("--device cpu"));
}

TEST_F(NcclTest, WorksWithoutRunRanks) {
  run({kLong, kLong, kLong}, [](Communicator& comm) {
    EXPECT_EQ(comm.ranks(), 3);
    EXPECT_FALSE(comm.records());
    EXPECT_TRUE(comm.could_record());
    Tensor all = on_gpu({0, 0, 0});
    comm.all_gather(on_gpu({static_cast<float>(comm.rank())}), all, {}).wait();
    EXPECT_THAT(download(all), ElementsAre(0, 1, 2));
  });
}

TEST_F(NcclTest, TensorsOnTheHostAreRefused) {
  run({kLong, kLong}, [](Communicator& comm) {
    Tensor host({1});
    EXPECT_THROW(comm.all_reduce(host, {}), Error);
  });
}

// The host waits for the GPU here, without information about ranks.
TEST_F(NcclTest, ARankThatFailsEndsThoseThatWaitForTheirGpu) {
  std::atomic<int> queued{0}, woken{0}, aborted{0};
  EXPECT_THAT(message_of([&] {
                run_ranks(
                    3, 1,
                    [&](Communicator& comm) {
                      const Stream stream(Device::kCuda);
                      Tensor sum = on_gpu({1});
                      comm.all_reduce(sum, {}).wait();
                      if (comm.rank() == 1) {
                        while (queued < 2) std::this_thread::yield();
                        fail("rank one ends");
                      }
                      const Event event = comm.all_reduce(sum, {});
                      ++queued;
                      stream.wait(event);
                      stream.synchronize();
                      ++woken;
                      try {
                        event.wait();
                      } catch (const Aborted&) {
                        ++aborted;
                        throw;
                      }
                    },
                    Device::kCuda);
              }),
              "rank one ends");
  EXPECT_EQ(woken, 2);
  EXPECT_EQ(aborted, 2);
}

TEST_F(NcclTest, ARecordedCollectiveRunsWithEveryReplay) {
  run({kLong, kLong}, [](Communicator& comm) {
    const Stream stream(Device::kCuda);
    Tensor sum = on_gpu({static_cast<float>(1 + comm.rank())});
    comm.all_reduce(sum, {}).wait();
    const Graph graph = Graph::record(stream, [&] { stream.wait(comm.all_reduce(sum, stream.record())); });
    EXPECT_THAT(download(sum), ElementsAre(1 + 2));
    for (int i = 0; i < 2; ++i) graph.launch(stream);
    comm.watched(stream.record()).wait();
    EXPECT_THAT(download(sum), ElementsAre(4 * (1 + 2)));
    comm.all_reduce(sum, {}).wait();
    EXPECT_THAT(download(sum), ElementsAre(8 * (1 + 2)));
  });
}

TEST_F(NcclTest, ARankThatFailsEndsThoseThatWaitForAReplay) {
  std::atomic<int> queued{0}, aborted{0};
  EXPECT_THAT(message_of([&] {
                run_ranks(
                    3, 1,
                    [&](Communicator& comm) {
                      const Stream stream(Device::kCuda);
                      Tensor sum = on_gpu({1});
                      comm.all_reduce(sum, {}).wait();
                      const Graph graph =
                          Graph::record(stream, [&] { stream.wait(comm.all_reduce(sum, stream.record())); });
                      if (comm.rank() == 1) {
                        while (queued < 2) std::this_thread::yield();
                        fail("rank one ends");
                      }
                      graph.launch(stream);
                      ++queued;
                      try {
                        comm.watched(stream.record()).wait();
                      } catch (const Aborted&) {
                        ++aborted;
                        throw;
                      }
                    },
                    Device::kCuda);
              }),
              "rank one ends");
  EXPECT_EQ(aborted, 2);
}

// The first rank ends at its own timeout, the second when NCCL reports the end of the first.
TEST_F(NcclTest, ARankThatNeverComesEndsAllThatWaitForIt) {
  std::array<std::string, 2> messages;
  std::atomic<int> ended{0};
  run({kShort, kLong, kLong}, [&](Communicator& comm) {
    Tensor sum = on_gpu({1});
    comm.all_reduce(sum, {}).wait();
    if (comm.rank() == 2) {
      while (ended < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    messages[static_cast<size_t>(comm.rank())] = message_of([&] { comm.all_reduce(sum, {}).wait(); });
    EXPECT_THROW(comm.all_reduce(sum, {}), Error);  // a broken one stays broken
    ++ended;
  });
  EXPECT_THAT(messages[0], AllOf(HasSubstr("NCCL: rank 0 of 3"), HasSubstr(" 3 s"), HasSubstr("logs")));
  EXPECT_THAT(messages[1], AllOf(HasSubstr("NCCL: remote"), HasSubstr("look at its log")));
}

// The first call after the pause is still being queued when the link is asked.
TEST_F(NcclTest, APauseLongerThanThePatienceIsNoWaiting) {
  run({kShort, kShort}, [](Communicator& comm) {
    Tensor sum = on_gpu({1});
    comm.all_reduce(sum, {}).wait();
    std::this_thread::sleep_for(kShort + std::chrono::milliseconds(100));
    comm.all_reduce(sum, {}).wait();
    EXPECT_THAT(download(sum), ElementsAre(4));
  });
}

TEST_F(NcclTest, ARankThatNeverJoinsEndsTheOthersWhenTheirPatienceDoes) {
  const NcclId id = make_nccl_id(Cuda{});
  use_gpu(0);
  EXPECT_THAT(message_of([&] {
                make_nccl_communicator(Cuda{}, {0, 2, id, {}, kShort});
              }),
              HasSubstr("has waited for the others"));
}

TEST_F(NcclTest, ARankThatMustEndLeavesTheOthersToThemselves) {
  std::atomic<bool> end{false};
  const NcclId id = make_nccl_id(Cuda{});
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    end = true;
  });
  use_gpu(0);
  EXPECT_THROW(make_nccl_communicator(Cuda{}, {0, 2, id, [&] { return end.load(); }, kLong}), Aborted);
  ends.join();
}

// Rank 0 ends between the question whether another rank has failed and NCCL's answer.
TEST_F(NcclTest, ARankThatNcclSaysHasEndedIsTheCauseIfItFailed) {
  const NcclId id = make_nccl_id(Cuda{});
  std::atomic<int> joined{0};
  std::atomic<bool> ends{false}, gone{false}, asked{false};
  std::thread rank0([&] {
    use_gpu(0);
    {
      const auto comm = make_nccl_communicator(Cuda{}, {0, 2, id, [&] { return ends.load(); }, kLong});
      Tensor sum = on_gpu({1});
      comm->all_reduce(sum, {}).wait();
      ++joined;
      EXPECT_THROW(comm->all_reduce(sum, {}).wait(), Aborted);
    }
    gone = true;
    gone.notify_all();
  });
  const auto aborted = [&] {
    if (joined < 2 || asked.exchange(true)) return asked.load();
    ends = true;
    gone.wait(false);
    return false;
  };
  std::thread rank1([&] {
    use_gpu(1);
    const auto comm = make_nccl_communicator(Cuda{}, {1, 2, id, aborted, kLong});
    Tensor sum = on_gpu({1});
    comm->all_reduce(sum, {}).wait();
    ++joined;
    gone.wait(false);
    EXPECT_THROW(comm->all_reduce(sum, {}).wait(), Aborted);
  });
  rank0.join();
  rank1.join();
}

}  // namespace
}  // namespace owt::nccl_gpu_test
