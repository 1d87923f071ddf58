#include "src/parallel/feature_gather.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <tuple>

#include "src/comm/profiled.h"
#include "src/comm/threads.h"
#include "src/core/check.h"
#include "src/core/philox.h"
#include "tests/support/harness.h"

namespace owt {
namespace {

const Stream kStream;

constexpr int64_t kRows = 5;

// ranks, columns
class FeatureGatherTest : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  int ranks() const { return std::get<0>(GetParam()); }
  int64_t columns() const { return std::get<1>(GetParam()); }
  std::vector<Slice> parts() const {
    std::vector<Slice> all;
    for (int r = 0; r < ranks(); ++r) all.push_back(split(columns(), ranks(), r));
    return all;
  }

  // body(gather, the rank's columns, comm) on every rank.
  template <class Body>
  void on_every_rank(const Body& body) const {
    run_ranks(ranks(), 1, [&](Communicator& comm) {
      FeatureGather gather("fc2 input", parts(), kRows, comm, nullptr);
      body(gather, parts()[static_cast<size_t>(comm.rank())], comm);
    });
  }
};

INSTANTIATE_TEST_SUITE_P(RanksAndColumns, FeatureGatherTest,
                         ::testing::Values(std::tuple(1, 4), std::tuple(2, 8), std::tuple(3, 6), std::tuple(4, 8),
                                           std::tuple(4, 10), std::tuple(3, 10), std::tuple(3, 2), std::tuple(4, 1)));

// Columns of a rows x columns matrix with value(row, column).
template <class Value>
Tensor matrix(Slice columns, const Value& value) {
  Tensor tensor({kRows, columns.size()});
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < columns.size(); ++j)
      tensor.data()[i * columns.size() + j] = static_cast<float>(value(i, columns.begin + j));
  return tensor;
}

double place(int64_t row, int64_t column) { return static_cast<double>(100 * row + column); }

TEST_P(FeatureGatherTest, ForwardBringsTheWholeMatrixToEveryRank) {
  on_every_rank([&](FeatureGather& gather, Slice mine, Communicator&) {
    EXPECT_EQ(download(gather.forward(matrix(mine, place), kStream)), download(matrix({0, columns()}, place)));
  });
}

TEST_P(FeatureGatherTest, BackwardOfSummandsIsTheSumOverRanksOfMyColumns) {
  on_every_rank([&](FeatureGather& gather, Slice mine, Communicator& comm) {
    const auto summand = [&](int64_t i, int64_t j) { return (comm.rank() + 1) * place(i, j); };
    const auto sum = [&](int64_t i, int64_t j) { return ranks() * (ranks() + 1) / 2 * place(i, j); };
    EXPECT_EQ(download(gather.backward(matrix({0, columns()}, summand), Layout::kPartial, kStream)),
              download(matrix(mine, sum)));
  });
}

TEST_P(FeatureGatherTest, BackwardOfAReplicatedGradientIsMyColumnsUnchanged) {
  on_every_rank([&](FeatureGather& gather, Slice mine, Communicator&) {
    EXPECT_EQ(download(gather.backward(matrix({0, columns()}, place), Layout::kReplicated, kStream)),
              download(matrix(mine, place)));
  });
}

TEST_P(FeatureGatherTest, ServesManyStepsInBothDirections) {
  on_every_rank([&](FeatureGather& gather, Slice mine, Communicator&) {
    for (int step = 1; step <= 3; ++step) {
      const auto value = [&](int64_t i, int64_t j) { return step + place(i, j); };
      const auto sum = [&](int64_t i, int64_t j) { return ranks() * value(i, j); };
      EXPECT_EQ(download(gather.forward(matrix(mine, value), kStream)), download(matrix({0, columns()}, value)));
      EXPECT_EQ(download(gather.backward(matrix({0, columns()}, value), Layout::kPartial, kStream)),
                download(matrix(mine, sum)));
    }
  });
}

double dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.elements(); ++i) sum += static_cast<double>(a.data()[i]) * static_cast<double>(b.data()[i]);
  return sum;
}

// <gather(x), g> = <x, backward(g)>, both sums over the ranks, when every rank uses its copy of the whole on
// its own.
TEST_P(FeatureGatherTest, BackwardOfSummandsIsTheAdjointOfForward) {
  std::mutex mutex;
  double there = 0, back = 0;
  on_every_rank([&](FeatureGather& gather, Slice mine, Communicator& comm) {
    const Philox random(static_cast<uint64_t>(comm.rank()), RandomStream::kTest);
    const auto draw = [&](int64_t i, int64_t j) { return random.normal(static_cast<uint64_t>(64 * i + j)); };
    const Tensor x = matrix(mine, draw), gradient = matrix({0, columns()}, draw);
    const double mine_there = dot(gather.forward(x, kStream), gradient);
    const double mine_back = dot(x, gather.backward(gradient, Layout::kPartial, kStream));
    const std::lock_guard lock(mutex);
    there += mine_there, back += mine_back;
  });
  EXPECT_NEAR(there, back, 1e-4);
  EXPECT_NE(there, 0);
}

TEST_P(FeatureGatherTest, OnlyTheGatherAndTheGradientOfSummandsTravel) {
  run_ranks(ranks(), 1, [&](Communicator& inner) {
    ProfiledCommunicator comm(inner, nullptr);
    FeatureGather gather("fc2 input", parts(), kRows, comm, nullptr);
    const int64_t padded = parts().front().size() * kRows * 4 * (ranks() - 1);
    gather.forward(matrix(parts()[static_cast<size_t>(comm.rank())], place), kStream);
    EXPECT_EQ(comm.bytes(), padded);
    gather.backward(matrix({0, columns()}, place), Layout::kReplicated, kStream);
    EXPECT_EQ(comm.bytes(), padded);
    gather.backward(matrix({0, columns()}, place), Layout::kPartial, kStream);
    EXPECT_EQ(comm.bytes(), 2 * padded);
  });
}

TEST(FeatureGather, RefusesGradientsOfAnotherLayoutAndPartsOfOtherRanks) {
  run_ranks(1, 1, [](Communicator& comm) {
    FeatureGather gather("fc2 input", {{0, 2}}, 1, comm, nullptr);
    EXPECT_THROW(gather.backward(Tensor({1, 2}), Layout::kBatch, kStream), Error);
    EXPECT_THROW(FeatureGather("fc2 input", {{0, 1}, {1, 2}}, 1, comm, nullptr), Error);
  });
}

}  // namespace
}  // namespace owt
