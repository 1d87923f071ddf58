#include "src/parallel/seam.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <tuple>

#include "src/comm/profiled.h"
#include "src/comm/threads.h"
#include "src/parallel/step_labels.h"
#include "src/plan/plan_rows.h"
#include "src/system/check.h"
#include "tests/support/harness.h"
#include "tests/support/late_communicator.h"
#include "tests/support/models.h"

namespace owt::seam_test {
namespace {

constexpr int64_t kFeatures = 4;

// A front part with weights, and a dense layer after it.
const char* const kModel = R"(
name = "small"
input = [2, 1, 1]
classes = 4
layer = [
  { name = "conv1", type = "conv", out = 4, kernel = 1 },
  { name = "fc1", type = "dense", out = 4 },
]
)";
// With few outputs, columns are exchanged under owt-d.
const char* const kFewOutputs = R"(
name = "narrow"
input = [2, 1, 1]
classes = 4
layer = [
  { name = "conv1", type = "conv", out = 4, kernel = 1 },
  { name = "fc1", type = "dense", out = 1 },
  { name = "fc2", type = "dense", out = 4 },
]
)";
const char* const kNothingLearnsBefore = R"(
name = "dense"
input = [5, 1, 1]
classes = 2
layer = [ { name = "fc1", type = "dense", out = 2 } ]
)";

Plan plan_of(const char* toml, Strategy strategy, int ranks, int64_t step_rows, const Compute& on) {
  return make_plan(model_of(toml), {.ranks = ranks, .strategy = strategy, .step_rows = step_rows, .on = on});
}

// The front's output for row `row` of the step, and the dense layers' gradient.
float value(int64_t step, int64_t row, int64_t feature) { return static_cast<float>(1000 * step + 10 * row + feature); }
float gradient(int64_t step, int64_t row, int64_t feature) { return static_cast<float>(step + 5 * row - feature); }

using Cell = float (*)(int64_t step, int64_t row, int64_t feature);

// These columns of the rows of the step with cell(...) * scale, as a list.
std::vector<float> cells(Cell cell, int64_t step, const std::vector<int64_t>& rows, float scale,
                         Slice columns = {0, kFeatures}) {
  std::vector<float> all;
  for (const int64_t row : rows)
    for (int64_t f = columns.begin; f < columns.end; ++f) all.push_back(scale * cell(step, row, f));
  return all;
}

std::vector<int64_t> rows_between(Slice slice) {
  std::vector<int64_t> rows;
  for (int64_t i = slice.begin; i < slice.end; ++i) rows.push_back(i);
  return rows;
}

std::vector<int32_t> labels_of(int64_t step, const std::vector<int64_t>& rows) {
  std::vector<int32_t> labels;
  for (const int64_t row : rows) labels.push_back(static_cast<int32_t>(100 * step + row));
  return labels;
}

// One rank's part in steps over a seam.
class RankSteps {
 public:
  RankSteps(const Plan& plan, int64_t step_rows, Communicator& comm)
      : plan_(plan),
        device_(plan.request.on.device),
        rank_(comm.rank()),
        groups_(plan, comm),
        rows_(rows_of(plan, step_rows)),
        rounds_(rows_.rounds(rank_)),
        seam_(make_seam(plan, rows_, rank_, comm)) {
    if (plan.of_step.labels != kNoTransfer) labels_.emplace(plan, rows_, rank_, groups_);
  }

  // Like a step: the next round is gathered before this one is computed; there is memory for two rounds. Every rank's
  // contribution to a gradient, or its columns of it, is rank + 1 times the gradient.
  void run(int64_t step) {
    SCOPED_TRACE(concat(name_of(plan_.request.strategy), ", rank ", rank_, " of ", plan_.ranks(), ", ", rows_.total(),
                        " rows, step ", step));
    const std::vector<int64_t> mine = rows_between(rows_.of(rank_));
    const Shape shape = Shape{1, 1, kFeatures}.batch_of(static_cast<int64_t>(mine.size()));
    const Tensor y = upload(cells(value, step, mine, 1), shape, device_, type());
    const Tensor labels = upload_labels(labels_of(step, mine), device_);
    const int rounds = static_cast<int>(rounds_.size());
    if (labels_) labels_->start(labels, stream_);
    seam_->start(0, y, stream_);
    for (int r = 0; r < rounds; ++r) {
      if (r >= 1 && r + 1 < rounds) seam_->wait_back(r - 1, stream_);
      if (r + 1 < rounds) seam_->start(r + 1, y, stream_);
      run_round(r, step, labels);
    }
    for (int r = std::max(0, rounds - 2); r < rounds; ++r) seam_->wait_back(r, stream_);
    const int ranks = plan_.ranks(), sum = ranks * (ranks + 1) / 2;
    if (by_columns())
      EXPECT_EQ(read(seam_->home()), gradients_of_owners(step, mine));
    else
      EXPECT_EQ(read(seam_->home()), cells(gradient, step, mine, static_cast<float>(sum)));
  }

