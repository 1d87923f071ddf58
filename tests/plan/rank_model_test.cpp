#include "src/plan/rank_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "src/comm/threads.h"
#include "src/plan/step_result.h"
#include "src/system/check.h"
#include "tests/support/harness.h"
#include "tests/support/uneven_model.h"

namespace owt::rank_model_test {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> names_of(const Net& net) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < net.size(); ++i) names.push_back(net.layer(i).name());
  return names;
}

Values values_of(const RankModel& model) {
  Values values;
  for (const Param* param : model.params()) values[param->name] = download(param->value);
  return values;
}

TEST(RankModel, IsAFrontAndRunsOfLayersBetweenGathers) {
  const Model model = small_model();
  RankModel ranks(model, plan_of(Strategy::kOwtA, 2), 1);
  EXPECT_THAT(names_of(ranks.front()), ElementsAre("conv1", "relu1"));
  ASSERT_EQ(ranks.stages(), 3);
  EXPECT_THAT(names_of(ranks.stage(0)), ElementsAre("fc1", "relu2", "drop2"));
  EXPECT_THAT(names_of(ranks.stage(1)), ElementsAre("fc2", "relu3"));
  EXPECT_THAT(names_of(ranks.stage(2)), ElementsAre("fc3"));
  EXPECT_EQ(ranks.first_layer(2), 7);
  EXPECT_EQ(ranks.stage(0).out(), (Shape{3}));  // 7 in parts of 4 and 3
}

// For fc1 (12 features, 7 outputs) and fc2 (7 and 6) summing the outputs sends less, for fc3 (6 and 10) bringing the
// input together.
TEST(RankModel, ALayerSplitByInputsEndsARunOfLayers) {
  const Model model = small_model();
  RankModel ranks(model, plan_of(Strategy::kOwtD, 3), 2);
  ASSERT_EQ(ranks.stages(), 4);
  EXPECT_THAT(names_of(ranks.stage(0)), ElementsAre("fc1"));
  EXPECT_THAT(names_of(ranks.stage(1)), ElementsAre("relu2", "drop2", "fc2"));
  EXPECT_THAT(names_of(ranks.stage(2)), ElementsAre("relu3"));
  EXPECT_THAT(names_of(ranks.stage(3)), ElementsAre("fc3"));
  EXPECT_EQ(ranks.stage(0).in(), (Shape{4}));
  EXPECT_EQ(ranks.stage(0).out(), (Shape{7}));
  EXPECT_EQ(ranks.stage(1).in(), (Shape{2}));  // 7 in parts of 3, 2 and 2
  EXPECT_EQ(ranks.stage(1).out(), (Shape{6}));
  EXPECT_EQ(ranks.stage(2).in(), (Shape{2}));
  EXPECT_EQ(ranks.stage(3).in(), (Shape{6}));
  EXPECT_EQ(ranks.stage(3).out(), (Shape{3}));  // 10 in parts of 4, 3 and 3
}

TEST(RankModel, WithNothingSplitIsAFrontOnly) {
  const Model model = small_model();
  for (const auto& [strategy, ranks] : {std::pair(Strategy::kDataParallel, 3), {Strategy::kOwtC, 1}}) {
    RankModel whole(model, plan_of(strategy, ranks), 0);
    EXPECT_EQ(whole.front().size(), 8);
    EXPECT_EQ(whole.stages(), 0);
    EXPECT_TRUE(whole.back_params().empty());
  }
}

TEST(RankModel, FindsALayerByItsPlaceInThePlan) {
  const Model model = small_model();
  const Plan plan = plan_of(Strategy::kOwtB, 3);
  const RankModel ranks(model, plan, 2);
  for (size_t i = 0; i < plan.layers.size(); ++i)
    EXPECT_EQ(ranks.layer(static_cast<int64_t>(i)).name(), plan.layers[i].name);
}

