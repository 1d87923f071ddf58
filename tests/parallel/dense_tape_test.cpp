#include "src/parallel/dense_tape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

#include "src/comm/threads.h"
#include "src/core/philox.h"
#include "src/plan/order.h"
#include "src/system/check.h"
#include "tests/support/bad_layers.h"
#include "tests/support/harness.h"
#include "tests/support/uneven_model.h"

namespace owt::dense_tape_test {
namespace {

using ::testing::FloatNear;
using ::testing::Pointwise;

constexpr int64_t kRows = 5;
// The results of the back part for one batch.
struct BackResult {
  std::vector<float> logits, dx;
  Values gradients;
};

// device, strategy, ranks
using Case = std::tuple<Device, Strategy, int>;

class DenseTapeTest : public ::testing::TestWithParam<Case> {
 protected:
  DenseTapeTest() : wanted_(whole()) {}

  Device device() const { return std::get<0>(GetParam()); }
  Strategy strategy() const { return std::get<1>(GetParam()); }
  int ranks() const { return std::get<2>(GetParam()); }

  // A rank's columns of the batch; it uses only these if fc1 is split by inputs.
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
      tape->begin_forward(input);
      for (const Action& action : evaluation(plan, plan.request.step_rows)) run(action);
      pass.stream().synchronize();
      return download(tape->output());
    }
    // after: called with every action.
    void backward(const Tensor& dlogits, Tensor* dx, const std::function<void(const Action&)>& after = {}) {
      tape->begin_backward(dlogits, dx, pass.stream());
      const std::vector<Action> all = training(plan, plan.request.step_rows);
      auto next = std::find_if(all.begin(), all.end(), [](const Action& a) { return a.kind == Action::Kind::kLoss; });
      for (; next != all.end(); ++next) {
        run(*next);
        if (after) after(*next);
      }
      pass.stream().synchronize();
    }
    // Runs an action of the back part, or of the transfers within it.
    void run(const Action& action) {
      const bool moves = action.kind == Action::Kind::kStart || action.kind == Action::Kind::kWait;
      if (moves ? !tape->has(action.transfer) : action.layers.begin < plan.boundary || action.layers.size() != 1)
        return;
      if (action.kind == Action::Kind::kForward) tape->forward(pass.pass(), action.layers.begin);
      if (action.kind == Action::Kind::kBackwardData) tape->backward_data(pass.pass(), action.layers.begin);
      if (action.kind == Action::Kind::kBackwardWeights) tape->backward_weights(pass.pass(), action.layers.begin);
      if (action.kind == Action::Kind::kStart) tape->start(action.transfer, pass.stream());
      if (action.kind == Action::Kind::kWait) tape->wait(action.transfer, pass.stream());
    }
    bool by_columns() const { return plan.layer(plan.boundary).by_inputs(); }

    Communicator& comm;
    const Plan& plan;
    Slice columns;
    RankModel model;
    DevicePass pass;
    Tensor input;
    std::optional<DenseTape> tape;
  };

  // body(rank) on every rank of this strategy's plan.
  template <class Body>
  void on_every_rank(Strategy strategy, const Body& body) const {
    Plan plan = plan_of(strategy, ranks(), device());
    plan.request.keeps_gradients = true;  // the tests look at them
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
INSTANTIATE_TEST_SUITE_P(StrategiesAndRanks, DenseTapeTest,
                         ::testing::Combine(::testing::ValuesIn(devices()),
                                            ::testing::Values(Strategy::kOwtA, Strategy::kOwtD),
                                            ::testing::Values(2, 3, 4, 8)),
                         case_name);

TEST_P(DenseTapeTest, GivesParameterGradientsWhereNobodyWantsThatOfItsInput) {
  on_every_rank(Strategy::kModelParallelDense, [&](Rank& mine) {
    mine.forward();
    mine.backward(dlogits(device()), nullptr);
    const Param& weight = *mine.model.back_params().front();
    EXPECT_THAT(download(weight.grad),
                Pointwise(FloatNear(1e-4f), kept_of_whole(wanted_.gradients.at("fc1.weight"), weight)));
  });
}

TEST_P(DenseTapeTest, RanksTogetherComputeWhatOneRankDoesStepAfterStep) {
  on_every_rank(strategy(), [&](Rank& mine) {
    Tensor dx(mine.input.shape(), DType::kF32, device());
    for (int step = 0; step < 3; ++step) {
      for (Param* param : mine.model.back_params()) param->grad_is_zero = true;
      EXPECT_THAT(mine.forward(), Pointwise(FloatNear(1e-4f), wanted_.logits));
      if (step == 1) continue;  // an evaluation
      fill(dx, std::numeric_limits<float>::quiet_NaN());
      mine.backward(dlogits(device()), &dx);
      if (!mine.by_columns()) mine.comm.all_reduce(dx, {}).wait();
      EXPECT_THAT(download(dx), Pointwise(FloatNear(1e-4f), columns_of(wanted_.dx, mine.columns)));
      for (const Param* param : mine.model.back_params())
        EXPECT_THAT(download(param->grad),
                    Pointwise(FloatNear(1e-4f), kept_of_whole(wanted_.gradients.at(param->name), *param)))
            << param->name << " on rank " << mine.comm.rank();
    }
  });
}

TEST_P(DenseTapeTest, TheGradientOfItsInputIsCompleteBeforeThoseOfTheFirstLayersWeights) {
  on_every_rank(strategy(), [&](Rank& mine) {
    Tensor dx(mine.input.shape(), DType::kF32, device()), wanted(mine.input.shape(), DType::kF32, device());
    mine.forward();
    mine.backward(dlogits(device()), &wanted);
    mine.forward();
    dx.zero();
    int seen = 0;
    mine.backward(dlogits(device()), &dx, [&](const Action& action) {
      if (action.kind != Action::Kind::kBackwardData || action.layers.begin != mine.plan.boundary) return;
      ++seen;
      mine.pass.stream().synchronize();
      EXPECT_EQ(download(dx), download(wanted));
    });
    EXPECT_EQ(seen, 1);
  });
}

TEST_P(DenseTapeTest, WithoutRowsRunsNothing) {
  on_every_rank(strategy(), [&](Rank& mine) {
    mine.input = mine.input.rows(0, 0);
    mine.tape.emplace(mine.plan, mine.model, 0, mine.comm, nullptr);
    EXPECT_TRUE(mine.forward().empty());
    Tensor dx(mine.input.shape(), DType::kF32, device());
    mine.backward(dlogits(device()).rows(0, 0), &dx);
    for (const Param* param : mine.model.back_params()) EXPECT_TRUE(param->grad_is_zero) << param->name;
  });
}

// After fc2, if it is split by inputs, its relu gets the sum of all ranks' contributions.
TEST_P(DenseTapeTest, NamesTheFirstLayerWithABadValue) {
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

}  // namespace
}  // namespace owt::dense_tape_test
