#include "src/parallel/column_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>
#include <tuple>

#include "src/comm/profiled.h"
#include "src/comm/threads.h"
#include "src/core/philox.h"
#include "src/system/check.h"
#include "tests/support/harness.h"

namespace owt::column_exchange_test {
namespace {

// A whole batch, of the rows of all ranks and all columns, of which every rank has a part.
struct Sizes {
  std::vector<int64_t> rows;  // one number for each rank
  int64_t columns;

  int ranks() const { return static_cast<int>(rows.size()); }
  std::vector<Slice> parts() const {
    std::vector<Slice> all;
    for (int r = 0; r < ranks(); ++r) all.push_back(split(columns, ranks(), r));
    return all;
  }
  Slice rows_of(int rank) const {
    const auto first = rows.begin() + rank;
    const int64_t begin = std::accumulate(rows.begin(), first, int64_t{0});
    return {begin, begin + *first};
  }
  Slice all_rows() const { return {0, rows_of(ranks() - 1).end}; }
  int64_t most_rows() const { return *std::max_element(rows.begin(), rows.end()); }
};

// Columns of rows of the whole batch, one row after the other.
template <class Value>
std::vector<float> block(Slice rows, Slice columns, const Value& value) {
  std::vector<float> values;
  for (int64_t i = rows.begin; i < rows.end; ++i)
    for (int64_t j = columns.begin; j < columns.end; ++j) values.push_back(static_cast<float>(value(i, j)));
  return values;
}

// All different, and exact in bf16.
double place(int64_t row, int64_t column) { return static_cast<double>(16 * row + column); }

using Case = std::tuple<Compute, Sizes>;

class ColumnExchangeTest : public ::testing::TestWithParam<Case> {
 protected:
  Compute on() const { return std::get<0>(GetParam()); }
  DType type() const { return activation_type(on().precision); }
  const Sizes& sizes() const { return std::get<1>(GetParam()); }

  // One rank's exchange, from and to values on the host.
  class Rank {
   public:
    Rank(const ColumnExchangeTest& test, Communicator& comm)
        : comm(comm),
          rows(test.sizes().rows_of(comm.rank())),
          all_rows(test.sizes().all_rows()),
          columns(test.sizes().parts()[static_cast<size_t>(comm.rank())]),
          all_columns{0, test.sizes().columns},
          on_(test.on()),
          stream_(on_.device),
          exchange_(test.sizes().rows, test.sizes().parts(), on_, comm) {}

    std::vector<float> forward(const std::vector<float>& mine) {
      exchange_.start_forward(tensor(mine, rows, all_columns), stream_);
      batch_ = exchange_.finish_forward(stream_);
      return batch();
    }
    std::vector<float> backward(const std::vector<float>& gradient) {
      start_backward(gradient);
      return finish_backward();
    }
    void start_backward(const std::vector<float>& gradient) {
      exchange_.gradient().copy_from(tensor(gradient, all_rows, columns), stream_);
      exchange_.start_backward(stream_);
    }
    std::vector<float> finish_backward() {
      Tensor mine = tensor(block(rows, all_columns, [](int64_t, int64_t) { return NAN; }), rows, all_columns);
      exchange_.finish_backward(mine, stream_);
      return read(mine);
    }
    std::vector<float> batch() const { return read(batch_); }  // current memory of the last forward

    Communicator& comm;
    const Slice rows, all_rows, columns, all_columns;

   private:
    Tensor tensor(const std::vector<float>& values, Slice of_rows, Slice of_columns) const {
      return upload(values, {of_rows.size(), of_columns.size()}, on_.device, activation_type(on_.precision));
    }
    std::vector<float> read(const Tensor& tensor) const {
      stream_.synchronize();
      return download(tensor);
    }

    Compute on_;
    Stream stream_;
    ColumnExchange exchange_;
    Tensor batch_;
  };

