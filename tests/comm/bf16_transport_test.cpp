#include "src/comm/bf16_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "src/comm/profiled.h"
#include "src/comm/threads.h"
#include "src/core/bf16.h"
#include "src/core/gpus.h"
#include "tests/support/harness.h"

namespace owt::bf16_transport_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

float bf16(float value) { return from_bf16(to_bf16(value)); }

std::vector<float> all_equal(int64_t elements, int value) {
  return std::vector<float>(static_cast<size_t>(elements), static_cast<float>(value));
}

// From 256 on bf16 numbers are 2 apart: an odd number lies between two of them and is rounded to a multiple of four.
constexpr float kOdd = 259, kRounded = 260;

class Bf16Transport : public ::testing::TestWithParam<std::tuple<Device, int>> {
 protected:
  void SetUp() override {
    const auto gpus = static_cast<int>(device() == Device::kCuda ? find_gpus().list.size() : 1);
    if (gpus > 1 && gpus < ranks()) GTEST_SKIP() << ranks() << " ranks do not fit " << gpus << " GPUs";
  }

  Device device() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }
  // kOdd after a transfer; a single rank sends nothing.
  float odd() const { return ranks() == 1 ? kOdd : kRounded; }
  void run(const std::function<void(Communicator&)>& body) const {
    run_ranks(
        ranks(), 1,
        [&](Communicator& inner) {
          const auto comm = make_bf16_transport(inner, device());
          body(*comm);
        },
        device());
  }
  Tensor tensor(const std::vector<float>& values) const {
    return upload(values, {static_cast<int64_t>(values.size())}, device());
  }
  Tensor empty(int64_t elements) const { return Tensor({elements}, DType::kF32, device()); }
};
INSTANTIATE_TEST_SUITE_P(Devices, Bf16Transport,
                         ::testing::Combine(::testing::ValuesIn(devices()), ::testing::Values(1, 2, 3, 4)),
                         [](const auto& info) {
                           return concat(name_of(std::get<0>(info.param)), "_", std::get<1>(info.param));
                         });

TEST_P(Bf16Transport, IsOneOfTheSameRanks) {
  run_ranks(
      ranks(), 1,
      [&](Communicator& inner) {
        const auto comm = make_bf16_transport(inner, device());
        EXPECT_EQ(comm->rank(), inner.rank());
        EXPECT_EQ(comm->ranks(), inner.ranks());
        EXPECT_EQ(comm->records(), inner.records());
        EXPECT_EQ(&comm->unrounded(), &inner);
      },
      device());
}

// Ones and twos, which are exact in a sum however it is rounded on the way.
TEST_P(Bf16Transport, SumsOfWhatBf16HoldsAreExact) {
  run([&](Communicator& comm) {
    const auto r = static_cast<float>(comm.rank());
    const float sum_of_ranks = static_cast<float>(ranks() * (ranks() - 1) / 2);
    Tensor sum = tensor({1, r, -0.5f * r});
    comm.all_reduce(sum, {}).wait();
    EXPECT_THAT(download(sum), ElementsAre(ranks(), sum_of_ranks, -0.5f * sum_of_ranks));

    std::vector<float> all(3 * static_cast<size_t>(ranks()));
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i) + r;
    Tensor mine = empty(3);
    comm.reduce_scatter(tensor(all), mine, {}).wait();
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(download(mine)[static_cast<size_t>(i)],
                static_cast<float>(ranks() * (comm.rank() * 3 + i)) + sum_of_ranks);

    const int root = ranks() - 1;
    Tensor on_root = comm.rank() == root ? empty(2) : Tensor();
    comm.reduce(tensor({1, r}), on_root, root, {}).wait();
    if (comm.rank() == root) {
      EXPECT_THAT(download(on_root), ElementsAre(ranks(), sum_of_ranks));
    }
  });
}

