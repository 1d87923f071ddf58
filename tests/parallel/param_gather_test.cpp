#include "src/parallel/param_gather.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "src/comm/threads.h"
#include "src/core/memory.h"
#include "src/plan/rank_model.h"
#include "src/system/check.h"
#include "tests/support/harness.h"
#include "tests/support/models.h"

namespace owt::param_gather_test {
namespace {

// Under owt-d with 2 to 4 ranks fc1 (after an image) and fc3 are split by inputs, fc2 by outputs.
const char* const kModel = R"(
name = "small"
input = [2, 5, 4]
classes = 5
layer = [
  { name = "conv1", type = "conv", out = 3, kernel = 2 },
  { name = "fc1", type = "dense", out = 7, bias = { init = { type = "gaussian", std = 1.0 } } },
  { name = "relu1", type = "relu" },
  { name = "fc2", type = "dense", out = 9, bias = { init = { type = "gaussian", std = 1.0 } } },
  { name = "fc3", type = "dense", out = 5, bias = { init = { type = "gaussian", std = 1.0 } } },
]
)";

Model small_model() { return model_of(kModel); }

Plan small_plan(Strategy strategy, int ranks, const Compute& on) {
  return make_plan(small_model(), {.ranks = ranks, .strategy = strategy, .step_rows = 12, .on = on});
}

std::vector<float> file_order(const Param& param) {
  const Tensor here = param.value.to(Device::kCpu);
  std::vector<float> file(static_cast<size_t>(here.elements()));
  param.to_file_order(here.shape().rows(), here.data(), file.data());
  return file;
}

using Case = std::tuple<Device, Strategy, int>;

class ParamGatherTest : public ::testing::TestWithParam<Case> {};

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  const auto& [device, strategy, ranks] = info.param;
  std::string name = concat(name_of(strategy), "_", ranks, "_", device);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(StrategiesAndRanks, ParamGatherTest,
                         ::testing::Combine(::testing::ValuesIn(devices()),
                                            ::testing::Values(Strategy::kDataParallel, Strategy::kOwtA, Strategy::kOwtD,
                                                              Strategy::kModelParallel, Strategy::kModelParallelDense),
                                            ::testing::Values(1, 2, 3, 4, 6)),
                         case_name);

TEST_P(ParamGatherTest, RankZeroGetsTheWholeTensorInFileOrder) {
  const auto& [device, strategy, ranks] = GetParam();
  const Plan plan = small_plan(strategy, ranks, device);
  RankModel whole(small_model(), small_plan(Strategy::kDataParallel, 1, {}), 0);
  whole.initialize(3);
  const auto body = [&, on = device](Communicator& comm) {
    RankModel mine(small_model(), plan, comm.rank());
    mine.allocate(on);
    mine.initialize(3);
    for (int64_t i = 0; i < static_cast<int64_t>(plan.layers.size()); ++i) {
      const std::vector<Param*> params = mine.layer(i).params();
      for (size_t p = 0; p < params.size(); ++p) {
        std::vector<float> file;
        const auto write = [&](std::span<const float> rows) { file.insert(file.end(), rows.begin(), rows.end()); };
        const Spread spread = spread_of(plan.layer(i), *params[p]);
        gather_parameter(spread, *params[p], params[p]->value, comm, write);
        EXPECT_EQ(file, comm.rank() == 0 ? file_order(*whole.layer(i).params()[p]) : std::vector<float>{})
            << params[p]->name << " on rank " << comm.rank();
      }
    }
  };
  run_ranks(ranks, 1, body, device);
}

// The borders of shares and of pieces fall anywhere.
TEST(ParamGather, BringsSharesOfElementsTogetherInPieces) {
  Param param;
  param.full_shape = param.file_shape = {kPieceBytes / 12 * 2 + 10, 3};
  param.part = {0, param.full_shape.rows()};
  const int64_t all = param.full_shape.elements();
  const Spread spread{{{0, 5}, {5, 5}, {5, kPieceBytes / 4 + 100}, {kPieceBytes / 4 + 100, all}}, {}};
  std::vector<float> file;
  run_ranks(4, 1, [&](Communicator& comm) {
    const Slice held = spread.elements[static_cast<size_t>(comm.rank())];
    Tensor mine({held.size()});
    for (int64_t i = 0; i < held.size(); ++i) mine.data()[i] = static_cast<float>(held.begin + i);
    int pieces = 0;
    gather_parameter(spread, param, mine, comm, [&](std::span<const float> rows) {
      file.insert(file.end(), rows.begin(), rows.end());
      ++pieces;
    });
    EXPECT_EQ(pieces, comm.rank() == 0 ? 3 : 0);
  });
  ASSERT_EQ(std::ssize(file), all);
  for (int64_t i = 0; i < all; ++i) ASSERT_EQ(file[static_cast<size_t>(i)], static_cast<float>(i));
}

TEST(ParamGather, BringsColumnsTogetherInPieces) {
  Param param;
  param.full_shape = param.file_shape = {kPieceBytes / 12 * 2 + 10, 3};
  const Spread spread{{}, {{0, 1}, {1, 3}}};
  std::vector<float> file;
  run_ranks(2, 1, [&](Communicator& comm) {
    const Slice columns = spread.columns[static_cast<size_t>(comm.rank())];
    Tensor mine({param.full_shape.rows(), columns.size()});
    for (int64_t row = 0; row < param.full_shape.rows(); ++row)
      for (int64_t c = columns.begin; c < columns.end; ++c)
        mine.data()[row * columns.size() + c - columns.begin] = static_cast<float>(row * 3 + c);
    gather_parameter(spread, param, mine, comm,
                     [&](std::span<const float> rows) { file.insert(file.end(), rows.begin(), rows.end()); });
  });
  ASSERT_EQ(std::ssize(file), param.full_shape.elements());
  for (size_t i = 0; i < file.size(); ++i) ASSERT_EQ(file[i], static_cast<float>(i));
}

TEST(ParamGather, TheLayersUnderTestAreSplitByInputsAndByOutputs) {
  for (const int ranks : {2, 3, 4}) {
    const Plan plan = small_plan(Strategy::kOwtD, ranks, {});
    EXPECT_TRUE(plan.layers[1].by_inputs()) << ranks;
    EXPECT_FALSE(plan.layers[3].by_inputs()) << ranks;
    EXPECT_TRUE(plan.layers[4].by_inputs()) << ranks;
  }
}

class PiecesTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, PiecesTest, ::testing::ValuesIn(devices()), device_name);

// Two and a half pieces.
TEST_P(PiecesTest, OfATensorBringEveryRowToTheHostOnce) {
  constexpr int64_t kWidth = 1 << 10, kRows = 5 * kPieceBytes / (2 * 4 * kWidth);
  std::vector<float> values(static_cast<size_t>(kRows * kWidth));
  std::iota(values.begin(), values.end(), 0.0f);
  const Tensor tensor = upload(values, {kRows, kWidth}, device());
  const int64_t before = host_memory().in_use;
  restart_host_memory_peak();
  int64_t seen = 0;
  for_each_piece(tensor, [&](int64_t first, const Tensor& rows) {
    EXPECT_EQ(first, seen);
    EXPECT_TRUE(std::equal(rows.data(), rows.data() + rows.elements(), values.begin() + first * kWidth));
    seen += rows.shape().rows();
  });
  EXPECT_EQ(seen, kRows);
  EXPECT_LE(host_memory().most - before, kPieceBytes);
  for_each_piece(upload({}, {0, 3}, device()), [](int64_t, const Tensor&) { FAIL() << "there are no rows"; });
}

}  // namespace
}  // namespace owt::param_gather_test
