#include "src/parallel/rank_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "src/comm/profiled.h"
#include "src/comm/threads.h"
#include "src/core/philox.h"
#include "src/system/check.h"
#include "tests/support/harness.h"
#include "tests/support/losses.h"
#include "tests/support/models.h"

namespace owt::rank_loss_test {
namespace {

using ::testing::Each;
using ::testing::FloatNear;
using ::testing::Pointwise;

constexpr int64_t kRows = 5;

Plan plan_of(int ranks, int64_t classes, Device device, double smoothing, LossType type) {
  const Model model = model_of("[2, 1, 1]", classes, concat("{ name = 'fc1', type = 'dense', out = ", classes, " }"));
  return make_plan(model, {.ranks = ranks,
                           .strategy = Strategy::kOwtA,
                           .step_rows = kRows,
                           .on = device,
                           .loss = {.label_smoothing = smoothing, .type = type}});
}

LossCase random_case(int64_t rows, int64_t classes) {
  LossCase made;
  const Philox random(5, RandomStream::kTest);
  for (int64_t i = 0; i < rows * classes; ++i) made.logits.push_back(3 * random.normal(static_cast<uint64_t>(i)));
  for (int64_t row = 0; row < rows; ++row) made.labels.push_back(static_cast<int32_t>(row * 37 % classes));
  made.step_rows = 2 * rows;
  return made;
}

std::vector<float> columns_of(const std::vector<float>& values, int64_t width, Slice columns) {
  std::vector<float> some;
  for (size_t row = 0; row < values.size(); row += static_cast<size_t>(width))
    for (int64_t i = columns.begin; i < columns.end; ++i) some.push_back(values[row + static_cast<size_t>(i)]);
  return some;
}

using Case = std::tuple<Device, int, double, LossType>;  // device, ranks, smoothing

class RankLossTest : public ::testing::TestWithParam<Case> {
 protected:
  Device device() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }
  LossType type() const { return std::get<3>(GetParam()); }
  Plan plan(int64_t classes) const { return plan_of(ranks(), classes, device(), std::get<2>(GetParam()), type()); }

  struct Result {
    LossSums sums;
    std::vector<float> dlogits;
  };
  // On one rank; with a sharded loss the rank brings its columns only.
  Result run(const Plan& plan, const LossCase& of, Communicator& comm, bool gradient = true) const {
    const int64_t classes = of.classes();
    const Slice mine =
        plan.sharded_loss ? plan.layers.back().parts[static_cast<size_t>(comm.rank())] : Slice{0, classes};
    RankLoss loss(plan, of.rows(), comm, nullptr);
    DevicePass pass(device(), of.rows());
    of.give_to(pass.pass());
    Tensor sums = no_sums(device());
    const Tensor logits = upload(columns_of(of.logits, classes, mine), {of.rows(), mine.size()}, device());
    const Tensor labels = of.labels_on(device());
    if (plan.sharded_loss) {
      loss.sum_up(pass.pass(), logits, labels, gradient);
      loss.start_statistics(pass.stream());
      loss.wait_for_statistics(pass.stream());
    }
    loss.run(pass.pass(), logits, labels, gradient, sums);
    pass.stream().synchronize();
    return {read_sums(sums), gradient ? download(loss.dlogits()) : std::vector<float>{}};
  }
  LossResult wanted(const Plan& plan, LossCase of) const {
    of.settings = plan.request.loss;
    return run_loss(of, Device::kCpu);
  }
};

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  const auto& [device, ranks, smoothing, type] = info.param;
  return concat(name_of(type), ranks, smoothing > 0 ? "_smoothed_" : "_", device);
}
INSTANTIATE_TEST_SUITE_P(RanksAndSmoothing, RankLossTest,
                         ::testing::Combine(::testing::ValuesIn(devices()), ::testing::Values(1, 2, 3, 4),
                                            ::testing::Values(0.0, 0.1),
                                            ::testing::Values(LossType::kSoftmax, LossType::kLogistic)),
                         case_name);

// 4 classes are gathered on all ranks; 101 classes stay on their ranks if there are two or more.
TEST_P(RankLossTest, IsThatOfWholeRowsOnEveryRank) {
  for (const int64_t classes : {4, 101}) {
    const LossCase of = random_case(kRows, classes);
    const Plan shared = plan(classes);
    EXPECT_EQ(shared.sharded_loss, classes > 4 && ranks() > 1);
    const LossResult whole = wanted(shared, of);
    run_ranks(
        ranks(), 1,
        [&](Communicator& comm) {
          const Result mine = run(shared, of, comm);
          EXPECT_NEAR(mine.sums.loss, whole.sums.loss, 1e-5 * whole.sums.loss);
          EXPECT_EQ(mine.sums.top1, whole.sums.top1);
          EXPECT_EQ(mine.sums.top5, whole.sums.top5);
          EXPECT_EQ(mine.sums.rows, kRows);
          const Slice columns =
              shared.sharded_loss ? shared.layers.back().parts[static_cast<size_t>(comm.rank())] : Slice{0, classes};
          EXPECT_THAT(mine.dlogits, Pointwise(FloatNear(1e-6f), columns_of(whole.dlogits, classes, columns)));
        },
        device());
  }
}

TEST_P(RankLossTest, InEvaluationWantsNoGradientAndIgnoresSmoothing) {
  LossCase of = random_case(kRows, 101);
  of.mode = Mode::kEval;
  const Plan shared = plan(101);
  const double whole = wanted(shared, of).sums.loss;
  run_ranks(
      ranks(), 1, [&](Communicator& comm) { EXPECT_NEAR(run(shared, of, comm, false).sums.loss, whole, 1e-5 * whole); },
      device());
}

TEST_P(RankLossTest, ABadLogitOfOneRankIsSeenByAll) {
  LossCase of = random_case(kRows, 101);
  of.logits[2 * 101 + 100] = NAN;  // row 2, on the last rank
  const Plan shared = plan(101);
  run_ranks(
      ranks(), 1,
      [&](Communicator& comm) {
        const Result mine = run(shared, of, comm);
        EXPECT_TRUE(std::isnan(mine.sums.loss));
        const auto columns = static_cast<int64_t>(mine.dlogits.size()) / kRows;
        const auto row = [&](int64_t i) {
          const auto first = mine.dlogits.begin() + i * columns;
          return std::vector<float>(first, first + columns);
        };
        const std::vector<float> bad = row(2);
        const auto wanted = type() == LossType::kSoftmax ? columns : comm.rank() + 1 == ranks();
        EXPECT_EQ(std::count_if(bad.begin(), bad.end(), [](float x) { return std::isnan(x); }), wanted);
        EXPECT_THAT(row(1), Each(::testing::Not(::testing::IsNan())));
      },
      device());
}

TEST_P(RankLossTest, SendsTheStatisticsOfThePlanAndNothingElse) {
  for (const int64_t classes : {4, 101}) {
    const Plan shared = plan(classes);
    int64_t planned = 0;
    for (const Transfer& t : shared.transfers)
      if (t.name == "loss statistics") planned += t.bytes;
    EXPECT_EQ(planned, shared.sharded_loss ? (ranks() - 1) * kRows * kLossStats * 4 : 0);
    const LossCase of = random_case(kRows, classes);
    run_ranks(
        ranks(), 1,
        [&](Communicator& inner) {
          ProfiledCommunicator comm(inner, nullptr);
          run(shared, of, comm);
          EXPECT_EQ(comm.bytes(), planned);
        },
        device());
  }
}

}  // namespace
}  // namespace owt::rank_loss_test
