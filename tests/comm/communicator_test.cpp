#include "src/comm/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "src/comm/threads.h"
#include "src/core/bf16.h"
#include "tests/comm/on_ranks.h"
#include "tests/support/harness.h"

namespace owt::communicator_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

template <class T>
Tensor tensor_of(const std::vector<T>& values, Device device) {
  Tensor host({static_cast<int64_t>(values.size())}, DTypeOf<T>::value);
  std::copy(values.begin(), values.end(), host.data<T>());
  return host.to(device);
}

template <class T = float>
std::vector<T> values(const Tensor& tensor) {
  const Tensor host = tensor.to(Device::kCpu);
  return {host.data<T>(), host.data<T>() + host.elements()};
}

std::vector<float> all_equal(int64_t elements, int value) {
  return std::vector<float>(static_cast<size_t>(elements), static_cast<float>(value));
}

Tensor bf16_of(float value, Device device) {
  Tensor host({1}, DType::kBF16);
  *static_cast<uint16_t*>(host.raw()) = to_bf16(value);
  return host.to(device);
}

float bf16_value(const Tensor& tensor) {
  const Tensor host = tensor.to(Device::kCpu);
  return from_bf16(*static_cast<const uint16_t*>(host.raw()));
}

class NotesRoutes : public Communicator {
 public:
  int rank() const override { return 0; }
  int ranks() const override { return 2; }
  std::unique_ptr<Communicator> split(int) override { return nullptr; }
  Event run(const Call&) override { return {}; }
  std::vector<Route> opened;

 private:
  void open(const std::vector<Route>& routes) override { opened = routes; }
};

