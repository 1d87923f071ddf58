#include "src/parallel/feature_gather.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <tuple>

#include "src/comm/profiled.h"
#include "src/comm/threads.h"
#include "src/core/philox.h"
#include "src/plan/layer_plan.h"
#include "src/system/check.h"
#include "tests/support/harness.h"

namespace owt::feature_gather_test {
namespace {

constexpr int64_t kRows = 5;

// device and precision, ranks, columns
using Case = std::tuple<Compute, int, int>;

class FeatureGatherTest : public ::testing::TestWithParam<Case> {
 protected:
  Compute on() const { return std::get<0>(GetParam()); }
  DType type() const { return activation_type(on().precision); }
  int ranks() const { return std::get<1>(GetParam()); }
  int64_t columns() const { return std::get<2>(GetParam()); }
  std::vector<Slice> parts() const {
    std::vector<Slice> all;
    for (int r = 0; r < ranks(); ++r) all.push_back(split(columns(), ranks(), r));
    return all;
  }

  // One rank's gather, from and to values on the host.
  class Rank {
   public:
    Rank(const FeatureGatherTest& test, Communicator& comm)
        : comm(comm),
          mine(test.parts()[static_cast<size_t>(comm.rank())]),
          on_(test.on()),
          stream_(on_.device),
          gather_(test.parts(), kRows, on_, comm) {}

    std::vector<float> forward(const std::vector<float>& values) {
      const Tensor x = tensor(values);
      gather_.start_gather(x, stream_);
      return read(gather_.finish_gather(stream_));
    }
    std::vector<float> backward(const std::vector<float>& values, Layout from) {
      const Tensor gradient = tensor(values);
      if (from == Layout::kPartial) gather_.start_reduce(gradient, stream_);
      reduced_ = from == Layout::kPartial ? gather_.finish_reduce(stream_) : gather_.take(gradient, stream_);
      return reduced();
    }
    std::vector<float> reduced() const { return read(reduced_); }  // current memory of the last backward

    Communicator& comm;
    const Slice mine;  // columns

   private:
    Tensor tensor(const std::vector<float>& values) const {
      return upload(values, {kRows, static_cast<int64_t>(values.size()) / kRows}, on_.device,
                    activation_type(on_.precision));
    }
    std::vector<float> read(const Tensor& tensor) const {
      stream_.synchronize();
      return download(tensor);
    }

    Compute on_;
    Stream stream_;
    FeatureGather gather_;
    Tensor reduced_;
  };

  // body(rank) on every rank.
  template <class Body>
  void on_every_rank(const Body& body) const {
    const auto run = [&](Communicator& comm) {
      Rank rank(*this, comm);
      body(rank);
    };
    run_ranks(ranks(), 1, run, on().device);
  }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Device device : devices())
    for (const Precision precision : {Precision::kFp32, Precision::kBf16})
      for (const auto& [ranks, columns] :
           {std::pair(1, 4), {2, 8}, {3, 6}, {4, 8}, {4, 10}, {3, 10}, {3, 2}, {4, 1}, {2, 26}})
        if (precision == Precision::kFp32 || device == Device::kCuda)
          all.emplace_back(Compute{device, precision}, ranks, columns);
  return all;
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  const auto& [on, ranks, columns] = info.param;
  return concat(ranks, "_ranks_", columns, "_columns_", on.precision, "_", on.device);
}

INSTANTIATE_TEST_SUITE_P(RanksAndColumns, FeatureGatherTest, ::testing::ValuesIn(cases()), case_name);

// Columns of a rows x columns matrix with value(row, column).
template <class Value>
std::vector<float> matrix(Slice columns, const Value& value) {
  std::vector<float> values;
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = columns.begin; j < columns.end; ++j) values.push_back(static_cast<float>(value(i, j)));
  return values;
}

// All different if there are few columns, and small enough that sums are exact in bf16.
double place(int64_t row, int64_t column) { return static_cast<double>(4 * row + column % 10); }

TEST_P(FeatureGatherTest, ForwardBringsTheWholeMatrixToEveryRank) {
  on_every_rank([&](Rank& rank) { EXPECT_EQ(rank.forward(matrix(rank.mine, place)), matrix({0, columns()}, place)); });
}

