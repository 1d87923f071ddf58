// The ordering by collectives on GPU tensors, observed with streams that the test holds back: ranks that share one GPU,
// and ranks with one GPU each.
#include "tests/simulated_gpu/device.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <future>
#include <optional>

#include "src/comm/threads.h"
#include "src/core/graph.h"
#include "tests/simulated_gpu/runtime.h"
#include "tests/support/harness.h"

namespace owt::device_collectives_gpu_test {
namespace {

constexpr int kRanks = 3;

// Holds up a stream until it is opened.
class Gate {
 public:
  explicit Gate(const Stream& stream) {
    simulated_gpu::enqueue(cuda_stream(stream), {"gate"},
                           [opened = std::shared_future<void>(open_.get_future())] { opened.wait(); });
  }
  ~Gate() {
    if (!opened_) open();
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void open() {
    opened_ = true;
    open_.set_value();
  }

 private:
  std::promise<void> open_;
  bool opened_ = false;
};

Tensor on_gpu(const std::vector<float>& values) {
  return upload(values, {static_cast<int64_t>(values.size())}, Device::kCuda);
}

class DeviceCollectives : public ::testing::TestWithParam<int> {
 protected:
  DeviceCollectives() { simulated_gpu::set_devices(GetParam()); }
  ~DeviceCollectives() override { simulated_gpu::set_devices(1); }
};
INSTANTIATE_TEST_SUITE_P(Gpus, DeviceCollectives, ::testing::Values(1, kRanks));

TEST_P(DeviceCollectives, AreQueuedWhileAnotherRanksTensorIsNotReady) {
  std::barrier all_asked(kRanks);
  run_ranks(
      kRanks, 1,
      [&](Communicator& comm) {
        const Stream stream(Device::kCuda);
        const Tensor mine = on_gpu({static_cast<float>(comm.rank() + 1)});
        Tensor sum = on_gpu({100}), gathered = on_gpu({100, 100, 100}), seen_sum = on_gpu({0}), seen_last = on_gpu({0});
        std::optional<Gate> gate;
        if (comm.rank() == 1) gate.emplace(stream);
        sum.copy_from(mine, stream);
        const Event ready = stream.record();
        const Event summed = comm.all_reduce(sum, ready);
        const Event together = comm.all_gather(mine, gathered, ready);
        stream.wait(summed);
        seen_sum.copy_from(sum, stream);
        sum.zero(stream);
        stream.wait(together);
        seen_last.copy_from(gathered.rows(kRanks - 1, kRanks), stream);
        EXPECT_FALSE(summed.done());
        EXPECT_FALSE(together.done());
        all_asked.arrive_and_wait();
        if (gate) gate->open();
        stream.synchronize();
        EXPECT_EQ(download(seen_sum), std::vector<float>{1 + 2 + 3});
        EXPECT_EQ(download(seen_last), std::vector<float>{kRanks});
        EXPECT_TRUE(summed.done());
      },
      Device::kCuda);
}

// All ranks continue only when the last tensor has been read.
TEST_P(DeviceCollectives, EndOnARankWhenNoOtherRankReadsItsTensorAnyMore) {
  std::barrier all_asked(kRanks);
  run_ranks(
      kRanks, 1,
      [&](Communicator& comm) {
        const Stream stream(Device::kCuda);
        Tensor mine = on_gpu({10.0f * static_cast<float>(comm.rank() + 1)});
        Tensor gathered = on_gpu({0, 0, 0});
        std::optional<Gate> gate;
        if (comm.rank() == 2) gate.emplace(stream);  // this rank gathers later than the others could
        const Event together = comm.all_gather(mine, gathered, stream.record());
        stream.wait(together);
        mine.zero(stream);
        all_asked.arrive_and_wait();
        if (gate) gate->open();
        stream.synchronize();
        EXPECT_EQ(download(gathered), (std::vector<float>{10, 20, 30}));
      },
      Device::kCuda);
}

TEST_P(DeviceCollectives, ARankThatFailsEndsThoseThatWaitForIt) {
  std::atomic<int> aborted{0};
  EXPECT_THROW(run_ranks(
                   kRanks, 1,
                   [&](Communicator& comm) {
                     Tensor sum = on_gpu({1});
                     try {
                       comm.all_reduce(sum, {}).wait();
                       if (comm.rank() == 0) fail("rank zero ends");
                       comm.all_reduce(sum, {}).wait();
                     } catch (const Aborted&) {
                       ++aborted;
                       throw;
                     }
                   },
                   Device::kCuda),
               Error);
  EXPECT_EQ(aborted, kRanks - 1);
}

class OneRank : public ::testing::Test {
 protected:
  ~OneRank() override { simulated_gpu::set_devices(1); }
};

TEST_F(OneRank, RecordsItsCollectivesIntoAGraph) {
  run_ranks(
      1, 1,
      [](Communicator& comm) {
        const Stream stream(Device::kCuda);
        Tensor mine = on_gpu({1, 2}), all = on_gpu({0, 0}), sum = on_gpu({3, 4});
        const Graph graph = Graph::record(stream, [&] {
          stream.wait(comm.all_gather(mine, all, stream.record()));
          stream.wait(comm.all_reduce(sum, stream.record()));
        });
        EXPECT_EQ(download(all), (std::vector<float>{0, 0}));
        mine.copy_from(on_gpu({5, 6}));
        graph.launch(stream);
        stream.synchronize();
        EXPECT_EQ(download(all), (std::vector<float>{5, 6}));
        EXPECT_EQ(download(sum), (std::vector<float>{3, 4}));
      },
      Device::kCuda);
}

TEST_F(OneRank, UsesTheFirstOfManyGpus) {
  simulated_gpu::set_devices(4);
  run_ranks(
      1, 1,
      [](Communicator& comm) {
        int gpu = -1;
        OWT_CUDA(cudaGetDevice(&gpu));
        EXPECT_EQ(gpu, 0);
        EXPECT_TRUE(comm.records());
      },
      Device::kCuda);
}

}  // namespace
}  // namespace owt::device_collectives_gpu_test
