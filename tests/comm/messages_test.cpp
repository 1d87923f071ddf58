// Messages between two ranks, which are processes if the launch has several.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "src/comm/bf16_transport.h"
#include "src/comm/launch.h"
#include "src/comm/profiled.h"
#include "src/comm/threads.h"
#include "src/core/bf16.h"
#include "tests/comm/on_ranks.h"
#include "tests/support/message_of.h"

namespace owt::messages_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kMost = 16 << 20;  // bytes of a message

std::vector<Route> all_routes(int ranks, int under_way = 2) {
  std::vector<Route> routes;
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to)
      if (from != to) routes.push_back({from, to, kMost, under_way});
  return routes;
}

std::vector<Route> ring(int ranks, int under_way = 2) {
  std::vector<Route> routes;
  for (int from = 0; from < ranks; ++from) routes.push_back({from, (from + 1) % ranks, kMost, under_way});
  return routes;
}

class Messages : public OnRanks {
 protected:
  Tensor empty(int64_t elements, DType dtype = DType::kF32) const { return Tensor({elements}, dtype, device()); }
  Tensor filled(int64_t elements, float value) const {
    Tensor host({elements});
    std::fill_n(host.data(), elements, value);
    return host.to(device());
  }
  // first, first + 1, ...
  Tensor counted(int64_t elements, float first) const {
    Tensor host({elements});
    std::iota(host.data(), host.data() + elements, first);
    return host.to(device());
  }
  static std::vector<float> values(const Tensor& tensor) {
    const Tensor host = tensor.to(Device::kCpu);
    return {host.data(), host.data() + host.elements()};
  }
  static bool all_are(const Tensor& tensor, int value) {
    const Tensor host = tensor.to(Device::kCpu);
    return std::all_of(host.data(), host.data() + host.elements(),
                       [&](float element) { return element == static_cast<float>(value); });
  }
  static bool same_bits(const Tensor& a, const Tensor& b) {
    const Tensor here = a.to(Device::kCpu), there = b.to(Device::kCpu);
    const auto* const first = static_cast<const std::byte*>(here.raw());
    return here.bytes() == there.bytes() &&
           std::equal(first, first + here.bytes(), static_cast<const std::byte*>(there.raw()));
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, Messages,
                         ::testing::Combine(::testing::ValuesIn(devices_of_ranks()),
                                            ::testing::ValuesIn(numbers_of_ranks({2, 3, 4, 7}))),
                         [](const auto& info) {
                           return concat(name_of(std::get<0>(info.param)), "_", std::get<1>(info.param));
                         });

// The sizes range from 0 to more than MPI sends at once, and include exactly that size.
TEST_P(Messages, ReachTheRankTheyAreForAsTheyWereSent) {
  if (!one_memory() && ranks() > 3) GTEST_SKIP() << "so many routes take long on simulated GPUs";
  run([&](Communicator& comm) {
    comm.connect(all_routes(ranks()));
    for (const int64_t elements : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{1} << 20, int64_t{1'300'003}}) {
      const auto sent = [&](int from, int to) {
        return counted(elements + from + 3 * to, static_cast<float>(100 * from + to));
      };
      std::vector<Event> events;
      std::vector<Tensor> mine(static_cast<size_t>(ranks())), got(mine.size());
      for (int other = 0; other < ranks(); ++other) {
        mine[static_cast<size_t>(other)] = sent(comm.rank(), other);
        got[static_cast<size_t>(other)] = empty(elements + other + 3 * comm.rank());
      }
      for (int other = 0; other < ranks(); ++other) {
        if (other == comm.rank()) continue;
        events.push_back(comm.send(mine[static_cast<size_t>(other)], other, {}));
        events.push_back(comm.receive(got[static_cast<size_t>(other)], other, {}));
      }
      for (const Event& event : events) event.wait();
      for (int other = 0; other < ranks(); ++other)
        if (other != comm.rank()) {
          EXPECT_TRUE(same_bits(got[static_cast<size_t>(other)], sent(other, comm.rank()))) << other;
        }
    }
  });
}

