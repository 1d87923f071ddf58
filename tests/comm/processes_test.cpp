// Collectives among processes. To be started by mpirun or owt launch with at least 2 processes. Every process runs
// every test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>
#include <tuple>
#include <vector>

#include "src/comm/launch.h"
#include "src/comm/processes.h"
#include "src/comm/thread_group.h"
#include "src/comm/threads.h"
#include "src/core/bf16.h"
#include "src/core/threads.h"

namespace owt::processes_test {
namespace {

using ::testing::ElementsAre;

int processes() { return launch().ranks; }

void run(const std::function<void(Communicator&)>& body) { run_ranks(processes(), 1, body); }

// Fills a tensor with its first elements, over and over.
void repeat(Tensor& tensor, int64_t first) {
  auto* const to = static_cast<std::byte*>(tensor.raw());
  for (int64_t done = first * size_of(tensor.dtype()); done < tensor.bytes();) {
    const int64_t more = std::min(done, tensor.bytes() - done);
    std::memcpy(to + done, to, static_cast<size_t>(more));
    done += more;
  }
}

// The numbers repeat after so many. It is a prime, so that no chunk of a message is like another.
constexpr int64_t kDrawn = 20'011;

// A rank's numbers, in [-1, 1); their sums need rounding.
template <class T, class Convert>
void draw(Tensor& tensor, int rank, int salt, const Convert& convert) {
  uint64_t state = static_cast<uint64_t>(1 + rank) * 1'000'003 + static_cast<uint64_t>(salt + 1000);
  T* const to = static_cast<T*>(tensor.raw());
  for (int64_t i = 0; i < std::min(tensor.elements(), kDrawn); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    to[i] = convert(static_cast<double>(static_cast<int64_t>(state)) * 0x1p-63);
  }
  repeat(tensor, kDrawn);
}

Tensor drawn(int64_t elements, DType dtype, int rank, int salt = 0) {
  Tensor tensor({elements}, dtype);
  if (dtype == DType::kF32) draw<float>(tensor, rank, salt, [](double x) { return static_cast<float>(x); });
  if (dtype == DType::kF64) draw<double>(tensor, rank, salt, [](double x) { return x; });
  if (dtype == DType::kBF16)
    draw<uint16_t>(tensor, rank, salt, [](double x) { return to_bf16(static_cast<float>(x)); });
  if (dtype == DType::kI64) draw<int64_t>(tensor, rank, salt, [](double x) { return static_cast<int64_t>(x * 1e9); });
  if (dtype == DType::kU8)
    draw<uint8_t>(tensor, rank, salt, [](double x) { return static_cast<uint8_t>(127 + 120 * x); });
  return tensor;
}

Tensor unwritten(int64_t elements, DType dtype) {
  Tensor tensor({elements}, dtype);
  if (elements > 0) std::memset(tensor.raw(), 0x7f, static_cast<size_t>(tensor.bytes()));
  return tensor;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() &&
         (a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0);
}

std::vector<float> values(const Tensor& tensor) {
  return {tensor.data<float>(), tensor.data<float>() + tensor.elements()};
}

Tensor numbers(const std::vector<float>& values) {
  Tensor tensor({static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), tensor.data<float>());
  return tensor;
}

// A rank's part in one collective, and its result.
using Part = std::function<Tensor(Communicator&)>;

// The same among threads: the result of the thread with this process's rank.
Tensor among_threads(const Part& part) {
  ThreadGroup group(processes(), false);
  std::vector<Tensor> results(static_cast<size_t>(processes()));
  std::vector<std::thread> threads;
  for (int r = 0; r < processes(); ++r)
    threads.emplace_back([&, r] {
      set_team_size(1);
      const auto comm = make_thread_communicator(group, r, Device::kCpu);
      results[static_cast<size_t>(r)] = part(*comm);
    });
  for (std::thread& thread : threads) thread.join();
  return results[static_cast<size_t>(launch().rank)];
}

void expect_as_among_threads(const Part& part) {
  run([&](Communicator& comm) {
    const Tensor result = part(comm);
    EXPECT_TRUE(same_bits(result, among_threads(part))) << "on rank " << comm.rank();
  });
}

// Sizes: none, fewer elements than ranks, odd numbers, and several chunks of each rank's part with a remainder: of four
// ranks' parts more than are in transit at a time, if an element has eight bytes. The largest size is left out of f32,
// which is neither the largest nor the smallest type; StartAfterTheirReadyEvent has several chunks of it.
std::vector<std::tuple<DType, int64_t>> sizes_of(const std::vector<DType>& dtypes) {
  std::vector<std::tuple<DType, int64_t>> all;
  for (const DType dtype : dtypes)
    for (const int64_t elements : {0, 1, 3, 64, 1000, 100'003, 1'300'003})
      if (dtype != DType::kF32 || elements < 1'300'003) all.emplace_back(dtype, elements);
  return all;
}

class Sums : public ::testing::TestWithParam<std::tuple<DType, int64_t>> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  int64_t elements() const { return std::get<1>(GetParam()); }
  // for collectives where all ranks have a part
  int64_t part() const { return (elements() + processes() - 1) / processes(); }
};
class Moves : public Sums {};
std::string name(const ::testing::TestParamInfo<std::tuple<DType, int64_t>>& info) {
  return concat(name_of(std::get<0>(info.param)), '_', std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(Processes, Sums, ::testing::ValuesIn(sizes_of({DType::kF32, DType::kF64, DType::kBF16})),
                         name);
INSTANTIATE_TEST_SUITE_P(Processes, Moves, ::testing::ValuesIn(sizes_of({DType::kF32, DType::kU8, DType::kI64})), name);

TEST_P(Sums, OfAllReduceHaveTheBitsOfThreads) {
  expect_as_among_threads([&](Communicator& comm) {
    Tensor sum = drawn(elements(), dtype(), comm.rank());
    comm.all_reduce(sum, {}).wait();
    return sum;
  });
}

TEST_P(Sums, OfReduceScatterHaveTheBitsOfThreads) {
  expect_as_among_threads([&](Communicator& comm) {
    const Tensor all = drawn(part() * comm.ranks(), dtype(), comm.rank());
    Tensor mine = unwritten(part(), dtype());
    comm.reduce_scatter(all, mine, {}).wait();
    return mine;
  });
}

// The numbers 0, step, ..., 6 step, over and over, plus `offset`.
Tensor small_integers(int64_t elements, DType dtype, int step, int offset) {
  Tensor tensor({elements}, dtype);
  for (int64_t i = 0; i < std::min<int64_t>(elements, 7); ++i) {
    const int value = static_cast<int>(i) * step + offset;
    if (dtype == DType::kF32) static_cast<float*>(tensor.raw())[i] = static_cast<float>(value);
    if (dtype == DType::kF64) static_cast<double*>(tensor.raw())[i] = value;
    if (dtype == DType::kBF16) static_cast<uint16_t*>(tensor.raw())[i] = to_bf16(static_cast<float>(value));
  }
  repeat(tensor, 7);
  return tensor;
}

// Small integers, whose sums are exact in every order.
TEST_P(Sums, OfReduceAreOnTheRoot) {
  run([&](Communicator& comm) {
    const int ranks = comm.ranks();
    const Tensor mine = small_integers(elements(), dtype(), 1, comm.rank());
    const Tensor want = small_integers(elements(), dtype(), ranks, ranks * (ranks - 1) / 2);
    for (int root = 0; root < ranks; ++root) {
      Tensor sum = comm.rank() == root ? unwritten(elements(), dtype()) : Tensor();
      comm.reduce(mine, sum, root, {}).wait();
      if (comm.rank() == root) {
        EXPECT_TRUE(same_bits(sum, want)) << "root " << root;
      }
    }
  });
}

TEST_P(Moves, OfAllGatherAreThoseOfThreads) {
  expect_as_among_threads([&](Communicator& comm) {
    Tensor all = unwritten(part() * comm.ranks(), dtype());
    comm.all_gather(drawn(part(), dtype(), comm.rank()), all, {}).wait();
    return all;
  });
}

TEST_P(Moves, OfAllToAllAreThoseOfThreads) {
  expect_as_among_threads([&](Communicator& comm) {
    Tensor theirs = unwritten(part() * comm.ranks(), dtype());
    comm.all_to_all(drawn(part() * comm.ranks(), dtype(), comm.rank()), theirs, {}).wait();
    return theirs;
  });
}

TEST_P(Moves, OfBroadcastReachEveryRankFromEveryRoot) {
  run([&](Communicator& comm) {
    for (int root = 0; root < comm.ranks(); ++root) {
      const Tensor sent = drawn(elements(), dtype(), root);
      Tensor out = unwritten(elements(), dtype());
      comm.broadcast(comm.rank() == root ? sent : Tensor(), out, root, {}).wait();
      EXPECT_TRUE(same_bits(out, sent)) << "root " << root;
      Tensor in_place = comm.rank() == root ? sent.clone() : unwritten(elements(), dtype());
      comm.broadcast(in_place, in_place, root, {}).wait();
      EXPECT_TRUE(same_bits(in_place, sent)) << "root " << root;
    }
  });
}

TEST(ProcessCollectives, MayGatherIntoTheTensorThatThePartIsOf) {
  run([](Communicator& comm) {
    Tensor all({2 * comm.ranks()});
    all.zero();
    Tensor mine = all.rows(2 * comm.rank(), 2 * comm.rank() + 2);
    mine.copy_from(numbers({1, static_cast<float>(comm.rank())}));
    comm.all_gather(mine, all, {}).wait();
    for (int r = 0; r < comm.ranks(); ++r) EXPECT_THAT(values(all.rows(2 * r, 2 * r + 2)), ElementsAre(1, r));
  });
}

TEST(ProcessCollectives, ManyInFlightKeepTheirOrderAndTheirTensors) {
  run([](Communicator& comm) {
    constexpr int kCalls = 60;
    std::vector<Tensor> sums, all;
    std::vector<Event> events;
    for (int i = 0; i < kCalls; ++i) {
      const int64_t elements = 1 + 997 * i;
      sums.push_back(drawn(elements, DType::kF32, comm.rank(), i));
      all.push_back(unwritten(elements * comm.ranks(), DType::kF32));
      events.push_back(comm.all_reduce(sums.back(), {}));
      // The tensor that is sent lives in the call only.
      events.push_back(comm.all_gather(drawn(elements, DType::kF32, comm.rank(), -i), all.back(), {}));
    }
    for (auto event = events.rbegin(); event != events.rend(); ++event) event->wait();
    for (const Event& event : events) EXPECT_TRUE(event.done());
    const auto begin = [](int call) { return static_cast<int64_t>(call) + 997 * call * (call - 1) / 2; };
    const Tensor want = among_threads([&](Communicator& threads) {
      Tensor all_sums({begin(kCalls)});
      for (int i = 0; i < kCalls; ++i) {
        Tensor sum = all_sums.rows(begin(i), begin(i + 1));
        sum.copy_from(drawn(sum.elements(), DType::kF32, threads.rank(), i));
        threads.all_reduce(sum, {}).wait();
      }
      return all_sums;
    });
    for (int i = 0; i < kCalls; ++i) {
      const auto call = static_cast<size_t>(i);
      const int64_t elements = sums[call].elements();
      EXPECT_TRUE(same_bits(sums[call], want.rows(begin(i), begin(i + 1)))) << i;
      for (int r = 0; r < comm.ranks(); ++r)
        EXPECT_TRUE(same_bits(all[call].rows(r * elements, (r + 1) * elements), drawn(elements, DType::kF32, r, -i)));
    }
  });
}

TEST(ProcessCollectives, StartAfterTheirReadyEvent) {
  run([](Communicator& comm) {
    constexpr int64_t kElements = 500'000;
    Tensor sum({kElements}), all({kElements * comm.ranks()});
    std::fill_n(sum.data(), kElements, 1.0f);
    const Event summed = comm.all_reduce(sum, {});
    comm.all_gather(sum, all, summed).wait();
    for (int r = 0; r < comm.ranks(); ++r)
      EXPECT_EQ(all.data()[(r + 1) * kElements - 1], static_cast<float>(comm.ranks()));
  });
}

// Work that only its owner brings to an end.
class Owned : public Event::Pending {
 public:
  void wait() override { done_ = true; }
  bool done() const override { return done_; }

 private:
  bool done_ = false;
};

TEST(ProcessCollectives, WaitForReadyEventsOfOthers) {
  run([](Communicator& comm) {
    const auto owned = std::make_shared<Owned>();
    Tensor sum = numbers({1});
    comm.all_reduce(sum, Event(owned)).wait();
    EXPECT_TRUE(owned->done());
    EXPECT_THAT(values(sum), ElementsAre(comm.ranks()));
  });
}

TEST(ProcessCollectives, OnIntegersDoNotSum) {
  run([](Communicator& comm) {
    Tensor sum({1}, DType::kI32);
    EXPECT_THROW(comm.all_reduce(sum, {}), Error);
  });
}

// Rank 0 is in a sum that rank 1 reaches only after it has the message.
TEST(ProcessMessages, LeaveBesideACollectiveThatWaitsForTheirReceiver) {
  run([](Communicator& comm) {
    comm.connect({{0, 1, 4'000'000}});
    Tensor sum = numbers({1}), large = drawn(1'000'000, DType::kF32, 0), got = unwritten(1'000'000, DType::kF32);
    if (comm.rank() == 1) comm.receive(got, 0, {}).wait();
    const Event summed = comm.all_reduce(sum, {});
    if (comm.rank() == 0) comm.send(large, 1, {}).wait();
    summed.wait();
    EXPECT_THAT(values(sum), ElementsAre(comm.ranks()));
    if (comm.rank() == 1) {
      EXPECT_TRUE(same_bits(got, large));
    }
  });
}

// The sum is not over when its message is asked for.
TEST(ProcessMessages, StartAfterACollectiveThatIsInFlight) {
  run([](Communicator& comm) {
    constexpr int64_t kElements = 500'000;
    comm.connect({{0, 1, 4 * kElements}});
    Tensor sum({kElements}), got({kElements});
    std::fill_n(sum.data(), kElements, 1.0f);
    const Event summed = comm.all_reduce(sum, {});
    if (comm.rank() == 0) comm.send(sum, 1, summed).wait();
    if (comm.rank() == 1) {
      comm.receive(got, 0, {}).wait();
      EXPECT_EQ(got.data()[kElements - 1], static_cast<float>(comm.ranks()));
    }
    summed.wait();
  });
}

TEST(ProcessSplit, MakesGroupsInTheOrderOfRanks) {
  run([](Communicator& comm) {
    const int color = comm.rank() % 2, last = comm.ranks() - 1;
    const auto part = comm.split(color);
    const int ranks = color == 0 ? last / 2 + 1 : (last + 1) / 2;
    EXPECT_EQ(part->ranks(), ranks);
    EXPECT_EQ(part->rank(), comm.rank() / 2);
    Tensor all({ranks});
    part->all_gather(numbers({static_cast<float>(comm.rank())}), all, {}).wait();
    for (int r = 0; r < ranks; ++r) EXPECT_EQ(all.data()[r], static_cast<float>(2 * r + color));
  });
}

// Messages of one group do not reach another group of the same processes.
TEST(ProcessSplit, GroupsAreIndependent) {
  run([](Communicator& comm) {
    const auto twin = comm.split(0);
    const auto half = comm.split(comm.rank() < comm.ranks() / 2 ? 0 : 1);
    const auto quarter = (comm.ranks() >= 4 ? *half : comm).split(comm.rank());
    EXPECT_EQ(twin->ranks(), comm.ranks());
    EXPECT_EQ(quarter->ranks(), 1);
    std::vector<Tensor> sums;
    std::vector<Event> events;
    const std::vector<Communicator*> groups{&comm, twin.get(), half.get(), quarter.get()};
    constexpr int64_t kElements = 40'000;
    for (int i = 0; i < 20; ++i)
      for (Communicator* group : groups) {
        sums.emplace_back(Shape{kElements});
        std::fill_n(sums.back().data(), kElements, static_cast<float>(i));
        events.push_back(group->all_reduce(sums.back(), {}));
      }
    for (const Event& event : events) event.wait();
    for (size_t i = 0; i < sums.size(); ++i) {
      const float want = static_cast<float>(static_cast<int>(i / groups.size()) * groups[i % groups.size()]->ranks());
      EXPECT_EQ(sums[i].data()[0], want);
      EXPECT_EQ(sums[i].data()[kElements - 1], want);
    }
  });
}

TEST(FromRank0, ItsResultIsEverybodys) {
  int made = 0;
  const auto make = [&] {
    ++made;
    return std::string("made\0by", 7) + std::to_string(launch().rank);
  };
  EXPECT_EQ(from_rank_0(make), std::string("made\0by0", 8));
  EXPECT_EQ(from_rank_0([] { return std::string(); }), "");
  EXPECT_EQ(made, launch().rank == 0 ? 1 : 0);
}

TEST(FromRank0, ItsErrorEndsAllAndTheNextOneWorks) {
  try {
    from_rank_0([]() -> std::string { fail("no such file"); });
    FAIL() << "no error";
  } catch (const Aborted& e) {
    EXPECT_NE(launch().rank, 0);
    EXPECT_STREQ(e.what(), "rank 0 failed: no such file");
  } catch (const Error& e) {
    EXPECT_EQ(launch().rank, 0);
    EXPECT_STREQ(e.what(), "no such file");
  }
  EXPECT_EQ(from_rank_0([] { return std::string("and on"); }), "and on");
}

TEST(FromEveryRank, TextsOfAnyLengthComeAsTheyAre) {
  const auto text_of = [](int rank) {
    return std::string(static_cast<size_t>(3 * rank), static_cast<char>('a' + rank));
  };
  const std::vector<std::string> all = from_every_rank(text_of(launch().rank));
  ASSERT_EQ(std::ssize(all), launch().ranks);
  for (int r = 0; r < launch().ranks; ++r) EXPECT_EQ(all[static_cast<size_t>(r)], text_of(r)) << "of rank " << r;
}

TEST(RunRanks, TakesAsManyRanksAsThereAreProcesses) {
  EXPECT_THROW(run_ranks(processes() + 1, 1, [](Communicator&) {}), Error);
  EXPECT_THROW(run_ranks(1, 1, [](Communicator&) {}), Error);
  int calls = 0;
  run([&](Communicator& comm) {
    ++calls;
    EXPECT_EQ(comm.rank(), launch().rank);
    EXPECT_EQ(comm.ranks(), launch().ranks);
  });
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace owt::processes_test

int main(int count, char** words) {
  testing::InitGoogleTest(&count, words);
  if (!owt::launch().several()) {
    std::cerr << "to be started by mpirun or owt launch with 2 processes or more\n";
    return 2;
  }
  try {
    const int failed = RUN_ALL_TESTS();
    owt::end_together(failed);
    return failed;
  } catch (const std::exception& e) {
    return owt::end_with_error(e, e.what(), 1);
  }
}