  // body(rank) on every rank.
  template <class Body>
  void on_every_rank(const Body& body) const {
    const auto run = [&](Communicator& comm) {
      Rank rank(*this, comm);
      body(rank);
    };
    run_ranks(sizes().ranks(), 1, run, on().device);
  }
};

std::vector<Case> cases() {
  const std::vector<Sizes> sizes{
      {{3}, 4},          {{2, 2}, 6},        {{3, 2}, 6},        {{2, 2}, 5},    {{2, 2, 2}, 6},
      {{3, 2, 2}, 7},    {{2, 2, 2, 2}, 12}, {{3, 3, 2, 2}, 10}, {{2, 1, 0}, 5},  // without rows
      {{1, 1, 1, 1}, 2}, {{2, 2, 1, 1}, 3},                                       // without columns
      {{1, 0, 0, 0}, 3},
  };
  std::vector<Case> all;
  for (const Device device : devices())
    for (const Precision precision : {Precision::kFp32, Precision::kBf16})
      for (const Sizes& each : sizes)
        if (precision == Precision::kFp32 || device == Device::kCuda)
          all.emplace_back(Compute{device, precision}, each);
  return all;
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  const auto& [on, sizes] = info.param;
  std::string name = "rows";
  for (const int64_t rows : sizes.rows) name += concat("_", rows);
  return concat(name, "_columns_", sizes.columns, "_", on.precision, "_", on.device);
}

INSTANTIATE_TEST_SUITE_P(RowsAndColumns, ColumnExchangeTest, ::testing::ValuesIn(cases()), case_name);

TEST_P(ColumnExchangeTest, ForwardBringsMyColumnsOfAllRowsInRankOrder) {
  on_every_rank([&](Rank& rank) {
    EXPECT_EQ(rank.forward(block(rank.rows, rank.all_columns, place)), block(rank.all_rows, rank.columns, place));
  });
}

TEST_P(ColumnExchangeTest, BackwardBringsTheGradientsOfAllColumnsOfMyRows) {
  on_every_rank([&](Rank& rank) {
    rank.forward(block(rank.rows, rank.all_columns, place));
    EXPECT_EQ(rank.backward(block(rank.all_rows, rank.columns, place)), block(rank.rows, rank.all_columns, place));
  });
}

TEST_P(ColumnExchangeTest, ServesManyStepsInBothDirections) {
  on_every_rank([&](Rank& rank) {
    for (int step = 1; step <= 4; ++step) {
      const auto value = [&](int64_t i, int64_t j) { return place(i, j) + 4 * step; };
      const auto gradient = [&](int64_t i, int64_t j) { return -place(i, j) - step; };
      EXPECT_EQ(rank.forward(block(rank.rows, rank.all_columns, value)), block(rank.all_rows, rank.columns, value));
      if (step == 3) continue;  // an evaluation
      EXPECT_EQ(rank.backward(block(rank.all_rows, rank.columns, gradient)),
                block(rank.rows, rank.all_columns, gradient));
    }
  });
}

// The gradient of the weights is computed from the batch while the batch's gradient is in transfer.
TEST_P(ColumnExchangeTest, TheBatchStaysValidWhileItsGradientIsSent) {
  on_every_rank([&](Rank& rank) {
    rank.forward(block(rank.rows, rank.all_columns, place));
    rank.start_backward(block(rank.all_rows, rank.columns, [](int64_t, int64_t) { return -1; }));
    EXPECT_EQ(rank.batch(), block(rank.all_rows, rank.columns, place));
    rank.finish_backward();
    EXPECT_EQ(rank.batch(), block(rank.all_rows, rank.columns, place));
  });
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// <forward(x), g> = <x, backward(g)>, both sums over the ranks.
TEST_P(ColumnExchangeTest, BackwardIsTheAdjointOfForward) {
  std::mutex mutex;
  double there = 0, back = 0;
  on_every_rank([&](Rank& rank) {
    const Philox random(static_cast<uint64_t>(rank.comm.rank()), RandomStream::kTest);
    const auto draw = [&](int64_t i, int64_t j) {  // few bits, so that no sum rounds
      return std::round(2 * random.normal(static_cast<uint64_t>(64 * i + j))) + 0.5;
    };
    const auto x = block(rank.rows, rank.all_columns, draw), gradient = block(rank.all_rows, rank.columns, draw);
    const double mine_there = dot(rank.forward(x), gradient), mine_back = dot(x, rank.backward(gradient));
    const std::lock_guard lock(mutex);
    there += mine_there, back += mine_back;
  });
  EXPECT_EQ(there, back);
  EXPECT_NE(there, 0);
}

TEST_P(ColumnExchangeTest, SendsABlockToEveryOtherRankEachWay) {
  const auto body = [&](Communicator& inner) {
    ProfiledCommunicator comm(inner, nullptr);
    Rank rank(*this, comm);
    const int64_t padded = sizes().most_rows() * sizes().parts().front().size() * size_of(type());
    rank.forward(block(rank.rows, rank.all_columns, place));
    EXPECT_EQ(comm.bytes(), padded * (sizes().ranks() - 1));
    rank.backward(block(rank.all_rows, rank.columns, place));
    EXPECT_EQ(comm.bytes(), 2 * padded * (sizes().ranks() - 1));
  };
  run_ranks(sizes().ranks(), 1, body, on().device);
}

using ColumnExchangeOnDevices = DeviceTest;
INSTANTIATE_TEST_SUITE_P(Devices, ColumnExchangeOnDevices, ::testing::ValuesIn(devices()), device_name);

TEST_P(ColumnExchangeOnDevices, TakesImagesForRowsOfColumns) {
  const auto body = [&](Communicator& comm) {
    const Stream stream(device());
    ColumnExchange exchange({1, 1}, {{0, 2}, {2, 4}}, device(), comm);
    const float r = static_cast<float>(10 * comm.rank());
    exchange.start_forward(upload({r, r + 1, r + 2, r + 3}, {1, 2, 1, 2}, device()), stream);
    const Tensor batch = exchange.finish_forward(stream);
    stream.synchronize();
    EXPECT_THAT(download(batch),
                comm.rank() == 0 ? ::testing::ElementsAre(0, 1, 10, 11) : ::testing::ElementsAre(2, 3, 12, 13));
    exchange.gradient().copy_from(batch, stream);
    exchange.start_backward(stream);
    Tensor home({1, 2, 1, 2}, DType::kF32, device());
    exchange.finish_backward(home, stream);
    stream.synchronize();
    EXPECT_THAT(download(home), ::testing::ElementsAre(r, r + 1, r + 2, r + 3));
  };
  run_ranks(2, 1, body, device());
}

TEST(ColumnExchange, RefusesPartsOfOtherRanks) {
  run_ranks(1, 1, [](Communicator& comm) {
    EXPECT_THROW(ColumnExchange({1, 1}, {{0, 1}}, {}, comm), Error);
    EXPECT_THROW(ColumnExchange({1}, {{0, 1}, {1, 2}}, {}, comm), Error);
  });
}

}  // namespace
}  // namespace owt::column_exchange_test