TEST_P(Messages, MoveAnyElements) {
  run([&](Communicator& comm) {
    comm.connect(ring(ranks()));
    const int next = (comm.rank() + 1) % ranks(), before = (comm.rank() + ranks() - 1) % ranks();
    for (const DType dtype : {DType::kI32, DType::kU8, DType::kI64, DType::kF64, DType::kBF16}) {
      const auto bytes_of_rank = [&](int rank) {
        Tensor host({5}, dtype);
        auto* const bytes = static_cast<uint8_t*>(host.raw());
        for (int64_t i = 0; i < host.bytes(); ++i) bytes[i] = static_cast<uint8_t>(50 * rank + i);
        return host;
      };
      Tensor got = empty(5, dtype);
      const Tensor mine = bytes_of_rank(comm.rank()).to(device());
      const Event sent = comm.send(mine, next, {});
      comm.receive(got, before, {}).wait();
      sent.wait();
      EXPECT_TRUE(same_bits(got, bytes_of_rank(before))) << name_of(dtype);
    }
  });
}

// Each rank with a message as large as no library keeps for later: one that waited in its call would wait for ever.
TEST_P(Messages, GoAroundARingWhoeverCallsFirst) {
  constexpr int64_t kElements = 1'500'000;
  run([&](Communicator& comm) {
    comm.connect(ring(ranks()));
    const int next = (comm.rank() + 1) % ranks(), before = (comm.rank() + ranks() - 1) % ranks();
    const Tensor mine = filled(kElements, static_cast<float>(comm.rank()));
    for (const bool sends_first : {true, false, comm.rank() % 2 == 0}) {
      Tensor got = empty(kElements);
      Event sent, received;
      if (sends_first) sent = comm.send(mine, next, {});
      received = comm.receive(got, before, {});
      if (!sends_first) sent = comm.send(mine, next, {});
      sent.wait();
      received.wait();
      EXPECT_TRUE(all_are(got, before));
    }
  });
}

TEST_P(Messages, ManyInFlightArriveInTheOrderInWhichTheyWereSent) {
  constexpr int kMessages = 40;
  run([&](Communicator& comm) {
    comm.connect(ring(ranks(), kMessages));
    const int next = (comm.rank() + 1) % ranks(), before = (comm.rank() + ranks() - 1) % ranks();
    std::vector<Tensor> mine, got;
    std::vector<Event> events;
    for (int i = 0; i < kMessages; ++i) {
      mine.push_back(filled(1 + 997 * i, static_cast<float>(100 * comm.rank() + i)));
      got.push_back(empty(1 + 997 * i));
    }
    for (Tensor& tensor : got) events.push_back(comm.receive(tensor, before, {}));
    for (const Tensor& tensor : mine) events.push_back(comm.send(tensor, next, {}));
    for (auto event = events.rbegin(); event != events.rend(); ++event) event->wait();
    for (const Event& event : events) EXPECT_TRUE(event.done());
    for (int i = 0; i < kMessages; ++i) EXPECT_TRUE(all_are(got[static_cast<size_t>(i)], 100 * before + i));
  });
}

// Rank 0 asks rank 1 first, but rank 1 answers last: only after rank 0 has received from the last rank and sent to rank
// 1.
TEST_P(Messages, OfOtherRoutesDoNotWaitForOneAnother) {
  if (ranks() < 3) GTEST_SKIP() << "for three ranks or more";
  const int last = ranks() - 1;
  run([&](Communicator& comm) {
    comm.connect({{0, 1, 4}, {1, 0, kMost}, {last, 0, kMost}});
    constexpr int64_t kElements = 500'000;
    if (comm.rank() == 0) {
      Tensor late = empty(kElements), early = empty(kElements);
      const Event answered = comm.receive(late, 1, {});
      comm.receive(early, last, {}).wait();
      comm.send(early.part(0, {1}), 1, {}).wait();
      answered.wait();
      EXPECT_TRUE(all_are(early, 7));
      EXPECT_TRUE(all_are(late, 8));
    }
    if (comm.rank() == 1) {
      Tensor told = empty(1);
      comm.receive(told, 0, {}).wait();
      comm.send(filled(kElements, values(told)[0] + 1), 0, {}).wait();
    }
    if (comm.rank() == last) comm.send(filled(kElements, 7), 0, {}).wait();
  });
}

