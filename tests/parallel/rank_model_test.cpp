#include "src/parallel/rank_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "src/comm/threads.h"
#include "src/core/check.h"
#include "src/core/philox.h"
#include "src/parallel/step_result.h"
#include "tests/support/harness.h"

namespace owt {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

const char* const kModel = R"(
name = "small"
input = [2, 4, 4]
classes = 10
layer = [
  { name = "conv1", type = "conv", out = 3, kernel = 3, init = { type = "msra" } },
  { name = "relu1", type = "relu" },
  { name = "fc1", type = "dense", out = 7, bias = { init = { type = "gaussian", std = 0.5 } } },
  { name = "relu2", type = "relu" },
  { name = "drop2", type = "dropout", rate = 0.3 },
  { name = "fc2", type = "dense", out = 6, bias = { init = { type = "gaussian", std = 0.5 } } },
  { name = "relu3", type = "relu" },
  { name = "fc3", type = "dense", out = 10, init = { type = "uniform", low = -1, high = 1 } },
]
)";
constexpr int64_t kRows = 5;
constexpr uint64_t kSeed = 7;
using Values = std::map<std::string, std::vector<float>>;

Model small_model() {
  Config config = Config::text(kModel, "model.toml");
  return read_model(config);
}

Plan plan_of(Strategy strategy, int ranks) {
  return make_plan(small_model(), {.ranks = ranks, .strategy = strategy, .step_rows = 12});
}

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

// `part` of the rows of a parameter's whole value.
std::vector<float> rows_of_whole(const std::vector<float>& whole, const Param& param) {
  const int64_t row = param.full_shape.row_elements();
  return {whole.begin() + param.part.begin * row, whole.begin() + param.part.end * row};
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
  EXPECT_EQ(ranks.stage(0).out(), (Shape{3}));  // of 7: 4 and 3
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
      std::map<std::string, int64_t> split_rows;  // of the parts together
      for (int rank = 0; rank < ranks; ++rank) {
        RankModel mine(model, plan, rank);
        mine.initialize(kSeed);
        ASSERT_EQ(mine.params().size(), whole.size());
        for (const Param* param : mine.params()) {
          EXPECT_EQ(download(param->value), rows_of_whole(whole.at(param->name), *param))
              << name << ", rank " << rank << " of " << ranks << ": " << param->name;
          split_rows[param->name] += param->part.size();
        }
      }
      const bool split = ranks > 1 && plan.request.strategy != Strategy::kDataParallel;
      EXPECT_EQ(split_rows.at("fc3.weight"), split ? 10 : 10 * ranks);
      EXPECT_EQ(split_rows.at("fc1.bias"), split ? 7 : 7 * ranks);
      EXPECT_EQ(split_rows.at("conv1.weight"), 3 * ranks);
    }
}

TEST(RankModel, AnotherSeedGivesOtherWeights) {
  const Model model = small_model();
  RankModel one(model, plan_of(Strategy::kDataParallel, 1), 0), two(model, plan_of(Strategy::kDataParallel, 1), 0);
  one.initialize(kSeed), two.initialize(kSeed + 1);
  EXPECT_NE(values_of(one).at("fc1.weight"), values_of(two).at("fc1.weight"));
}

// What the layers behind the boundary make of one batch.
struct BackResult {
  std::vector<float> logits, dx;
  Values gradients;
};

class BackTapeTest : public ::testing::TestWithParam<int> {
 protected:
  BackTapeTest() {
    std::iota(rows_.begin(), rows_.end(), 20);
    pass_.seed = kSeed;
    pass_.rows = rows_;
    pass_.stream = &stream_;
  }

  static Tensor random(const Shape& shape, std::string_view name) {
    const Philox random(1, RandomStream::kTest, 0, name);
    Tensor tensor(shape);
    for (int64_t i = 0; i < tensor.elements(); ++i) tensor.data()[i] = random.normal(static_cast<uint64_t>(i));
    return tensor;
  }
  static Tensor x() { return random({kRows, 2, 2, 3}, "x"); }
  static Tensor dlogits() { return random({kRows, 10}, "dlogits"); }

  // The layers from fc1 on as one net.
  BackResult whole() {
    const Model model = small_model();
    std::vector<std::unique_ptr<Layer>> layers = whole_layers(model);
    layers.erase(layers.begin(), layers.begin() + 2);
    Net net(std::move(layers), {2, 2, 3});
    for (Param* param : net.params()) param->initialize(kSeed);
    Tape tape(net, kRows, Device::kCpu, nullptr);
    BackResult result;
    result.logits = download(tape.forward(pass_, x()));
    Tensor dx(x().shape());
    tape.backward(pass_, x(), dlogits(), &dx);
    result.dx = download(dx);
    for (Param* param : net.params()) result.gradients[param->name] = download(param->grad);
    return result;
  }

  std::vector<int64_t> rows_ = std::vector<int64_t>(kRows);
  Stream stream_;
  Pass pass_;
};

INSTANTIATE_TEST_SUITE_P(Ranks, BackTapeTest, ::testing::Values(2, 3, 4, 8));