TEST(RankModel, InitialWeightsDependOnNeitherRanksNorStrategy) {
  const Model model = small_model();
  RankModel one(model, plan_of(Strategy::kDataParallel, 1), 0);
  one.initialize(kSeed);
  const Values whole = values_of(one);
  for (const std::string& name : strategy_names())
    for (int ranks = 1; ranks <= 4; ++ranks) {
      const Plan plan = plan_of(strategy_from(name), ranks);
      std::map<std::string, size_t> kept;  // values of all parts
      for (int rank = 0; rank < ranks; ++rank) {
        RankModel mine(model, plan, rank);
        mine.initialize(kSeed);
        ASSERT_EQ(mine.params().size(), whole.size());
        for (const Param* param : mine.params()) {
          EXPECT_EQ(download(param->value), kept_of_whole(whole.at(param->name), *param))
              << name << ", rank " << rank << " of " << ranks << ": " << param->name;
          kept[param->name] += static_cast<size_t>(param->value.elements());
        }
      }
      for (const auto& [param, values] : whole) {
        const bool split = plan.split() && (param.starts_with("fc") || (name == "mp" && param.starts_with("conv")));
        EXPECT_EQ(kept.at(param), values.size() * (split || plan.in_stages() ? 1u : static_cast<size_t>(ranks)))
            << name << ", " << ranks << " ranks: " << param;
      }
    }
}

TEST(RankModel, AnotherSeedGivesOtherWeights) {
  const Model model = small_model();
  RankModel one(model, plan_of(Strategy::kDataParallel, 1), 0), two(model, plan_of(Strategy::kDataParallel, 1), 0);
  one.initialize(kSeed), two.initialize(kSeed + 1);
  EXPECT_NE(values_of(one).at("fc1.weight"), values_of(two).at("fc1.weight"));
}

using RankModelOnDevices = DeviceTest;
INSTANTIATE_TEST_SUITE_P(Devices, RankModelOnDevices, ::testing::ValuesIn(devices()), device_name);

TEST_P(RankModelOnDevices, WeightsAreEqualOnEveryDevice) {
  const Plan plan = plan_of(Strategy::kOwtA, 2);
  RankModel here(small_model(), plan, 1), there(small_model(), plan, 1);
  there.allocate(device());
  here.initialize(kSeed), there.initialize(kSeed);
  EXPECT_EQ(there.params()[0]->value.device(), device());
  EXPECT_EQ(values_of(there), values_of(here));
}

class StepResultTest : public DeviceTest {
 protected:
  // What every rank hears when this one brings `mine`.
  StepResult share(const std::array<double, kStepSums>& mine, Communicator& comm) const {
    Tensor here({kStepSums}, DType::kF64);
    std::copy(mine.begin(), mine.end(), here.data<double>());
    Tensor sums = here.to(device());
    const Stream stream(device());
    stream.wait(comm.all_reduce(sums, stream.record()));
    stream.synchronize();
    return step_result(sums.to(Device::kCpu).data<double>());
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, StepResultTest, ::testing::ValuesIn(devices()), device_name);

TEST_P(StepResultTest, SumsOverRanksAndStopsWhenOneRankWishesTo) {
  for (const int ranks : {1, 2, 3})
    for (const bool stop : {false, true}) {
      const auto body = [&](Communicator& comm) {
        const bool wishes = stop && comm.rank() == ranks - 1;
        const StepResult all = share({1.5, static_cast<double>(comm.rank()), 2, 10, wishes ? 1.0 : 0.0}, comm);
        EXPECT_EQ(all.sums.loss, 1.5 * ranks);
        EXPECT_EQ(all.sums.top1, ranks * (ranks - 1) / 2);
        EXPECT_EQ(all.sums.top5, 2 * ranks);
        EXPECT_EQ(all.sums.rows, 10 * ranks);
        EXPECT_EQ(all.stop, stop);
      };
      run_ranks(ranks, 1, body, device());
    }
}

TEST_P(StepResultTest, CountsAreExactWhereFloatsWouldRound) {
  const double many = 16'777'217;  // 2^24 + 1
  const auto body = [&](Communicator& comm) {
    const StepResult all = share({0.5, many, many + 1, 3 * many, 0}, comm);
    EXPECT_EQ(all.sums.top1, 2 * 16'777'217);
    EXPECT_EQ(all.sums.top5, 2 * 16'777'218);
    EXPECT_EQ(all.sums.rows, 6 * 16'777'217);
  };
  run_ranks(2, 1, body, device());
}

TEST_P(StepResultTest, ALossThatIsNotANumberStaysOne) {
  const auto body = [&](Communicator& comm) {
    const double loss = comm.rank() == 1 ? std::numeric_limits<double>::quiet_NaN() : 0.0;
    EXPECT_TRUE(std::isnan(share({loss, 0, 0, 0, 0}, comm).sums.loss));
  };
  run_ranks(2, 1, body, device());
}

}  // namespace
}  // namespace owt::rank_model_test