TEST_P(Messages, CollectivesDoNotWaitForThem) {
  run([&](Communicator& comm) {
    comm.connect(ring(ranks()));
    const int next = (comm.rank() + 1) % ranks(), before = (comm.rank() + ranks() - 1) % ranks();
    Tensor got = empty(1'000'000), sum = filled(10, 1);
    const Tensor mine = filled(1'000'000, static_cast<float>(comm.rank()));
    const Event received = comm.receive(got, before, {});
    comm.all_reduce(sum, {}).wait();
    const Event sent = comm.send(mine, next, {});
    comm.all_reduce(sum, {}).wait();
    received.wait();
    sent.wait();
    EXPECT_TRUE(all_are(got, before));
    EXPECT_TRUE(all_are(sum, ranks() * ranks()));
  });
}

// No host waits between the rounds. A rank that reads too early or too late would see numbers of another round.
TEST_P(Messages, StandBetweenWhatIsQueuedBeforeReadyAndWhatWaitsForTheirEvent) {
  constexpr int kRounds = 10;
  constexpr int64_t kElements = 50'000;
  run([&](Communicator& comm) {
    comm.connect(ring(ranks()));
    const int next = (comm.rank() + 1) % ranks(), before = (comm.rank() + ranks() - 1) % ranks();
    const Stream stream(device());
    Tensor source = empty(kElements), target = empty(kElements);
    std::vector<Tensor> numbers, got;
    for (int i = 0; i < kRounds; ++i) {
      numbers.push_back(filled(kElements, static_cast<float>(100 * i + comm.rank())));
      got.push_back(empty(kElements));
    }
    for (size_t i = 0; i < kRounds; ++i) {
      source.copy_from(numbers[i], stream);
      const Event sent = comm.send(source, next, stream.record());
      const Event received = comm.receive(target, before, stream.record());
      stream.wait(received);
      got[i].copy_from(target, stream);
      target.zero(stream);
      stream.wait(sent);
      source.zero(stream);
    }
    stream.synchronize();
    for (size_t i = 0; i < kRounds; ++i) EXPECT_TRUE(all_are(got[i], 100 * static_cast<int>(i) + before));
  });
}

// Like a pipeline: batches pass from rank to rank and return the same way. Before its first backward a rank runs
// forward as often as there are ranks after it; then forward and backward alternate. No host waits, and no memory is
// allocated or freed, for which a GPU would wait.
TEST_P(Messages, CarryAPipelineInItsFixedOrder) {
  constexpr int kBatches = 6;
  constexpr int64_t kElements = 20'000;
  const int last = ranks() - 1;
  run([&](Communicator& comm) {
    const int rank = comm.rank();
    std::vector<Route> routes;
    for (int r = 0; r < last; ++r) {
      routes.push_back({r, r + 1, kMost, kBatches});
      routes.push_back({r + 1, r, kMost, kBatches});
    }
    comm.connect(routes);
    const Stream stream(device());
    std::vector<Tensor> x, y, dx;
    for (int i = 0; i < kBatches; ++i) {
      x.push_back(filled(kElements, rank == 0 ? static_cast<float>(10 * i) : -1));
      y.push_back(empty(kElements));
      dx.push_back(filled(kElements, -1));
    }
    std::vector<Event> sent;
    const auto forward = [&](size_t i) {
      if (rank > 0) stream.wait(comm.receive(x[i], rank - 1, stream.record()));
      y[i].copy_from(x[i], stream);
      if (rank < last) sent.push_back(comm.send(y[i], rank + 1, stream.record()));
    };
    const auto backward = [&](size_t i) {
      if (rank < last) stream.wait(comm.receive(dx[i], rank + 1, stream.record()));
      if (rank == last) dx[i].copy_from(y[i], stream);
      if (rank > 0) sent.push_back(comm.send(dx[i], rank - 1, stream.record()));
    };
    const auto ahead = static_cast<size_t>(std::min(last - rank, kBatches));
    for (size_t i = 0; i < ahead; ++i) forward(i);
    for (size_t i = 0; i < kBatches; ++i) {
      if (ahead + i < kBatches) forward(ahead + i);
      backward(i);
    }
    for (const Event& event : sent) event.wait();
    stream.synchronize();
    for (int i = 0; i < kBatches; ++i) EXPECT_TRUE(all_are(dx[static_cast<size_t>(i)], 10 * i)) << i;
  });
}

