#include "src/parallel/rank_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

#include "src/comm/threads.h"
#include "src/core/check.h"
#include "src/core/philox.h"
#include "src/parallel/step_result.h"
#include "tests/support/bad_layers.h"
#include "tests/support/harness.h"
#include "tests/support/models.h"

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

Model small_model() { return model_of(kModel); }

Plan plan_of(Strategy strategy, int ranks, const Compute& on = {}) {
  return make_plan(small_model(), {.ranks = ranks, .strategy = strategy, .step_rows = 12, .on = on});
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

// What a parameter keeps of its whole value: some rows, or some columns of all.
std::vector<float> kept_of_whole(const std::vector<float>& whole, const Param& param) {
  const int64_t width = param.full_shape.row_elements();
  const Slice columns = param.columns.value_or(Slice{0, width});
  std::vector<float> kept;
  for (int64_t row = param.part.begin; row < param.part.end; ++row)
    kept.insert(kept.end(), whole.begin() + row * width + columns.begin, whole.begin() + row * width + columns.end);
  return kept;
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

// Of fc1 (12 features, 7 outputs) and fc2 (7 and 6) summing the outputs sends less, of fc3 (6 and 10) bringing the
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
  EXPECT_EQ(ranks.stage(1).in(), (Shape{2}));  // of 7: 3, 2 and 2
  EXPECT_EQ(ranks.stage(1).out(), (Shape{6}));
  EXPECT_EQ(ranks.stage(2).in(), (Shape{2}));
  EXPECT_EQ(ranks.stage(3).in(), (Shape{6}));
  EXPECT_EQ(ranks.stage(3).out(), (Shape{3}));  // of 10: 4, 3 and 3
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
      const bool split = plan.split();
      for (const auto& [param, values] : whole)
        EXPECT_EQ(kept.at(param), values.size() * (split && param.starts_with("fc") ? 1u : static_cast<size_t>(ranks)))
            << name << ", " << ranks << " ranks: " << param;
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

// device, strategy, ranks
using Case = std::tuple<Device, Strategy, int>;

class BackTapeTest : public ::testing::TestWithParam<Case> {
 protected:
  BackTapeTest() : wanted_(whole()) {}

  Device device() const { return std::get<0>(GetParam()); }
  Strategy strategy() const { return std::get<1>(GetParam()); }
  int ranks() const { return std::get<2>(GetParam()); }

  // Columns of a rank of the batch, which it takes alone where fc1 is split by inputs.
  static constexpr int64_t kFeatures = 12;
  static Slice columns_of(const Plan& plan, int rank) {
    const LayerPlan& first = plan.layers.at(static_cast<size_t>(plan.boundary));
    return first.by_inputs() ? first.inputs.at(static_cast<size_t>(rank)) : Slice{0, kFeatures};
  }
  static std::vector<float> columns_of(const std::vector<float>& values, Slice columns) {
    std::vector<float> some;
    for (size_t row = 0; row < values.size(); row += static_cast<size_t>(kFeatures))
      for (int64_t i = columns.begin; i < columns.end; ++i) some.push_back(values[row + static_cast<size_t>(i)]);
    return some;
  }

  static std::vector<float> random(const Shape& shape, std::string_view name) {
    const Philox random(1, RandomStream::kTest, 0, name);
    std::vector<float> values;
    for (int64_t i = 0; i < shape.elements(); ++i) values.push_back(random.normal(static_cast<uint64_t>(i)));
    return values;
  }
  static Tensor x(Device device) { return upload(random({kRows, 2, 2, 3}, "x"), {kRows, 2, 2, 3}, device); }
  static Tensor dlogits(Device device) { return upload(random({kRows, 10}, "dlogits"), {kRows, 10}, device); }

  // Rows 20, 21, ... of a step.
  static void set_rows(DevicePass& pass) {
    std::iota(pass.rows().begin(), pass.rows().end(), 20);
    pass.pass().seed = kSeed;
    pass.renew();
  }

  // The layers from fc1 on as one net, on the CPU.
  static BackResult whole() {
    const Model model = small_model();
    std::vector<std::unique_ptr<Layer>> layers = whole_layers(model);
    layers.erase(layers.begin(), layers.begin() + 2);
    Net net(std::move(layers), {2, 2, 3});
    for (Param* param : net.params()) param->initialize(kSeed);
    DevicePass pass(Device::kCpu, kRows);
    set_rows(pass);
    Tape tape(net, kRows, Device::kCpu, nullptr);
    BackResult result;
    const Tensor in = x(Device::kCpu);
    result.logits = download(tape.forward(pass.pass(), in));
    Tensor dx(in.shape());
    tape.backward(pass.pass(), in, dlogits(Device::kCpu), &dx);
    result.dx = download(dx);
    for (Param* param : net.params()) result.gradients[param->name] = download(param->grad);
    return result;
  }

  // What one rank of the test has.
  struct Rank {
    Rank(const Plan& plan, Device device, Communicator& comm)
        : comm(comm),
          plan(plan),
          columns(columns_of(plan, comm.rank())),
          model(small_model(), plan, comm.rank()),
          pass(device, kRows),
          input(x(device)) {
      if (by_columns()) input = upload(columns_of(download(input), columns), {kRows, columns.size()}, device);
      set_rows(pass);
      model.allocate(plan.request.on);
      model.initialize(kSeed);
      tape.emplace(plan, model, kRows, comm, nullptr);
    }
    std::vector<float> forward() {
      const Tensor& logits = tape->forward(pass.pass(), input);
      pass.stream().synchronize();
      return download(logits);
    }
    void backward(const Tensor& dlogits, Tensor* dx, const BackwardHooks& hooks = {}) {
      tape->backward(pass.pass(), dlogits, dx, hooks);
      pass.stream().synchronize();
    }
    bool by_columns() const { return plan.layers[static_cast<size_t>(plan.boundary)].by_inputs(); }

    Communicator& comm;
    const Plan& plan;
    Slice columns;
    RankModel model;
    DevicePass pass;
    Tensor input;
    std::optional<BackTape> tape;
  };

  // body(rank) on every rank of this strategy's plan.
  template <class Body>
  void on_every_rank(Strategy strategy, const Body& body) const {
    const Plan plan = plan_of(strategy, ranks(), device());
    const auto run = [&](Communicator& comm) {
      Rank rank(plan, device(), comm);
      body(rank);
    };
    run_ranks(ranks(), 1, run, device());
  }

  BackResult wanted_;
};

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  const auto& [device, strategy, ranks] = info.param;
  std::string name = concat(name_of(strategy), "_", ranks, "_ranks_", device);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(StrategiesAndRanks, BackTapeTest,
                         ::testing::Combine(::testing::ValuesIn(devices()),
                                            ::testing::Values(Strategy::kOwtA, Strategy::kOwtD),
                                            ::testing::Values(2, 3, 4, 8)),
                         case_name);

TEST_P(BackTapeTest, RanksTogetherComputeWhatOneRankDoes) {
  on_every_rank(strategy(), [&](Rank& mine) {
    EXPECT_THAT(mine.forward(), Pointwise(FloatNear(1e-4f), wanted_.logits));
    Tensor dx(mine.input.shape(), DType::kF32, device());
    fill(dx, std::numeric_limits<float>::quiet_NaN());
    mine.backward(dlogits(device()), &dx);
    if (!mine.by_columns()) mine.comm.all_reduce(dx, {}).wait();
    EXPECT_THAT(download(dx), Pointwise(FloatNear(1e-4f), columns_of(wanted_.dx, mine.columns)));
    for (const Param* param : mine.model.back_params())
      EXPECT_THAT(download(param->grad),
                  Pointwise(FloatNear(1e-4f), kept_of_whole(wanted_.gradients.at(param->name), *param)))
          << param->name << " on rank " << mine.comm.rank();
    EXPECT_GT(mine.tape->bytes(), 0);
  });
}

TEST_P(BackTapeTest, GivesParameterGradientsWhereNobodyWantsThatOfItsInput) {
  on_every_rank(Strategy::kModelParallel, [&](Rank& mine) {
    mine.forward();
    mine.backward(dlogits(device()), nullptr);
    const Param& weight = *mine.model.back_params().front();
    EXPECT_THAT(download(weight.grad),
                Pointwise(FloatNear(1e-4f), kept_of_whole(wanted_.gradients.at("fc1.weight"), weight)));
  });
}

TEST_P(BackTapeTest, StepAfterStepComputesTheSame) {
  on_every_rank(strategy(), [&](Rank& mine) {
    Tensor dx(mine.input.shape(), DType::kF32, device());
    for (int step = 0; step < 3; ++step) {
      for (Param* param : mine.model.back_params()) param->grad_is_zero = true;
      EXPECT_THAT(mine.forward(), Pointwise(FloatNear(1e-4f), wanted_.logits));
      if (step == 1) continue;  // an evaluation
      mine.backward(dlogits(device()), &dx);
      for (const Param* param : mine.model.back_params())
        EXPECT_THAT(download(param->grad),
                    Pointwise(FloatNear(1e-4f), kept_of_whole(wanted_.gradients.at(param->name), *param)))
            << param->name << " on rank " << mine.comm.rank();
    }
  });
}

TEST_P(BackTapeTest, TellsOnceOfEveryLayerAndOfDxBeforeTheFirst) {
  for (const int64_t rows : {kRows, int64_t{0}})
    on_every_rank(strategy(), [&](Rank& mine) {
      BackTape tape(mine.plan, mine.model, rows, mine.comm, nullptr);
      const Tensor input = mine.input.rows(0, rows), gradient = dlogits(device()).rows(0, rows);
      Tensor dx(input.shape(), DType::kF32, device()), wanted(input.shape(), DType::kF32, device());
      tape.forward(mine.pass.pass(), input);
      tape.backward(mine.pass.pass(), gradient, &wanted);
      dx.zero();
      std::vector<int64_t> layers;
      int told = 0;
      const auto dx_done = [&] {
        ++told;
        EXPECT_THAT(layers, ::testing::Not(::testing::Contains(2)));
        mine.pass.stream().synchronize();
        EXPECT_EQ(download(dx), download(wanted));
      };
      tape.backward(mine.pass.pass(), gradient, &dx,
                    {.layer_done = [&](int64_t layer) { layers.push_back(layer); }, .dx_done = dx_done});
      mine.pass.stream().synchronize();
      EXPECT_EQ(told, 1) << rows << " rows";
      EXPECT_THAT(layers, ElementsAre(7, 6, 5, 4, 3, 2)) << rows << " rows";
    });
}

// Behind fc2, where it is split by inputs, its relu gets the sum of all ranks' summands.
TEST_P(BackTapeTest, NamesTheFirstLayerWithABadValue) {
  on_every_rank(strategy(), [&](Rank& mine) {
    for (Param* param : mine.model.back_params())
      if (param->name == "fc2.bias") {
        Tensor bad(param->shape());
        fill(bad, std::numeric_limits<float>::quiet_NaN());
        param->set_value(bad);
      }
    mine.forward();
    const auto noted = [&](double loss) { return noted_layer(mine.tape->watched(), loss, 8, mine.pass.stream()); };
    EXPECT_EQ(noted(1), 8);
    const LayerPlan& fc2 = mine.plan.layers[5];
    const bool holds_columns = fc2.parts.at(static_cast<size_t>(mine.comm.rank())).size() > 0;
    const int fc2_or_relu = fc2.by_inputs() && mine.comm.rank() > 0 ? 6 : 5;
    EXPECT_EQ(noted(std::numeric_limits<double>::quiet_NaN()), holds_columns ? fc2_or_relu : 7);
  });
}

class RankModelOnDevices : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, RankModelOnDevices, ::testing::ValuesIn(devices()), device_name);

TEST_P(RankModelOnDevices, WithNothingBehindTheBoundaryTheTapeIsTheIdentity) {
  const Plan plan = plan_of(Strategy::kDataParallel, 1, device());
  const auto body = [&](Communicator& comm) {
    RankModel mine(small_model(), plan, 0);
    BackTape tape(plan, mine, 1, comm, nullptr);
    DevicePass pass(device(), 1);
    const Tensor logits = upload({1, 2}, {1, 2}, device()), dlogits = upload({3, 4}, {1, 2}, device());
    EXPECT_EQ(tape.forward(pass.pass(), logits).raw(), logits.raw());
    Tensor dx({1, 2}, DType::kF32, device());
    tape.backward(pass.pass(), dlogits, &dx);
    pass.stream().synchronize();
    EXPECT_THAT(download(dx), ElementsAre(3, 4));
    EXPECT_EQ(tape.bytes(), 0);
  };
  run_ranks(1, 1, body, device());
}

TEST_P(RankModelOnDevices, WeightsAreDrawnAlikeWhereverTheyAre) {
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
    share_result(sums, comm, stream, nullptr);
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
}  // namespace owt