// The first rank's summand is rounded up by one, the others' are exact, and so are all sums.
TEST_P(Bf16Transport, SummandsAreRoundedToNearestEven) {
  run([&](Communicator& comm) {
    const float mine = comm.rank() == 0 ? kOdd : 0.0f;
    Tensor sum = tensor({mine, -mine});
    comm.all_reduce(sum, {}).wait();
    EXPECT_THAT(download(sum), ElementsAre(odd(), -odd()));

    Tensor part = empty(1);
    comm.reduce_scatter(tensor(std::vector<float>(static_cast<size_t>(ranks()), mine)), part, {}).wait();
    EXPECT_THAT(download(part), ElementsAre(odd()));

    Tensor on_root = comm.rank() == 0 ? empty(1) : Tensor();
    comm.reduce(tensor({mine}), on_root, 0, {}).wait();
    if (comm.rank() == 0) {
      EXPECT_THAT(download(on_root), ElementsAre(odd()));
    }
  });
}

TEST_P(Bf16Transport, EveryRankEndsWithTheSameRoundedValues) {
  const int root = ranks() - 1;
  run([&](Communicator& comm) {
    const float mine = kOdd + 4 * static_cast<float>(comm.rank());
    Tensor all = empty(ranks());
    comm.all_gather(tensor({mine}), all, {}).wait();
    for (int r = 0; r < ranks(); ++r)
      EXPECT_EQ(download(all)[static_cast<size_t>(r)], odd() + 4 * static_cast<float>(r));

    Tensor out = empty(2);
    comm.broadcast(comm.rank() == root ? tensor({kOdd, 0.1f}) : Tensor(), out, root, {}).wait();
    EXPECT_THAT(download(out), ElementsAre(odd(), ranks() == 1 ? 0.1f : bf16(0.1f)));

    Tensor theirs = empty(ranks());
    comm.all_to_all(tensor(std::vector<float>(static_cast<size_t>(ranks()), mine)), theirs, {}).wait();
    EXPECT_EQ(download(theirs), download(all));
  });
}

TEST_P(Bf16Transport, NanAndInfinityArrive) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  run([&](Communicator& comm) {
    const bool last = comm.rank() == ranks() - 1;
    Tensor sum = tensor({last ? kInf : 1.0f, last ? -kInf : 1.0f, last ? NAN : 1.0f});
    comm.all_reduce(sum, {}).wait();
    EXPECT_EQ(download(sum)[0], kInf);
    EXPECT_EQ(download(sum)[1], -kInf);
    EXPECT_TRUE(std::isnan(download(sum)[2]));
  });
}

TEST_P(Bf16Transport, OtherElementsPassUnchanged) {
  run([&](Communicator& comm) {
    Tensor host({1}, DType::kF64);
    host.data<double>()[0] = 1 + std::ldexp(1.0, -40);
    Tensor sum = host.to(device());
    comm.all_reduce(sum, {}).wait();
    EXPECT_EQ(sum.to(Device::kCpu).data<double>()[0], ranks() * (1 + std::ldexp(1.0, -40)));

    Tensor labels({ranks()}, DType::kI32, device());
    comm.all_gather(upload_labels({1'000'001 + comm.rank()}, device()), labels, {}).wait();
    for (int r = 0; r < ranks(); ++r) EXPECT_EQ(download_labels(labels)[static_cast<size_t>(r)], 1'000'001 + r);

    Tensor weights = empty(ranks());
    comm.unrounded().all_gather(tensor({kOdd}), weights, {}).wait();
    EXPECT_THAT(download(weights), Each(kOdd));
  });
}

TEST_P(Bf16Transport, TensorsWithoutElementsTakePartToo) {
  run([&](Communicator& comm) {
    Tensor none = empty(0), more = empty(0), one = tensor({1});
    comm.all_reduce(none, {}).wait();
    comm.all_gather(none, more, {}).wait();
    comm.reduce_scatter(more, none, {}).wait();
    EXPECT_THAT(download(more), IsEmpty());
    comm.all_reduce(one, {}).wait();
    EXPECT_THAT(download(one), ElementsAre(ranks()));
  });
}

TEST_P(Bf16Transport, HalvesTheBytesThatAreCounted) {
  run_ranks(
      ranks(), 1,
      [&](Communicator& inner) {
        ProfiledCommunicator counted(inner, nullptr);
        const auto comm = make_bf16_transport(counted, device());
        const int64_t elements = 12 * ranks();
        Tensor all = empty(elements), mine = empty(12);
        all.zero();
        comm->all_reduce(all, {}).wait();
        EXPECT_EQ(counted.bytes(), bytes_sent(Collective::kAllReduce, elements * 2, ranks()));
        comm->reduce_scatter(all, mine, {}).wait();
        EXPECT_EQ(counted.bytes(), bytes_sent(Collective::kAllReduce, elements * 2, ranks()) +
                                       bytes_sent(Collective::kReduceScatter, elements * 2, ranks()));
      },
      device());
}