TEST_P(Messages, OfAGroupAreBetweenItsRanks) {
  run([&](Communicator& comm) {
    comm.connect({{0, 1, kMost}});
    const auto half = comm.split(comm.rank() % 2);
    if (half->ranks() == 1) return;
    EXPECT_THROW(half->send(empty(1), half->rank() == 0 ? 1 : 0, {}), Error)
        << "a route of the whole is none of a group";
    const int size = half->ranks(), next = (half->rank() + 1) % size, before = (half->rank() + size - 1) % size;
    half->connect(ring(size));
    Tensor got = empty(3);
    const Tensor mine = filled(3, static_cast<float>(comm.rank()));
    const Event sent = half->send(mine, next, {});
    half->receive(got, before, {}).wait();
    sent.wait();
    EXPECT_TRUE(all_are(got, 2 * before + comm.rank() % 2));
  });
}

TEST_P(Messages, WithoutARouteAreRefused) {
  run([&](Communicator& comm) {
    const int next = (comm.rank() + 1) % ranks();
    Tensor one = empty(1), two = empty(2);
    EXPECT_THAT(message_of([&] { comm.send(one, next, {}); }),
                HasSubstr(concat("no route for 4 bytes from rank ", comm.rank(), " to rank ", next, " of ", ranks())));
    EXPECT_THROW(comm.connect({{0, 0, 4}}), Error);
    EXPECT_THROW(comm.connect({{0, ranks(), 4}}), Error);
    EXPECT_THROW(comm.connect({{-1, 0, 4}}), Error);
    std::vector<Route> routes = ring(ranks());
    for (Route& route : routes) route.bytes = 4;
    comm.connect(routes);
    EXPECT_THROW(comm.send(two, next, {}), Error) << "too large";
    EXPECT_THROW(comm.send(one, comm.rank(), {}), Error) << "to itself";
    EXPECT_THROW(comm.receive(one, ranks(), {}), Error);
  });
}