 private:
  bool by_columns() const { return first().by_inputs(); }
  const LayerPlan& first() const { return plan_.layers.at(static_cast<size_t>(plan_.boundary)); }
  Slice columns() const { return by_columns() ? first().inputs.at(static_cast<size_t>(rank_)) : Slice{0, kFeatures}; }
  std::vector<float> gradients_of_owners(int64_t step, const std::vector<int64_t>& rows) const {
    std::vector<float> all;
    for (const int64_t row : rows)
      for (size_t owner = 0; owner < first().inputs.size(); ++owner) {
        const auto theirs = cells(gradient, step, {row}, static_cast<float>(owner + 1), first().inputs[owner]);
        all.insert(all.end(), theirs.begin(), theirs.end());
      }
    return all;
  }
  void run_round(int r, int64_t step, const Tensor& own_labels) {
    const std::vector<int64_t> batch = rows_.indexes(rounds_[static_cast<size_t>(r)], rank_);
    EXPECT_EQ(read(seam_->wait(r, stream_)), cells(value, step, batch, 1, columns())) << "round " << r;
    const Tensor labels = labels_ ? labels_->wait(r, stream_) : own_labels;
    stream_.synchronize();
    EXPECT_EQ(download_labels(labels), labels_of(step, batch)) << "round " << r;
    Tensor dx = seam_->gradient(r);
    const std::vector<float> mine = cells(gradient, step, batch, static_cast<float>(rank_ + 1), columns());
    dx.copy_from(upload(mine, dx.shape(), device_, type()), stream_);
    seam_->start_back(r, stream_);
  }

  DType type() const { return activation_type(plan_.request.on.precision); }
  std::vector<float> read(const Tensor& tensor) const {
    stream_.synchronize();
    return download(tensor);
  }

  const Plan& plan_;
  Device device_;
  int rank_;
  Groups groups_;
  StepRows rows_;
  std::vector<Round> rounds_;
  std::shared_ptr<Seam> seam_;
  std::optional<StepLabels> labels_;
  Stream stream_{device_};
};

// Fewer rows than ranks, equal numbers for each, and uneven numbers.
constexpr int64_t kStepRows[] = {1, 2, 7, 10, 12, 16};

class SeamTest : public ::testing::TestWithParam<std::tuple<Device, Strategy, int>> {
 protected:
  Device device() const { return std::get<0>(GetParam()); }
  Strategy strategy() const { return std::get<1>(GetParam()); }
  int ranks() const { return std::get<2>(GetParam()); }
  Plan plan_of(int64_t step_rows, Precision precision = Precision::kFp32) const {
    return seam_test::plan_of(kModel, strategy(), ranks(), step_rows, {device(), precision});
  }
  // body(communicator) on every rank.
  void on_every_rank(const std::function<void(Communicator&)>& body) const { run_ranks(ranks(), 1, body, device()); }
};

std::string seam_case(const ::testing::TestParamInfo<SeamTest::ParamType>& info) {
  const auto& [device, strategy, ranks] = info.param;
  std::string name = concat(name_of(strategy), "_", ranks, "_", device);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(StrategiesAndRanks, SeamTest,
                         ::testing::Combine(::testing::ValuesIn(devices()),
                                            ::testing::Values(Strategy::kOwtA, Strategy::kOwtB, Strategy::kOwtC,
                                                              Strategy::kOwtD, Strategy::kModelParallelDense),
                                            ::testing::Values(2, 3, 4)),
                         seam_case);

TEST_P(SeamTest, GathersTheRowsOfEveryRoundAndReturnsTheSumOfTheirGradients) {
  for (const int64_t step_rows : kStepRows) {
    const Plan plan = plan_of(step_rows);
    on_every_rank([&](Communicator& comm) {
      RankSteps steps(plan, step_rows, comm);
      steps.run(1);
      steps.run(2);  // in the same slots
    });
  }
}

TEST_P(SeamTest, TouchesNothingThatIsStillInFlight) {
  for (const int64_t step_rows : kStepRows) {
    const Plan plan = plan_of(step_rows);
    on_every_rank([&](Communicator& inner) {
      LateCommunicator comm(inner);
      RankSteps steps(plan, step_rows, comm);
      steps.run(1);
      steps.run(2);
    });
  }
}

class SeamInBf16 : public SeamTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SeamInBf16);
INSTANTIATE_TEST_SUITE_P(StrategiesAndRanks, SeamInBf16,
                         ::testing::Combine(::testing::ValuesIn(gpu_devices()),
                                            ::testing::Values(Strategy::kOwtA, Strategy::kOwtB, Strategy::kOwtC,
                                                              Strategy::kOwtD, Strategy::kModelParallelDense),
                                            ::testing::Values(3)),
                         seam_case);