TEST_P(Bf16Transport, GroupsThatAreSplitOffHalveToo) {
  run([&](Communicator& comm) {
    const auto group = comm.split(comm.rank() % 2);  // four ranks: groups 0 and 2, 1 and 3
    Tensor sum = tensor({group->rank() == 0 ? kOdd : 0.0f, 1});
    group->all_reduce(sum, {}).wait();
    EXPECT_THAT(download(sum), ElementsAre(group->ranks() == 1 ? kOdd : kRounded, group->ranks()));
    EXPECT_EQ(group->ranks(), ranks() / 2 + (comm.rank() % 2 == 0 ? ranks() % 2 : 0));
  });
}

// No host waits between the rounds: a half that is used again too early would bring the numbers of another round.
TEST_P(Bf16Transport, ManyOfOneSizeMayBeInFlight) {
  constexpr int kRounds = 10;
  constexpr int64_t kElements = 50'000;
  run([&](Communicator& comm) {
    const Stream stream(device());
    std::vector<Tensor> sums;
    std::vector<Event> events;
    for (int i = 0; i < kRounds; ++i) {
      sums.push_back(empty(kElements));
      fill(sums.back(), static_cast<float>(4 * i + comm.rank()));
    }
    for (Tensor& sum : sums) events.push_back(comm.all_reduce(sum, {}));
    for (const Event& event : events) stream.wait(event);
    stream.synchronize();
    for (int i = 0; i < kRounds; ++i)
      EXPECT_EQ(download(sums[static_cast<size_t>(i)]),
                all_equal(kElements, ranks() * 4 * i + ranks() * (ranks() - 1) / 2));
  });
}

TEST_P(Bf16Transport, StandsBetweenWhatIsQueuedBeforeReadyAndWhatWaitsForItsEvent) {
  constexpr int kRounds = 10;
  constexpr int64_t kElements = 50'000;
  run([&](Communicator& comm) {
    const Stream stream(device());
    Tensor source = empty(kElements), all = empty(ranks() * kElements);
    std::vector<Tensor> numbers, gathered;
    for (int i = 0; i < kRounds; ++i) {
      numbers.push_back(empty(kElements)), gathered.push_back(empty(all.elements()));
      fill(numbers.back(), static_cast<float>(4 * i + comm.rank()));
    }
    for (size_t i = 0; i < kRounds; ++i) {
      source.copy_from(numbers[i], stream);
      stream.wait(comm.all_gather(source, all, stream.record()));
      gathered[i].copy_from(all, stream);
      source.zero(stream);
      all.zero(stream);
    }
    stream.synchronize();
    for (size_t i = 0; i < kRounds; ++i)
      for (int r = 0; r < ranks(); ++r)
        EXPECT_EQ(download(gathered[i].rows(r * kElements, (r + 1) * kElements)),
                  all_equal(kElements, 4 * static_cast<int>(i) + r));
  });
}

// Two ranks with the same numbers, whose sums arrive only in wait().
class LateTwins : public Communicator {
 public:
  int rank() const override { return 0; }
  int ranks() const override { return 2; }
  std::unique_ptr<Communicator> split(int) override { fail("not wanted here"); }
  Event run(const Call& call) override {
    last = std::make_shared<Late>([call, out = call.out]() mutable {
      if (call.collective == Collective::kAllGather) {
        for (int64_t r = 0; r < 2; ++r) out.part(r * call.in.elements(), call.in.shape()).copy_from(call.in);
        return;
      }
      auto* values = static_cast<uint16_t*>(out.raw());
      for (int64_t i = 0; i < out.elements(); ++i) values[i] = to_bf16(2 * from_bf16(values[i]));
    });
    return Event(last);
  }

  class Late : public Event::Pending {
   public:
    explicit Late(std::function<void()> work) : work_(std::move(work)) {}
    void wait() override {
      if (!done_) work_();
      done_ = true;
    }
    bool done() const override { return done_; }