TEST_P(BackTapeTest, RanksTogetherComputeWhatOneRankDoes) {
  const int ranks = GetParam();
  const BackResult wanted = whole();
  const Model model = small_model();
  const Plan plan = plan_of(Strategy::kOwtA, ranks);
  run_ranks(ranks, 1, [&](Communicator& comm) {
    RankModel mine(model, plan, comm.rank());
    mine.initialize(kSeed);
    BackTape tape(plan, mine, kRows, comm, nullptr);
    const Tensor input = x();
    EXPECT_THAT(download(tape.forward(pass_, input)), Pointwise(FloatNear(1e-4f), wanted.logits));
    Tensor dx(input.shape());
    fill(dx, std::numeric_limits<float>::quiet_NaN());
    tape.backward(pass_, dlogits(), &dx);
    comm.all_reduce(dx, {}).wait();
    EXPECT_THAT(download(dx), Pointwise(FloatNear(1e-4f), wanted.dx));
    for (const Param* param : mine.back_params())
      EXPECT_THAT(download(param->grad),
                  Pointwise(FloatNear(1e-4f), rows_of_whole(wanted.gradients.at(param->name), *param)))
          << param->name << " on rank " << comm.rank();
    EXPECT_EQ(tape.first_bad_layer(), "");
    EXPECT_GT(tape.bytes(), 0);
  });
}

TEST_P(BackTapeTest, GivesParameterGradientsWhereNobodyWantsThatOfItsInput) {
  const int ranks = GetParam();
  const BackResult wanted = whole();
  const Model model = small_model();
  const Plan plan = plan_of(Strategy::kModelParallel, ranks);
  run_ranks(ranks, 1, [&](Communicator& comm) {
    RankModel mine(model, plan, comm.rank());
    mine.initialize(kSeed);
    BackTape tape(plan, mine, kRows, comm, nullptr);
    const Tensor input = x();
    tape.forward(pass_, input);
    tape.backward(pass_, dlogits(), nullptr);
    const Param& weight = *mine.back_params().front();
    EXPECT_THAT(download(weight.grad),
                Pointwise(FloatNear(1e-4f), rows_of_whole(wanted.gradients.at("fc1.weight"), weight)));
  });
}

TEST_P(BackTapeTest, NamesTheFirstLayerWithABadValue) {
  const int ranks = GetParam();
  const Model model = small_model();
  const Plan plan = plan_of(Strategy::kOwtA, ranks);
  run_ranks(ranks, 1, [&](Communicator& comm) {
    RankModel mine(model, plan, comm.rank());
    mine.initialize(kSeed);
    for (Param* param : mine.back_params())
      if (param->name == "fc2.bias") {
        fill(param->value, std::numeric_limits<float>::quiet_NaN());
        ++param->version;
      }
    BackTape tape(plan, mine, kRows, comm, nullptr);
    const Tensor input = x();
    tape.forward(pass_, input);
    const bool holds_fc2 = plan.layers[5].parts.at(static_cast<size_t>(comm.rank())).size() > 0;
    EXPECT_EQ(tape.first_bad_layer(), holds_fc2 ? "fc2" : "fc3");
  });
}

TEST(BackTape, WithNothingBehindTheBoundaryIsTheIdentity) {
  const Model model = small_model();
  const Plan plan = plan_of(Strategy::kDataParallel, 1);
  run_ranks(1, 1, [&](Communicator& comm) {
    RankModel mine(model, plan, 0);
    BackTape tape(plan, mine, 1, comm, nullptr);
    const Tensor logits = upload({1, 2}, {1, 2}, Device::kCpu), dlogits = upload({3, 4}, {1, 2}, Device::kCpu);
    EXPECT_EQ(tape.forward({}, logits).raw(), logits.raw());
    Tensor dx({1, 2});
    tape.backward({}, dlogits, &dx);
    EXPECT_THAT(download(dx), ElementsAre(3, 4));
    EXPECT_EQ(tape.first_bad_layer(), "");
    EXPECT_EQ(tape.bytes(), 0);
  });
}

TEST(StepResult, SumsOverRanksAndStopsWhenOneRankWishesTo) {
  for (const int ranks : {1, 2, 3})
    for (const bool stop : {false, true})
      run_ranks(ranks, 1, [&](Communicator& comm) {
        StepResult mine;
        mine.sums = {.loss = 1.5, .top1 = comm.rank(), .top5 = 2, .rows = 10};
        mine.stop = stop && comm.rank() == ranks - 1;
        const StepResult all = share_result(mine, comm, Stream(), nullptr);
        EXPECT_EQ(all.sums.loss, 1.5 * ranks);
        EXPECT_EQ(all.sums.top1, ranks * (ranks - 1) / 2);
        EXPECT_EQ(all.sums.top5, 2 * ranks);
        EXPECT_EQ(all.sums.rows, 10 * ranks);
        EXPECT_EQ(all.stop, stop);
      });
}

TEST(StepResult, ALossThatIsNotANumberStaysOne) {
  run_ranks(2, 1, [](Communicator& comm) {
    StepResult mine;
    if (comm.rank() == 1) mine.sums.loss = std::numeric_limits<double>::quiet_NaN();
    EXPECT_TRUE(std::isnan(share_result(mine, comm, Stream(), nullptr).sums.loss));
  });
}

}  // namespace
}  // namespace owt