TEST_P(Messages, FindARouteThatIsOpenedTwiceFitForBoth) {
  constexpr int kMessages = 5;
  run([&](Communicator& inner) {
    const auto comm = make_bf16_transport(inner, device());
    comm->connect({{0, 1, 4'000, 1}, {0, 1, 4, kMessages}});
    comm->connect({{0, 1, 400, 2}});
    const Stream stream(device());
    std::vector<Tensor> all;
    for (int i = 0; i < kMessages; ++i) all.push_back(filled(1'000, comm->rank() == 0 ? static_cast<float>(i) : -1));
    for (Tensor& tensor : all) {
      if (comm->rank() == 0) stream.wait(comm->send(tensor, 1, {}));
      if (comm->rank() == 1) stream.wait(comm->receive(tensor, 0, {}));
    }
    stream.synchronize();
    for (size_t i = 0; i < kMessages && comm->rank() == 1; ++i) EXPECT_TRUE(all_are(all[i], static_cast<int>(i)));
  });
}

TEST_P(Messages, AreCountedWhereTheyAreSent) {
  run([&](Communicator& inner) {
    Profiler profiler;
    const Stream stream(device());
    profiler.use_stream(stream);
    profiler.enable(true);
    ProfiledCommunicator comm(inner, &profiler);
    comm.connect({{0, 1, kMost}});
    profiler.begin_step();
    {
      const Profiler::Scope scope(&profiler, "there", Phase::kTransfer);
      Tensor tensor = filled(250, 3);
      if (comm.rank() == 0) stream.wait(comm.send(tensor, 1, stream.record()));
      if (comm.rank() == 1) stream.wait(comm.receive(tensor, 0, stream.record()));
      stream.synchronize();
    }
    profiler.end_step();
    EXPECT_EQ(comm.bytes(), comm.rank() == 0 ? 1000 : 0);
    EXPECT_EQ(profiler.rows()[0].bytes[0], comm.rank() == 0 ? 1000 : 0);
    if (comm.rank() <= 1) {
      EXPECT_GT(profiler.rows()[0].transfer_ms[0], 0);
    }
  });
}

// Two kinds of messages on each route; messages of a thread use a separate group beside the rank's own.
TEST_P(Messages, OfOtherThreadsTravelBesideTheRanksOwnAndAreCountedByTheRank) {
  if (device() != Device::kCpu) GTEST_SKIP() << "a GPU's queues are those of a rank's own thread";
  constexpr int kTimes = 50;
  run([&](Communicator& inner) {
    ProfiledCommunicator comm(inner, nullptr);
    const auto questions = comm.split(0), answers = comm.split(0);
    questions->connect(ring(ranks()));
    answers->connect(all_routes(ranks()));
    const int next = (comm.rank() + 1) % ranks(), before = (comm.rank() + ranks() - 1) % ranks();
    std::thread answering([&] {
      for (int i = 0; i < kTimes; ++i) {
        Tensor asked = empty(1);
        questions->for_threads().receive(asked, before, {}).wait();
        answers->for_threads().send(filled(1, 2 * values(asked).front()), before, {}).wait();
      }
    });
    for (int i = 0; i < kTimes; ++i) {
      Tensor answer = empty(1);
      const Event sent = questions->send(filled(1, static_cast<float>(i)), next, {});
      answers->receive(answer, next, {}).wait();
      sent.wait();
      EXPECT_EQ(values(answer).front(), static_cast<float>(2 * i));
    }
    answering.join();
    EXPECT_EQ(comm.bytes(), 4 * kTimes);
    comm.count_sent(4 * kTimes);
    EXPECT_EQ(comm.bytes(), 8 * kTimes);
  });
}

// From 256 on bf16 numbers are 2 apart: an odd number lies between two of them and is rounded to a multiple of four.
TEST_P(Messages, WithBf16TransportAreRoundedAndTakeHalfTheBytes) {
  constexpr int64_t kElements = 100'000;
  run([&](Communicator& inner) {
    ProfiledCommunicator counted(inner, nullptr);
    const auto comm = make_bf16_transport(counted, device());
    comm->connect(ring(ranks()));
    const int next = (comm->rank() + 1) % ranks(), before = (comm->rank() + ranks() - 1) % ranks();
    Tensor got = empty(kElements), labels = empty(2, DType::kI32), whole({2}, DType::kI32);
    whole.data<int32_t>()[0] = 1'000'001, whole.data<int32_t>()[1] = comm->rank();
    const Tensor mine = filled(kElements, 259 + 4 * static_cast<float>(comm->rank())), my_labels = whole.to(device());
    const std::vector<Event> events{comm->receive(got, before, {}), comm->receive(labels, before, {}),
                                    comm->send(mine, next, {}), comm->send(my_labels, next, {})};
    for (const Event& event : events) event.wait();
    EXPECT_TRUE(all_are(got, 260 + 4 * before));
    const Tensor arrived = labels.to(Device::kCpu);
    EXPECT_EQ(arrived.data<int32_t>()[0], 1'000'001) << "whole numbers are not rounded";
    EXPECT_EQ(arrived.data<int32_t>()[1], before);
    EXPECT_EQ(counted.bytes(), 2 * kElements + 8);
  });
}

TEST_P(Messages, OfAGroupWithBf16TransportAreCountedOnceWithTheWhole) {
  run([&](Communicator& inner) {
    ProfiledCommunicator counted(inner, nullptr);
    const auto whole = make_bf16_transport(counted, device());
    const auto group = whole->split(whole->rank() % 2);
    group->connect(group->ranks() > 1 ? std::vector<Route>{{0, 1, kMost}} : std::vector<Route>());
    const int64_t before = counted.bytes();
    Tensor tensor = filled(100, group->rank() == 0 ? 259 : 0);
    if (group->ranks() > 1 && group->rank() == 0) group->send(tensor, 1, {}).wait();
    if (group->rank() == 1) group->receive(tensor, 0, {}).wait();
    EXPECT_EQ(counted.bytes() - before, group->ranks() > 1 && group->rank() == 0 ? 200 : 0);
    if (group->rank() == 1) {
      EXPECT_TRUE(all_are(tensor, 260));
    }
  });
}

TEST_P(Messages, ManyMayBeInFlightWithBf16Transport) {
  constexpr int kMessages = 12;
  run([&](Communicator& inner) {
    const auto comm = make_bf16_transport(inner, device());
    comm->connect(ring(ranks(), 3));
    const int next = (comm->rank() + 1) % ranks(), before = (comm->rank() + ranks() - 1) % ranks();
    const Stream stream(device());
    std::vector<Tensor> mine, got;
    for (int i = 0; i < kMessages; ++i) {
      mine.push_back(filled(1000 * (i + 1), static_cast<float>(4 * i + 64 * comm->rank())));
      got.push_back(empty(1000 * (i + 1)));
    }
    for (size_t i = 0; i < kMessages; ++i) {
      const Event received = comm->receive(got[i], before, stream.record());
      const Event sent = comm->send(mine[i], next, {});
      stream.wait(received);
      stream.wait(sent);
    }
    stream.synchronize();
    for (int i = 0; i < kMessages; ++i) EXPECT_TRUE(all_are(got[static_cast<size_t>(i)], 4 * i + 64 * before));
  });
}

// What ends a launch is in process_failures.cpp.
class FailingMessages : public Messages {
 protected:
  void SetUp() override {
    Messages::SetUp();
    if (launch().several()) GTEST_SKIP() << "no further run would be possible";
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, FailingMessages,
                         ::testing::Combine(::testing::ValuesIn(devices_of_ranks()), ::testing::Values(2, 3)),
                         [](const auto& info) {
                           return concat(name_of(std::get<0>(info.param)), "_", std::get<1>(info.param));
                         });

TEST_P(FailingMessages, OfAnotherSizeAreReportedWithBothSizes) {
  if (!one_memory()) GTEST_SKIP() << "NCCL does not say so";
  const std::string told = message_of([&] {
    run([&](Communicator& comm) {
      comm.connect({{1, 0, kMost}});
      Tensor two = empty(2), three = empty(3);
      if (comm.rank() == 1) comm.send(two, 0, {}).wait();
      if (comm.rank() == 0) comm.receive(three, 1, {}).wait();
    });
  });
  EXPECT_THAT(told, AllOf(HasSubstr("a message from rank 1 has 8 bytes, wanted 12"), HasSubstr("order of messages")));
}

TEST_P(FailingMessages, EndWithTheRankAtTheirOtherEnd) {
  std::atomic<int> aborted{0};
  const std::string told = message_of([&] {
    run([&](Communicator& comm) {
      Tensor none = empty(10), one = filled(1, 1);
      try {  // the failure may end each of these calls
        comm.connect(all_routes(ranks()));
        if (comm.rank() == 0) {
          comm.receive(one, 1, {}).wait();
          fail("rank zero has had enough");
        }
        if (comm.rank() == 1) comm.send(one, 0, {}).wait();
        comm.receive(none, 0, {}).wait();
      } catch (const Aborted&) {
        ++aborted;
        throw;
      }
    });
  });
  EXPECT_EQ(told, "rank zero has had enough");
  EXPECT_EQ(aborted, ranks() - 1);
}

TEST_P(FailingMessages, EndForTheThreadsOfARankThatFails) {
  if (device() != Device::kCpu) GTEST_SKIP() << "a GPU's queues are those of a rank's own thread";
  const std::string told = message_of([&] {
    run([&](Communicator& comm) {
      comm.connect(all_routes(ranks()));
      Tensor none = empty(1);
      if (comm.rank() != 0) return comm.receive(none, 0, {}).wait();
      std::thread waiting([&] { EXPECT_THROW(comm.for_threads().receive(none, 1, {}).wait(), Aborted); });
      comm.give_up();
      waiting.join();
      fail("rank zero has had enough");
    });
  });
  EXPECT_EQ(told, "rank zero has had enough");
}

TEST(MessagesOfOne, HaveNowhereToGo) {
  if (launch().several()) GTEST_SKIP() << "there are several";
  run_ranks(1, 1, [](Communicator& comm) {
    Tensor one({1});
    comm.connect({});
    EXPECT_THROW(comm.connect({{0, 0, 4}}), Error);
    EXPECT_THROW(comm.send(one, 0, {}), Error);
  });
}

}  // namespace
}  // namespace owt::messages_test