   private:
    std::function<void()> work_;
    bool done_ = false;
  };
  std::shared_ptr<Late> last;
};

TEST(Bf16TransportInFlight, WidensOnceWhenItIsWaitedFor) {
  LateTwins twins;
  const auto comm = make_bf16_transport(twins, Device::kCpu);
  Tensor sum = upload({1, kOdd}, {2}, Device::kCpu);
  const Event event = comm->all_reduce(sum, {});
  EXPECT_FALSE(event.done());
  EXPECT_THAT(download(sum), ElementsAre(1, kOdd)) << "not there yet";
  event.wait();
  EXPECT_TRUE(event.done());
  EXPECT_THAT(download(sum), ElementsAre(2, 2 * kRounded));
  fill(sum, 7);
  event.wait();
  EXPECT_TRUE(event.done());
  EXPECT_THAT(download(sum), Each(7)) << "the tensor belongs to the caller again";
}

TEST(Bf16TransportInFlight, IsDoneOnlyWithItsValuesInPlace) {
  LateTwins twins;
  const auto comm = make_bf16_transport(twins, Device::kCpu);
  Tensor sum = upload({3}, {1}, Device::kCpu);
  const Event event = comm->all_reduce(sum, {});
  twins.last->wait();  // it has arrived, and no wait() was called for it
  EXPECT_TRUE(event.done());
  EXPECT_THAT(download(sum), ElementsAre(6));
}

TEST(Bf16TransportInFlight, KeepsSeveralApart) {
  LateTwins twins;
  const auto comm = make_bf16_transport(twins, Device::kCpu);
  std::vector<Tensor> sums;
  std::vector<Event> events;
  for (int i = 0; i < 5; ++i) {
    sums.push_back(upload({static_cast<float>(i)}, {1}, Device::kCpu));
    events.push_back(comm->all_reduce(sums.back(), {}));
    if (i == 2) events[1].wait();  // its half is free again
  }
  EXPECT_FALSE(events[0].done()) << "nobody has waited for it";
  for (const Event& event : events) event.wait();
  for (int i = 0; i < 5; ++i) EXPECT_THAT(download(sums[static_cast<size_t>(i)]), ElementsAre(2 * i));
}

TEST(Bf16TransportInFlight, KeepsApartWhatSeveralSend) {
  LateTwins twins;
  const auto comm = make_bf16_transport(twins, Device::kCpu);
  std::vector<Tensor> all;
  std::vector<Event> events;
  for (int i = 0; i < 3; ++i) {
    all.push_back(upload({0, 0}, {2}, Device::kCpu));
    events.push_back(comm->all_gather(upload({static_cast<float>(i)}, {1}, Device::kCpu), all.back(), {}));
  }
  for (const Event& event : events) event.wait();
  for (int i = 0; i < 3; ++i) EXPECT_THAT(download(all[static_cast<size_t>(i)]), Each(i));
}

// Work that ends when it is waited for.
TEST(Bf16TransportInFlight, RoundsWhenTheTensorIsReady) {
  LateTwins twins;
  const auto comm = make_bf16_transport(twins, Device::kCpu);
  Tensor sum = upload({1}, {1}, Device::kCpu);
  const Event ready(std::make_shared<LateTwins::Late>([&] { fill(sum, 5); }));
  comm->all_reduce(sum, ready).wait();
  EXPECT_THAT(download(sum), ElementsAre(10));
}

TEST(Bf16TransportInFlight, ReportsItsTransferWhoeverFindsItDone) {
  LateTwins twins;
  Profiler profiler;
  profiler.enable(true);
  ProfiledCommunicator counted(twins, &profiler);
  const auto comm = make_bf16_transport(counted, Device::kCpu);
  profiler.begin_step();
  Tensor sum({100});
  sum.zero();
  {
    const Profiler::Scope scope(&profiler, "sums", Phase::kTransfer);
    const Event event = comm->all_reduce(sum, {});
    twins.last->wait();
    EXPECT_TRUE(event.done());
  }
  EXPECT_EQ(profiler.rows()[0].bytes[0], 200);
}

}  // namespace
}  // namespace owt::bf16_transport_test