TEST_P(FeatureGatherTest, BackwardOfAReplicatedGradientIsMyColumnsUnchanged) {
  on_every_rank([&](Rank& rank) {
    EXPECT_EQ(rank.backward(matrix({0, columns()}, place), Layout::kReplicated), matrix(rank.mine, place));
  });
}

TEST_P(FeatureGatherTest, ServesManyStepsInBothDirections) {
  on_every_rank([&](Rank& rank) {
    for (int step = 1; step <= 3; ++step) {
      const auto value = [&](int64_t i, int64_t j) { return step + place(i, j); };
      const auto sum = [&](int64_t i, int64_t j) { return ranks() * value(i, j); };
      EXPECT_EQ(rank.forward(matrix(rank.mine, value)), matrix({0, columns()}, value));
      EXPECT_EQ(rank.backward(matrix({0, columns()}, value), Layout::kPartial), matrix(rank.mine, sum));
    }
  });
}

// After a layer that is split by inputs, the contributions to its outputs become columns by reduce-scatter; an
// all-gather collects their gradients. The columns are the next layer's x and must outlive the all-gather.
TEST_P(FeatureGatherTest, ReducedColumnsOutliveTheGatherOfTheirGradients) {
  on_every_rank([&](Rank& rank) {
    for (int step = 1; step <= 3; ++step) {
      const int sign = step == 2 ? -1 : 1;
      const auto summand = [&](int64_t i, int64_t j) { return sign * (rank.comm.rank() + 1) * place(i, j); };
      const auto sum = [&](int64_t i, int64_t j) { return sign * ranks() * (ranks() + 1) / 2 * place(i, j); };
      const auto gradient = [&](int64_t i, int64_t j) { return -step - place(i, j); };
      EXPECT_EQ(rank.backward(matrix({0, columns()}, summand), Layout::kPartial), matrix(rank.mine, sum));
      EXPECT_EQ(rank.forward(matrix(rank.mine, gradient)), matrix({0, columns()}, gradient));
      EXPECT_EQ(rank.reduced(), matrix(rank.mine, sum));
    }
  });
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// <gather(x), g> = <x, backward(g)>, both summed over the ranks, if every rank uses its copy of the whole separately.
TEST_P(FeatureGatherTest, BackwardOfSummandsIsTheAdjointOfForward) {
  std::mutex mutex;
  double there = 0, back = 0;
  on_every_rank([&](Rank& rank) {
    const Philox random(static_cast<uint64_t>(rank.comm.rank()), RandomStream::kTest);
    const auto draw = [&](int64_t i, int64_t j) {  // few bits, so that bf16 does not round
      return std::round(2 * random.normal(static_cast<uint64_t>(64 * i + j)));
    };
    const std::vector<float> x = matrix(rank.mine, draw), gradient = matrix({0, columns()}, draw);
    const double mine_there = dot(rank.forward(x), gradient);
    const double mine_back = dot(x, rank.backward(gradient, Layout::kPartial));
    const std::lock_guard lock(mutex);
    there += mine_there, back += mine_back;
  });
  EXPECT_EQ(there, back);
  EXPECT_NE(there, 0);
}

TEST_P(FeatureGatherTest, OnlyTheGatherAndTheGradientOfSummandsTravel) {
  const auto body = [&](Communicator& inner) {
    ProfiledCommunicator comm(inner, nullptr);
    Rank rank(*this, comm);
    const int64_t padded = parts().front().size() * kRows * size_of(type()) * (ranks() - 1);
    rank.forward(matrix(rank.mine, place));
    EXPECT_EQ(comm.bytes(), padded);
    rank.backward(matrix({0, columns()}, place), Layout::kReplicated);
    EXPECT_EQ(comm.bytes(), padded);
    rank.backward(matrix({0, columns()}, place), Layout::kPartial);
    EXPECT_EQ(comm.bytes(), 2 * padded);
  };
  run_ranks(ranks(), 1, body, on().device);
}

TEST(FeatureGather, RefusesPartsOfOtherRanks) {
  run_ranks(1, 1, [](Communicator& comm) { EXPECT_THROW(FeatureGather({{0, 1}, {1, 2}}, 1, {}, comm), Error); });
}

}  // namespace
}  // namespace owt::feature_gather_test