TEST(Routes, OneThatIsOpenedTwiceHasRoomForTheMostBytesAndMessages) {
  NotesRoutes comm;
  comm.connect({{0, 1, 4'000, 1}, {0, 1, 4, 5}});
  ASSERT_EQ(comm.opened.size(), 1u);
  EXPECT_EQ(comm.opened[0].bytes, 4'000);
  EXPECT_EQ(comm.opened[0].under_way, 5);
}

// Every collective on every device with several numbers of ranks.
class Collectives : public OnRanks {
 protected:
  Tensor tensor(const std::vector<float>& values) const { return tensor_of(values, device()); }
  Tensor empty(int64_t elements) const { return Tensor({elements}, DType::kF32, device()); }
};
INSTANTIATE_TEST_SUITE_P(Devices, Collectives,
                         ::testing::Combine(::testing::ValuesIn(devices_of_ranks()),
                                            ::testing::ValuesIn(numbers_of_ranks({1, 2, 3, 4, 7}))),
                         [](const auto& info) {
                           return concat(name_of(std::get<0>(info.param)), "_", std::get<1>(info.param));
                         });

TEST_P(Collectives, AllReduceGivesEveryRankTheSameSum) {
  constexpr int64_t kElements = 10'007;  // no multiple of the ranks
  run([&](Communicator& comm) {
    std::vector<float> mine(kElements);
    for (int64_t i = 0; i < kElements; ++i)
      mine[static_cast<size_t>(i)] = std::sin(static_cast<float>(i) * static_cast<float>(comm.rank() + 1));
    Tensor t = tensor(mine), all = empty(ranks() * kElements);
    comm.all_reduce(t, {}).wait();
    comm.all_gather(t, all, {}).wait();
    const std::vector<float> sums = values(t);
    for (int64_t i = 0; i < kElements; i += 13) {
      double sum = 0;
      for (int r = 0; r < ranks(); ++r) sum += std::sin(static_cast<float>(i) * static_cast<float>(r + 1));
      EXPECT_NEAR(sums[static_cast<size_t>(i)], sum, 1e-5);
    }
    for (int r = 0; r < ranks(); ++r) EXPECT_EQ(values(all.rows(r * kElements, (r + 1) * kElements)), sums);
  });
}

TEST_P(Collectives, AllReduceOfFewerElementsThanRanksSumsThemAll) {
  run([&](Communicator& comm) {
    Tensor t = tensor({1, static_cast<float>(comm.rank())});
    comm.all_reduce(t, {}).wait();
    EXPECT_THAT(values(t), ElementsAre(ranks(), ranks() * (ranks() - 1) / 2));
  });
}

TEST_P(Collectives, DoublesKeepTheirPrecisionInSums) {
  run([&](Communicator& comm) {
    Tensor t = tensor_of<double>({1 + std::ldexp(1.0, -40), -1.0}, device());
    comm.all_reduce(t, {}).wait();
    EXPECT_THAT(values<double>(t), ElementsAre(ranks() * (1 + std::ldexp(1.0, -40)), -ranks()));
  });
}

// Where neighbouring bf16 numbers differ by 2, 256 + 1 is rounded to 256: only a sum that is rounded once grows.
TEST_P(Collectives, SumsOfBf16AreRoundedOnce) {
  if (!one_memory()) GTEST_SKIP() << "NCCL rounds after each addition";
  run([&](Communicator& comm) {
    Tensor t = bf16_of(comm.rank() == 0 ? 256.0f : 1.0f, device());
    comm.all_reduce(t, {}).wait();
    EXPECT_EQ(bf16_value(t), from_bf16(to_bf16(256.0f + static_cast<float>(ranks() - 1))));
  });
}

TEST_P(Collectives, AllGatherPutsThePartsInRankOrder) {
  run([&](Communicator& comm) {
    const float r = static_cast<float>(comm.rank());
    Tensor all = empty(2 * ranks());
    comm.all_gather(tensor({10 * r, 10 * r + 1}), all, {}).wait();
    const auto gathered = values(all);
    for (int other = 0; other < ranks(); ++other) {
      EXPECT_EQ(gathered[static_cast<size_t>(2 * other)], 10.0f * static_cast<float>(other));
      EXPECT_EQ(gathered[static_cast<size_t>(2 * other + 1)], 10.0f * static_cast<float>(other) + 1);
    }
  });
}

TEST_P(Collectives, AllGatherMovesAnyElements) {
  run([&](Communicator& comm) {
    Tensor labels({ranks()}, DType::kI32, device()), pixels({ranks()}, DType::kU8, device());
    comm.all_gather(tensor_of<int32_t>({-7 * comm.rank()}, device()), labels, {}).wait();
    comm.all_gather(tensor_of<uint8_t>({static_cast<uint8_t>(255 - comm.rank())}, device()), pixels, {}).wait();
    for (int other = 0; other < ranks(); ++other) {
      EXPECT_EQ(values<int32_t>(labels)[static_cast<size_t>(other)], -7 * other);
      EXPECT_EQ(values<uint8_t>(pixels)[static_cast<size_t>(other)], 255 - other);
    }
  });
}

TEST_P(Collectives, ReduceScatterIsAllReduceCutIntoParts) {
  run([&](Communicator& comm) {
    std::vector<float> all(3 * static_cast<size_t>(ranks()));
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(static_cast<int>(i) + comm.rank());
    Tensor mine = empty(3);
    comm.reduce_scatter(tensor(all), mine, {}).wait();
    for (int i = 0; i < 3; ++i) {
      const int element = comm.rank() * 3 + i;
      EXPECT_EQ(values(mine)[static_cast<size_t>(i)],
                static_cast<float>(ranks() * element + ranks() * (ranks() - 1) / 2));
    }
  });
}

TEST_P(Collectives, APartOfTheWholeMayBeGatheredFromAndSummedInto) {
  constexpr int64_t kElements = 10'007;
  run([&](Communicator& comm) {
    const int r = comm.rank();
    Tensor all = empty(ranks() * kElements), sums = empty(ranks() * kElements);
    fill(all, -1);
    Tensor mine = all.part(r * kElements, {kElements}), sum = sums.part(r * kElements, {kElements});
    fill(mine, static_cast<float>(r));
    comm.all_gather(mine, all, {}).wait();
    for (int other = 0; other < ranks(); ++other)
      EXPECT_EQ(values(all.part(other * kElements, {kElements})), all_equal(kElements, other));

    fill(sums, static_cast<float>(r + 1));
    comm.reduce_scatter(sums, sum, {}).wait();
    for (int other = 0; other < ranks(); ++other)
      EXPECT_EQ(values(sums.part(other * kElements, {kElements})),
                all_equal(kElements, other == r ? ranks() * (ranks() + 1) / 2 : r + 1));
  });
}

TEST_P(Collectives, BroadcastAndReduceAreMirrorImages) {
  const int root = ranks() - 1;
  run([&](Communicator& comm) {
    Tensor out = empty(2);
    comm.broadcast(comm.rank() == root ? tensor({5, 6}) : Tensor(), out, root, {}).wait();
    EXPECT_THAT(values(out), ElementsAre(5, 6));
    Tensor in_place = comm.rank() == root ? tensor({7, 8}) : empty(2);
    comm.broadcast(in_place, in_place, root, {}).wait();
    EXPECT_THAT(values(in_place), ElementsAre(7, 8));
    Tensor sum = comm.rank() == root ? empty(2) : Tensor();
    comm.reduce(tensor({1, static_cast<float>(comm.rank())}), sum, root, {}).wait();
    if (comm.rank() == root) {
      EXPECT_THAT(values(sum), ElementsAre(ranks(), ranks() * (ranks() - 1) / 2));
    }
  });
}

TEST_P(Collectives, ReduceSumsEveryElementOfALargeTensor) {
  constexpr int64_t kElements = 100'003;
  run([&](Communicator& comm) {
    Tensor mine = empty(kElements), sum = comm.rank() == 0 ? empty(kElements) : Tensor();
    fill(mine, static_cast<float>(comm.rank() + 1));
    comm.reduce(mine, sum, 0, {}).wait();
    if (comm.rank() == 0) {
      EXPECT_EQ(values(sum), all_equal(kElements, ranks() * (ranks() + 1) / 2));
    }
  });
}

TEST_P(Collectives, AllToAllTransposesTheParts) {
  run([&](Communicator& comm) {
    std::vector<float> mine(static_cast<size_t>(ranks()));
    for (int i = 0; i < ranks(); ++i) mine[static_cast<size_t>(i)] = static_cast<float>(100 * comm.rank() + i);
    Tensor theirs = empty(ranks());
    comm.all_to_all(tensor(mine), theirs, {}).wait();
    for (int i = 0; i < ranks(); ++i)
      EXPECT_EQ(values(theirs)[static_cast<size_t>(i)], static_cast<float>(100 * i + comm.rank()));
  });
}

TEST_P(Collectives, TensorsWithoutElementsTakePartToo) {
  run([&](Communicator& comm) {
    Tensor none = empty(0), more = empty(0), one = tensor({1});
    comm.all_reduce(none, {}).wait();
    comm.all_gather(none, more, {}).wait();
    comm.reduce_scatter(more, none, {}).wait();
    comm.all_to_all(none, more, {}).wait();
    EXPECT_THAT(values(more), IsEmpty());
    comm.all_reduce(one, {}).wait();
    EXPECT_THAT(values(one), ElementsAre(ranks()));
  });
}

// Every rank gets the error for tensors that do not fit, before it waits for the others.
TEST_P(Collectives, TensorsThatDoNotFitEachOtherAreRefused) {
  run([&](Communicator& comm) {
    Tensor two = empty(2), odd = empty(2 * ranks() + 1), numbers({2}, DType::kI32, device());
    EXPECT_THROW(comm.all_gather(two, odd, {}), Error);
    EXPECT_THROW(comm.reduce_scatter(odd, two, {}), Error);
    EXPECT_THROW(comm.all_to_all(two, odd, {}), Error);
    EXPECT_THROW(comm.all_reduce(numbers, {}), Error);
    EXPECT_THROW(comm.broadcast(two, two, ranks(), {}), Error);
    EXPECT_THROW(comm.reduce(two, two, -1, {}), Error);
    if (ranks() == 1) return;
    EXPECT_THROW(comm.all_to_all(odd, odd, {}), Error);
    comm.broadcast(comm.rank() == 0 ? tensor({1, 2}) : odd, two, 0, {}).wait();  // read on the root only
    EXPECT_THAT(values(two), ElementsAre(1, 2));
  });
}

TEST_P(Collectives, ManyInARowKeepTheirOrder) {
  const int rounds = device() == Device::kCpu ? 2000 / ranks() : 100;
  run([&](Communicator& comm) {
    Tensor t = tensor({1});
    for (int i = 0; i < rounds; ++i) {
      fill(t, static_cast<float>(i));
      comm.all_reduce(t, {}).wait();
      ASSERT_THAT(values(t), ElementsAre(i * comm.ranks()));
    }
  });
}

// No host waits between the rounds. A rank that reads too early or too late, or writes while another rank still reads,
// would see numbers of another round.
TEST_P(Collectives, StandBetweenWhatIsQueuedBeforeReadyAndWhatWaitsForTheirEvent) {
  constexpr int kRounds = 10;
  constexpr int64_t kElements = 50'000;
  run([&](Communicator& comm) {
    const Stream stream(device());
    Tensor sum = empty(kElements), all = empty(ranks() * kElements), source = empty(kElements);
    std::vector<Tensor> numbers, sums, gathered;
    for (int i = 0; i < kRounds; ++i) {
      numbers.push_back(empty(kElements)), sums.push_back(empty(kElements)), gathered.push_back(empty(all.elements()));
      fill(numbers.back(), static_cast<float>(100 * i + comm.rank()));
    }
    for (size_t i = 0; i < kRounds; ++i) {
      sum.copy_from(numbers[i], stream);
      source.copy_from(numbers[i], stream);
      const Event summed = comm.all_reduce(sum, stream.record());
      const Event together = comm.all_gather(source, all, stream.record());
      stream.wait(summed);
      sums[i].copy_from(sum, stream);
      sum.zero(stream);
      stream.wait(together);
      gathered[i].copy_from(all, stream);
      source.zero(stream);
      all.zero(stream);
    }
    stream.synchronize();
    for (size_t i = 0; i < kRounds; ++i) {
      const int round = static_cast<int>(i);
      EXPECT_EQ(values(sums[i]), all_equal(kElements, ranks() * 100 * round + ranks() * (ranks() - 1) / 2));
      for (int r = 0; r < ranks(); ++r)
        EXPECT_EQ(values(gathered[i].rows(r * kElements, (r + 1) * kElements)), all_equal(kElements, 100 * round + r));
    }
  });
}

// The ranks of the world in a group, in its order.
std::vector<float> members(Communicator& group, int world_rank, Device device) {
  Tensor all({group.ranks()}, DType::kF32, device);
  group.all_gather(tensor_of<float>({static_cast<float>(world_rank)}, device), all, {}).wait();
  return values(all);
}

// The ranks with the same color, in rank order; neither colors nor the ranks of a group need to be consecutive.
TEST_P(Collectives, ASplitGroupIsTheRanksOfOneColorInTheirOrder) {
  const std::vector<std::function<int(int)>> colors{[](int) { return 5; },                   // all together
                                                    [](int rank) { return rank; },           // each alone
                                                    [](int rank) { return 10 - rank % 2; },  // odd ones, even ones
                                                    [](int rank) { return rank / 3; }};
  run([&](Communicator& comm) {
    for (const auto& color : colors) {
      const auto group = comm.split(color(comm.rank()));
      std::vector<float> wanted;
      int place = 0;
      for (int r = 0; r < ranks(); ++r) {
        if (color(r) != color(comm.rank())) continue;
        if (r == comm.rank()) place = static_cast<int>(wanted.size());
        wanted.push_back(static_cast<float>(r));
      }
      EXPECT_EQ(group->ranks(), static_cast<int>(wanted.size()));
      EXPECT_EQ(group->rank(), place);
      EXPECT_EQ(members(*group, comm.rank(), device()), wanted);
    }
  });
}

TEST_P(Collectives, EveryCollectiveOfAGroupStaysInIt) {
  run([&](Communicator& comm) {
    const int color = comm.rank() % 2;
    const auto group = comm.split(color);
    const int size = group->ranks();
    int sum_of_ranks = 0;
    for (int r = color; r < ranks(); r += 2) sum_of_ranks += r;
    const float mine = static_cast<float>(comm.rank());
    Tensor sum = tensor({mine}), part = empty(1), out = empty(1), theirs = empty(size);
    group->all_reduce(sum, {}).wait();
    EXPECT_THAT(values(sum), ElementsAre(sum_of_ranks));
    group->reduce_scatter(tensor(std::vector<float>(static_cast<size_t>(size), mine)), part, {}).wait();
    EXPECT_THAT(values(part), ElementsAre(sum_of_ranks));
    const int root = size - 1;
    group->broadcast(group->rank() == root ? tensor({mine}) : Tensor(), out, root, {}).wait();
    EXPECT_THAT(values(out), ElementsAre(color + 2 * root));
    Tensor total = group->rank() == root ? empty(1) : Tensor();
    group->reduce(tensor({mine}), total, root, {}).wait();
    if (group->rank() == root) {
      EXPECT_THAT(values(total), ElementsAre(sum_of_ranks));
    }
    group->all_to_all(tensor(std::vector<float>(static_cast<size_t>(size), mine)), theirs, {}).wait();
    EXPECT_EQ(values(theirs), members(*group, comm.rank(), device()));
    group->host_barrier();
  });
}

// Like a grid: groups of both directions and the whole, alternating, and groups of groups.
TEST_P(Collectives, GroupsTheWholeAndGroupsOfGroupsWorkInTurn) {
  run([&](Communicator& comm) {
    const auto row = comm.split(comm.rank() / 2), column = comm.split(comm.rank() % 2);
    const auto alone = row->split(row->rank());
    EXPECT_EQ(alone->ranks(), 1);
    const auto sum_over = [&](Communicator& group) {
      Tensor one = tensor({1});
      group.all_reduce(one, {}).wait();
      return values(one)[0];
    };
    for (int i = 0; i < 20; ++i) {
      ASSERT_EQ(sum_over(*row), static_cast<float>(row->ranks()));
      ASSERT_EQ(sum_over(*column), static_cast<float>(column->ranks()));
      ASSERT_EQ(sum_over(*alone), 1);
      ASSERT_EQ(sum_over(comm), static_cast<float>(ranks()));
    }
  });
}

// Formulas of a ring: 2 (K-1)/K S for all_reduce, (K-1)/K S for the others.
TEST(BytesSent, FollowTheRingFormulas) {
  EXPECT_EQ(bytes_sent(Collective::kAllReduce, 1000, 4), 1500);
  EXPECT_EQ(bytes_sent(Collective::kAllGather, 1000, 4), 750);
  EXPECT_EQ(bytes_sent(Collective::kReduceScatter, 1000, 2), 500);
  EXPECT_EQ(bytes_sent(Collective::kBroadcast, 1000, 5), 800);
  EXPECT_EQ(bytes_sent(Collective::kReduce, 1000, 8), 875);
  EXPECT_EQ(bytes_sent(Collective::kAllToAll, 1000, 1), 0);
  EXPECT_EQ(bytes_sent(Collective::kSend, 1000, 3), 1000);
  EXPECT_EQ(bytes_sent(Collective::kReceive, 1000, 3), 0);
}

}  // namespace
}  // namespace owt::communicator_test