TEST_P(SeamInBf16, GathersTheRowsOfEveryRoundAndReturnsTheSumOfTheirGradients) {
  // Small enough numbers for all of them and their sums to be exact in 8 bits.
  for (const int64_t step_rows : {2, 4}) {
    const Plan plan = plan_of(step_rows, Precision::kBf16);
    on_every_rank([&](Communicator& comm) { RankSteps(plan, step_rows, comm).run(0); });
  }
}

TEST_P(SeamTest, ServesAShorterStepThanThePlans) {
  const Plan plan = plan_of(64);
  for (const int64_t step_rows : kStepRows)
    on_every_rank([&](Communicator& comm) { RankSteps(plan, step_rows, comm).run(1); });
}

class SeamByColumns : public SeamTest {
 protected:
  Plan plan_of(int64_t step_rows) const {
    PlanRequest request = seam_test::plan_of(kFewOutputs, strategy(), ranks(), step_rows, device()).request;
    request.split = DenseSplit::kRows;
    const Plan plan = make_plan(model_of(kFewOutputs), request);
    EXPECT_TRUE(plan.layers[1].by_inputs());
    return plan;
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, SeamByColumns,
                         ::testing::Combine(::testing::ValuesIn(devices()),
                                            ::testing::Values(Strategy::kOwtD, Strategy::kModelParallelDense),
                                            ::testing::Values(2, 3, 4, 6)),
                         seam_case);

TEST_P(SeamByColumns, SendsColumnsAndReturnsTheirGradientsUnchanged) {
  for (const int64_t step_rows : kStepRows) {
    const Plan plan = plan_of(step_rows), longer = plan_of(64);
    on_every_rank([&](Communicator& comm) {
      RankSteps steps(plan, step_rows, comm);
      steps.run(1);
      steps.run(2);
      LateCommunicator late(comm);
      RankSteps as_late_as_may_be(plan, step_rows, late);
      as_late_as_may_be.run(1);
      as_late_as_may_be.run(2);
      RankSteps(longer, step_rows, comm).run(1);
    });
  }
}

TEST_P(SeamByColumns, SendsTheBytesOfThePlan) {
  for (const int64_t step_rows : kStepRows) {
    const Plan plan = plan_of(step_rows);
    int64_t planned = 0;
    for (const Transfer& t : plan.transfers)
      if (t.name == "labels" || t.name == "fc1 input" || t.name == "fc1 input gradient") planned += t.bytes;
    on_every_rank([&](Communicator& inner) {
      ProfiledCommunicator comm(inner, nullptr);
      RankSteps(plan, step_rows, comm).run(1);
      EXPECT_EQ(comm.bytes(), planned) << step_rows << " rows";
    });
  }
}

TEST_P(SeamTest, SendsTheBytesOfThePlan) {
  for (const int64_t step_rows : kStepRows) {
    const Plan plan = plan_of(step_rows);
    int64_t planned = 0;
    for (const Transfer& t : plan.transfers)
      if (t.name == "labels" || t.name == "fc1 input" || t.name == "fc1 input gradient") planned += t.bytes;
    EXPECT_GT(planned, 0);
    on_every_rank([&](Communicator& inner) {
      ProfiledCommunicator comm(inner, nullptr);
      RankSteps(plan, step_rows, comm).run(1);
      EXPECT_EQ(comm.bytes(), planned) << step_rows << " rows";
    });
  }
}

TEST(Seam, PassesOwnRowsOnWhereNothingIsSplit) {
  for (const auto& [strategy, ranks] : {std::pair(Strategy::kDataParallel, 2), {Strategy::kOwtA, 1}}) {
    const Plan plan = plan_of(kModel, strategy, ranks, 4, Device::kCpu);
    run_ranks(ranks, 1, [&](Communicator& comm) {
      const auto seam = make_seam(plan, rows_of(plan, 4), comm.rank(), comm);
      const Tensor mine({4});
      seam->start(0, mine, Stream());
      EXPECT_EQ(seam->wait(0, Stream()).data(), mine.data());
    });
  }
}

TEST(Seam, ReturnsNoGradientWhereNothingBeforeItLearns) {
  for (const Strategy strategy :
       {Strategy::kOwtA, Strategy::kOwtB, Strategy::kOwtC, Strategy::kOwtD, Strategy::kModelParallelDense}) {
    const Plan plan = plan_of(kNothingLearnsBefore, strategy, 2, 4, Device::kCpu);
    EXPECT_EQ(plan.layers[0].by_inputs(), strategy == Strategy::kOwtD);
    EXPECT_EQ(plan.layers[0].transfers.input_gradient, kNoTransfer) << name_of(strategy);
  }
}

}  // namespace
}  // namespace owt::seam_test
