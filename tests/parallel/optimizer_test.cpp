#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>

#include "src/core/threads.h"
#include "src/system/check.h"
#include "tests/parallel/update_test.h"
#include "tests/support/message_of.h"

namespace owt::optimizer_test {
namespace {

using testing::ElementsAre;
using testing::FloatEq;
using testing::HasSubstr;

class OptimizerTest : public UpdateTest {
 protected:
  std::vector<float> learned(Optimizer& optimizer, float factor, bool by_parts = false) const;
};
INSTANTIATE_TEST_SUITE_P(Devices, OptimizerTest, testing::ValuesIn(devices()), device_name);

int64_t resident_bytes() {
  int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(Sgd, AVelocityIsZeroAndTakesNoMemoryBeforeItsFirstUse) {
  constexpr int64_t kBytes = 64 << 20, kCount = kBytes / 4 - 3;
  Tensor(Shape{kCount}).zero();  // memory that may be reused
  Param w;
  w.name = "w";
  w.full_shape = Shape{kCount};
  w.part = {0, kCount};
  w.value = Tensor(w.full_shape);
  Optimizer optimizer({});
  const int64_t before = resident_bytes();
  const Tensor& velocity = optimizer.states(w).front();
  EXPECT_LT(resident_bytes(), before + kBytes / 4);
  EXPECT_TRUE(std::all_of(velocity.data(), velocity.data() + kCount, [](float v) { return v == 0; }));
}

TEST_P(OptimizerTest, MovesTheWeightsByTheVelocity) {
  Optimizer optimizer({.momentum = 0.5, .decay = 0});
  Param w = make_param({1, 2}, {4, -8});

  update(optimizer, w, 0.25);  // v = -0.25 g
  EXPECT_THAT(download(optimizer.states(w).front()), ElementsAre(-1, 2));
  EXPECT_THAT(download(w.value), ElementsAre(0, 4));

  set_grad(w, {2, 0});
  update(optimizer, w, 0.25);  // v = 0.5 v - 0.25 g
  EXPECT_THAT(download(optimizer.states(w).front()), ElementsAre(-1, 1));
  EXPECT_THAT(download(w.value), ElementsAre(-1, 5));
}

TEST_P(OptimizerTest, DecaysByRateTimesDecayTimesWeight) {
  Optimizer optimizer({.momentum = 0, .decay = 0.5});
  Param w = make_param({8}, {2});
  w.decay_mult = 0.5;
  w.lr_mult = 2;

  update(optimizer, w, 0.125, 3);  // lr = 0.25; v = -0.25 * (3 * 2 + 0.25 * 8) = -2
  EXPECT_THAT(download(w.value), ElementsAre(6));
}

TEST_P(OptimizerTest, NesterovLooksOneStepAhead) {
  Optimizer optimizer({.momentum = 0.5, .decay = 0, .nesterov = true});
  Param w = make_param({0}, {4});

  update(optimizer, w, 0.25);  // v = -1; w += 0.5 * -1 - 1
  EXPECT_THAT(download(optimizer.states(w).front()), ElementsAre(-1));
  EXPECT_THAT(download(w.value), ElementsAre(-1.5));
  set_grad(w, {4});
  update(optimizer, w, 0.25);  // v = -0.5 - 1; w += -0.75 - 1
  EXPECT_THAT(download(optimizer.states(w).front()), ElementsAre(-1.5));
  EXPECT_THAT(download(w.value), ElementsAre(-3.25));
}

// The rule as PyTorch documents it: u = momentum * u + g; w -= lr * (nesterov ? g + momentum * u : u).
float pytorch_weight(const std::vector<float>& grads, float rate, float momentum, bool nesterov) {
  float u = 0, w = 1;
  for (const float g : grads) {
    u = momentum * u + g;
    w -= rate * (nesterov ? g + momentum * u : u);
  }
  return w;
}

TEST_P(OptimizerTest, GivesTheWeightsOfPyTorchWhileTheRateIsConstant) {
  const std::vector<float> grads = {1, -3, 2, 0.5};
  for (const bool nesterov : {false, true}) {
    Optimizer optimizer({.momentum = 0.9, .decay = 0, .nesterov = nesterov});
    Param w = make_param({1}, {});
    for (const float g : grads) {
      set_grad(w, {g});
      update(optimizer, w, 0.1);
    }
    EXPECT_NEAR(download(w.value)[0], pytorch_weight(grads, 0.1f, 0.9f, nesterov), 1e-6) << nesterov;
  }
}

TEST_P(OptimizerTest, AZeroGradientLeavesMomentumAndDecayAtWork) {
  for (const bool nesterov : {false, true}) {
    Optimizer optimizer({.momentum = 0.5, .decay = 0.5, .nesterov = nesterov});
    Param w = make_param({4}, {});
    fill(w.grad, NAN);  // never read
    fill(optimizer.states(w).front(), 2);

    update(optimizer, w, 0.25);  // step = 0.25 * 0.5 * 4 = 0.5; v = 1 - 0.5
    EXPECT_THAT(download(optimizer.states(w).front()), ElementsAre(0.5));
    EXPECT_THAT(download(w.value), ElementsAre(nesterov ? 3.75 : 4.5));
  }
}

TEST_P(OptimizerTest, MarksTheGradientUsedAndTheValueChanged) {
  Optimizer optimizer({.momentum = 0, .decay = 0});
  Param w = make_param({1}, {1});
  const uint64_t before = w.version;

  update(optimizer, w, 0.5);

  EXPECT_TRUE(w.grad_is_zero);
  EXPECT_EQ(w.version, before + 1);
}

TEST_P(OptimizerTest, AveragesMoveTowardsTheStatisticWithoutRateDecayOrMomentum) {
  Optimizer optimizer({.momentum = 0.9, .decay = 0.5});
  Param mean = make_param({4, 0}, {16, 8});
  mean.role = ParamRole::kAverage;
  mean.lr_mult = 0.25;

  update(optimizer, mean, 1000, 0.5);  // 4 + (8 - 4) / 4, 0 + (4 - 0) / 4
  EXPECT_THAT(download(mean.value), ElementsAre(5, 1));
  EXPECT_TRUE(mean.grad_is_zero);

  update(optimizer, mean, 1000, 0.5);  // no new statistic
  EXPECT_THAT(download(mean.value), ElementsAre(5, 1));
  EXPECT_THROW(optimizer.states(mean), Error);
}

TEST_P(OptimizerTest, UpdatesEveryElementEquallyWithAnyTeam) {
  const size_t count = (1 << 16) + 7;
  const std::vector<float> ones(count, 1), grads(count, 3);
  const int threads = team_size();
  for (const int team : {1, 3}) {
    set_team_size(team);
    Optimizer optimizer({.momentum = 0.9, .decay = 0.1});
    Param w = make_param(ones, grads);
    update(optimizer, w, 0.1);
    update(optimizer, w, 0.1);
    const std::vector<float> after = download(w.value);
    EXPECT_THAT(after, testing::Each(FloatEq(after[0])));
    EXPECT_NE(after[0], 1);
  }
  set_team_size(threads);
}

// Sizes around the limits of a launch, for parts of a parameter and lists of parameters, and beyond. On a GPU, the
// priority of the stream decides how many elements a block takes.
TEST_P(OptimizerTest, UpdatesEveryElementOfEveryParameterOfALongList) {
  for (const Priority priority : {Priority::kNormal, Priority::kLow}) {
    Optimizer optimizer({.momentum = 0, .decay = 0});
    std::vector<Param> params;
    for (size_t i = 0; i < 100; ++i) {
      const size_t count = i == 40 ? 9001 : i % 7;
      params.push_back(make_param(std::vector<float>(count, 1), std::vector<float>(count, static_cast<float>(i))));
      params.back().lr_mult = i % 2 == 0 ? 1 : 2;
      params.back().grad_is_zero = i == 98;
    }
    std::vector<Param*> all;
    for (Param& param : params) all.push_back(&param);

    update(optimizer, all, {0.5, 0.5}, 1, 0, priority);

    for (size_t i = 0; i < params.size(); ++i) {
      const float gradient = i == 98 ? 0 : static_cast<float>(i);
      EXPECT_THAT(download(params[i].value), testing::Each(1 - (i % 2 == 0 ? 0.5f : 1.0f) * gradient)) << i;
    }
  }
}

TEST_P(OptimizerTest, UpdatesEmptyPartsOfAShardedParameter) {
  Optimizer optimizer({});
  Param w = make_param({}, {});
  update(optimizer, w, 0.1);
  EXPECT_EQ(optimizer.states(w).front().elements(), 0);
}

std::vector<float> counted(int64_t count, float scale) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(scale * static_cast<float>(i % 97 + 1));
  return values;
}

// Parts with arbitrary boundaries: within one access of a kernel, or within one block.
TEST_P(OptimizerTest, PartsAreUpdatedAsTheWholeIs) {
  constexpr int64_t kCount = 9001;
  const std::vector<float> value = counted(kCount, 1), grad = counted(kCount, -0.25f);
  for (const bool nesterov : {false, true}) {
    const OptimizerSettings settings{.momentum = 0.5, .decay = 0.25, .nesterov = nesterov};
    Optimizer whole_optimizer(settings);
    Param whole = make_param(value, grad);
    whole.lr_mult = 2;
    update(whole_optimizer, whole, 0.25, 3);
    set_grad(whole, grad);
    update(whole_optimizer, whole, 0.25, 3);
    const std::vector<float> expected = download(whole.value),
                             velocity = download(whole_optimizer.states(whole).front());
    for (const Slice part : {Slice{0, kCount}, Slice{0, 4}, Slice{1, 4097}, Slice{8, 8}, Slice{4096, kCount}}) {
      Optimizer optimizer(settings);
      Param w = make_param(value, {});
      w.lr_mult = 2;
      const std::vector<float> grads(grad.begin() + part.begin, grad.begin() + part.end);
      for (int times = 0; times < 2; ++times) {  // an update is the last that reads a gradient
        const ParamPart one{&w, part, upload(grads, {part.size()}, device())};
        update(optimizer, std::vector<ParamPart>{one}, 0.25, 3);
      }
      const std::vector<float> after = download(w.value);
      for (int64_t i = 0; i < kCount; ++i) {
        const auto at = static_cast<size_t>(i);
        const bool inside = part.begin <= i && i < part.end;
        ASSERT_EQ(after[at], inside ? expected[at] : value[at]) << i << " of " << part.begin << " to " << part.end;
      }
      if (part.size() > 0) {
        const std::vector<float> kept = download(optimizer.states(w, part).front());
        EXPECT_EQ(kept, std::vector<float>(velocity.begin() + part.begin, velocity.begin() + part.end));
      }
    }
  }
}

TEST_P(OptimizerTest, OfAPartOnlyItsVelocityIsKept) {
  Optimizer optimizer({.momentum = 0.5, .decay = 0});
  Param w = make_param({1, 2, 3, 4}, {});
  EXPECT_EQ(optimizer.states(w, {1, 3}).front().shape(), (Shape{2}));
  EXPECT_THROW(optimizer.states(w), Error);
  EXPECT_THROW(optimizer.states(w, {0, 2}), Error);
}

TEST_P(OptimizerTest, OfAPartTheWholeGradientIsUsedAndTheValueChanged) {
  Optimizer optimizer({.momentum = 0, .decay = 0});
  Param w = make_param({1, 1}, {1, 1}), none = make_param({1}, {1});
  update(optimizer, std::vector<ParamPart>{{&w, {1, 2}, upload({1}, {1}, device())}, {&none, {0, 0}}}, 0.5);
  for (const Param* param : {&w, &none}) {
    EXPECT_TRUE(param->grad_is_zero);
    EXPECT_EQ(param->version, 2u) << "after its first value";
  }
}

TEST_P(OptimizerTest, PartsOfAveragesMoveAndAZeroGradientOfAPartLeavesMomentumAtWork) {
  Optimizer optimizer({.momentum = 0.5, .decay = 0});
  Param mean = make_param({4, 0, 8}, {}), w = make_param({4, 4}, {});
  mean.role = ParamRole::kAverage;
  mean.lr_mult = 0.5;
  fill(optimizer.states(w, {1, 2}).front(), 2);
  update(optimizer, std::vector<ParamPart>{{&mean, {1, 3}, upload({2, 4}, {2}, device())}, {&w, {1, 2}}}, 1);
  EXPECT_THAT(download(mean.value), ElementsAre(4, 1, 6));
  EXPECT_THAT(download(w.value), ElementsAre(4, 5));
}

class OptimizerOnGpu : public OptimizerTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OptimizerOnGpu);
INSTANTIATE_TEST_SUITE_P(Gpus, OptimizerOnGpu, testing::ValuesIn(gpu_devices()), device_name);

TEST_P(OptimizerTest, RenewsTheCopyInBf16OfTheWholeParameter) {
  for (const size_t count : {4, 7, 4099}) {
    Optimizer optimizer({.momentum = 0, .decay = 0});
    Param w = make_param(std::vector<float>(count, 1), std::vector<float>(count, 1), Precision::kBf16);
    update(optimizer, w, 0x1p-9);
    EXPECT_THAT(download(w.value), testing::Each(1 - 0x1p-9f)) << count;
    EXPECT_THAT(download(w.copy16), testing::Each(1.0f)) << count;  // halfway to the next one below, 1 - 2^-8: to even
    set_grad(w, std::vector<float>(count, 1));
    update(optimizer, w, 0x1p-9);
    EXPECT_THAT(download(w.copy16), testing::Each(1 - 0x1p-8f)) << count;
  }
}

// Gradients that bf16 represents: numbers handled by fours and one by one, and more than a block takes. All products
// are exact, so fused additions do not change the result.
TEST_P(OptimizerOnGpu, TakesGradientsInBf16AsTheirValues) {
  for (const size_t count : {4, 7, 4104, 4099}) {
    std::vector<float> value(count), grad(count);
    for (size_t i = 0; i < count; ++i) {
      value[i] = static_cast<float>(i % 37) - 11.25f;
      grad[i] = static_cast<float>(i % 101) - 40;
    }
    std::vector<std::vector<float>> weights, velocities;
    for (const DType type : {DType::kF32, DType::kBF16}) {
      Optimizer optimizer({.momentum = 0.5, .decay = 0.25});
      Param w = make_param(value, {}, Precision::kBf16);
      w.grad_type = type;
      w.grad = upload(grad, w.shape(), device(), type);
      w.grad_is_zero = false;
      update(optimizer, w, 0.125);
      weights.push_back(download(w.value));
      velocities.push_back(download(optimizer.states(w).front()));
    }
    EXPECT_EQ(weights[1], weights[0]) << count;
    EXPECT_EQ(velocities[1], velocities[0]) << count;
  }
}

TEST_P(OptimizerOnGpu, TakesGradientsAtAnyAddress) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    Optimizer optimizer({.momentum = 0, .decay = 0});
    Param w = make_param(std::vector<float>(8, 1), {}, Precision::kBf16);
    const Tensor all = upload({9, 1, 2, 3, 4, 5, 6, 7, 8}, {9}, device(), type);
    update(optimizer, std::vector<ParamPart>{{&w, {0, 8}, all.part(1, {8})}}, 0.25);
    EXPECT_THAT(download(w.value), ElementsAre(0.75, 0.5, 0.25, 0, -0.25, -0.5, -0.75, -1));
  }
}

TEST_P(OptimizerTest, RenewsTheCopyOfAPartAndLeavesTheRest) {
  Optimizer optimizer({.momentum = 0, .decay = 0});
  Param w = make_param({1, 1, 1, 1}, {}, Precision::kBf16);
  update(optimizer, std::vector<ParamPart>{{&w, {1, 3}, upload({1, 2}, {2}, device())}}, 0.25);
  EXPECT_THAT(download(w.copy16), ElementsAre(1, 0.75, 0.5, 1));
}

// Like the weights of a parameter server, beside which the worker uses the parameter.
TEST_P(OptimizerTest, APartWhoseValueIsElsewhereIsUpdatedThereAlone) {
  Optimizer optimizer({.momentum = 0.5, .decay = 0});
  Param w = make_param({1, 1, 1, 1}, {1, 1, 1, 1}, Precision::kBf16);
  const uint64_t version = w.version;
  const Tensor elsewhere = upload({5, 6}, {2}, device());
  for (int i = 0; i < 2; ++i)
    update(optimizer, std::vector<ParamPart>{{&w, {1, 3}, upload({1, 2}, {2}, device()), elsewhere}}, 0.25);
  EXPECT_THAT(download(elsewhere), ElementsAre(4.375, 4.75));
  EXPECT_THAT(download(w.value), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(download(w.copy16), ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(w.version, version);
  EXPECT_FALSE(w.grad_is_zero);
}

TEST_P(OptimizerOnGpu, TakesTheRateFromTheMemoryOfTheDevice) {
  Optimizer optimizer({.momentum = 0, .decay = 0});
  Param w = make_param({1}, {1});
  Param* const list[] = {&w};
  const Stream stream(device());
  optimizer.update(list, {StepRates{1000, 1000}, on_device({0.25, 0.25})}, 1, stream);
  stream.synchronize();
  EXPECT_THAT(download(w.value), ElementsAre(0.75));
}

// Four weights after four updates: from PyTorch 2.15 in double precision with the same weights, gradients and rates,
// printed by tools/bench/torch_optimizers.py.
const std::vector<float> kFirst = {1, -0.5, 0.25, 2};
const std::vector<std::vector<float>> kGradients = {
    {0.5, -1, 0.25, 0.125}, {-0.25, 0.5, 1.5, -2}, {1, 0, -0.75, 0.375}, {0.125, 2, -0.5, 0.25}};
const std::vector<double> kRates = {0.1, 0.1, 0.025, 0.05};
const struct {
  const char* table;
  std::vector<float> weights;
} kOfPyTorch[] = {
    {"momentum_correction = true\ndecay = 0.01", {0.836038623, -0.432489575, 0.020289836, 2.245621728}},
    {"momentum_correction = true\nnesterov = true\ndecay = 0.01",
     {0.793725621, -0.488366044, -0.088171620, 2.380795375}},
    {"type = 'adamw'", {0.824420407, -0.388303959, 0.053924775, 1.988418646}},
    {"type = 'adamw'\nbeta1 = 0.5\nbeta2 = 0.75\neps = 0.01\ndecay = 0.5",
     {0.731638953, -0.384878625, 0.052739255, 1.743124006}},
    {"type = 'rmsprop'\ndecay = 0.01", {0.168656560, -0.388200178, -1.475893402, 1.882287148}},
    {"type = 'rmsprop'\nalpha = 0.9\neps = 0.001\ndecay = 0.01\nmomentum = 0.5",
     {0.506199201, -0.312079411, -0.524624763, 1.835617437}},
    {"type = 'adagrad'\ndecay = 0.01", {0.915136571, -0.487752877, 0.076540300, 1.988250821}},
};

OptimizerSettings settings_of(const std::string& table) {
  Config config = Config::text("learning_rate = 0.1\n" + table);
  return OptimizerSettings::from(config);
}

// Weights after kGradients, times a factor that gradient_scale removes again; the first of them updated by parts of the
// whole if `by_parts`.
std::vector<float> OptimizerTest::learned(Optimizer& optimizer, float factor, bool by_parts) const {
  Param w = make_param(kFirst, {});
  for (size_t i = 0; i < kGradients.size(); ++i) {
    std::vector<float> grad = kGradients[i];
    for (float& g : grad) g *= factor;
    const StepRates rates{kRates[i], kRates[i], static_cast<double>(i)};
    if (by_parts) {
      const ParamPart part{&w, {0, 4}, upload(grad, {4}, device())};
      update(optimizer, std::vector<ParamPart>{part}, rates, 1 / static_cast<double>(factor));
    } else {
      set_grad(w, grad);
      update(optimizer, std::vector<Param*>{&w}, rates, 1 / static_cast<double>(factor));
    }
  }
  return download(w.value);
}

MATCHER_P(IsCloseTo, wanted, "") {
  return testing::ExplainMatchResult(testing::Pointwise(testing::FloatNear(2e-6f), wanted), arg, result_listener);
}

TEST_P(OptimizerTest, LearnsWhatPyTorchLearns) {
  for (const auto& [table, weights] : kOfPyTorch)
    for (const float factor : {1.0f, 4.0f}) {
      Optimizer optimizer(settings_of(table));
      EXPECT_THAT(learned(optimizer, factor), IsCloseTo(weights)) << table;
    }
}

// The formulas of Optimizer's header, in double precision.
std::vector<float> rmsprop_warmup_by_hand(const OptimizerSettings& s, const std::vector<double>& shares) {
  std::vector<float> after;
  for (size_t k = 0; k < kFirst.size(); ++k) {
    double w = kFirst[k], square = 0, velocity = 0;
    for (size_t i = 0; i < kGradients.size(); ++i) {
      const double g = kGradients[i][k] + s.decay * w, a = shares[i];
      square = s.alpha * square + (1 - s.alpha) * g * g;
      velocity = s.momentum * velocity - (a + (1 - a) * s.rmsprop_rate / kRates[i] / (std::sqrt(square) + s.eps)) * g;
      w += kRates[i] * velocity;
    }
    after.push_back(static_cast<float>(w));
  }
  return after;
}

TEST_P(OptimizerTest, GoesFromRmspropToSgd) {
  const std::vector<double> shares = {0.125, 0.5, 0.75, 1};
  const OptimizerSettings settings =
      settings_of("type = 'rmsprop_warmup'\nrmsprop_rate = 0.01\nalpha = 0.9\ndecay = 0.5\neps = 0.001");
  Optimizer optimizer(settings);
  Param w = make_param(kFirst, {});
  for (size_t i = 0; i < kGradients.size(); ++i) {
    set_grad(w, kGradients[i]);
    update(optimizer, std::vector<Param*>{&w}, StepRates{kRates[i], kRates[i], 0, shares[i]});
  }
  EXPECT_THAT(download(w.value), IsCloseTo(rmsprop_warmup_by_hand(settings, shares)));
}

// lr = 0.25, a penalty of 2: each weight is drawn towards 0 by 0.5, and stays there if it would pass it.
TEST_P(OptimizerTest, AnL1PenaltyDrawsWeightsToZero) {
  Optimizer optimizer(settings_of("type = 'proximal'\nl1 = 2"));
  Param w = make_param({0.75, -0.75, 0.25, -0.25, 0, 0}, {0, 0, 0, 1, 4, 1});
  update(optimizer, w, 0.25);
  EXPECT_THAT(download(w.value), ElementsAre(0.25, -0.25, 0, 0, -0.5, 0));
  Param bias = make_param({0.75, -0.75}, {0, 1});
  bias.name = "fc.bias";
  update(optimizer, bias, 0.25);
  EXPECT_THAT(download(bias.value), ElementsAre(0.75, -1));
}

// A region is 1 wide at first and then 2 |d| + 0.1, up to 5, times trust_region.
TEST_P(OptimizerTest, ATrustRegionBoundsEachMoveByTheOneBefore) {
  Optimizer optimizer(settings_of("type = 'proximal'\ntrust_region = 0.5"));
  Param w = make_param({0, 0, 8}, {-8, -0.25, 0});
  update(optimizer, w, 1);
  EXPECT_THAT(download(w.value), ElementsAre(0.5, 0.25, 8));
  EXPECT_THAT(download(optimizer.states(w).front()), ElementsAre(FloatEq(1.05), FloatEq(0.55), FloatEq(0.05)));
  set_grad(w, {-8, -8, 8});
  update(optimizer, w, 1);
  EXPECT_THAT(download(w.value), ElementsAre(FloatEq(1.55), FloatEq(0.8), FloatEq(7.95)));
  EXPECT_THAT(download(optimizer.states(w).front()), ElementsAre(FloatEq(2.15), FloatEq(1.15), FloatEq(0.15)));
  set_grad(w, {-8, 0, 0});
  update(optimizer, w, 1);
  EXPECT_THAT(download(optimizer.states(w).front()), ElementsAre(2.5, FloatEq(0.05), FloatEq(0.05)));
}

TEST_P(OptimizerTest, NeitherPenaltyNorTrustRegionHidesWhatIsNotFinite) {
  Optimizer optimizer(settings_of("type = 'proximal'\nl1 = 1"));
  Param w = make_param({1, 1}, {NAN, 1});
  update(optimizer, w, 0.5);
  EXPECT_TRUE(std::isnan(download(w.value)[0]));
}

TEST_P(OptimizerTest, AnUpdateAtARateOfZeroChangesNoWeight) {
  for (const char* table : {"", "momentum_correction = true", "type = 'adamw'", "type = 'rmsprop'", "type = 'adagrad'",
                            "type = 'rmsprop_warmup'", "type = 'proximal'\nl1 = 1"}) {
    Optimizer optimizer(settings_of(table));
    Param w = make_param({1, -2}, {3, 4});
    update(optimizer, std::vector<Param*>{&w}, StepRates{0, 0, 0, 0.5});
    EXPECT_THAT(download(w.value), ElementsAre(1, -2)) << table;
  }
}

// An update's number includes the updates before the step and the earlier ones in the step: dense_update = "round".
TEST_P(OptimizerTest, CountsTheUpdatesOfAStepOneByOne) {
  Optimizer optimizer(settings_of("type = 'adamw'"));
  Param w = make_param(kFirst, {});
  for (int i = 0; i < 4; ++i) {
    const double rate = kRates[static_cast<size_t>(i)];
    set_grad(w, kGradients[static_cast<size_t>(i)]);
    update(optimizer, std::vector<Param*>{&w}, StepRates{rate, rate, i < 2 ? 0.0 : 2.0}, 1, i % 2);
  }
  EXPECT_THAT(download(w.value), IsCloseTo(kOfPyTorch[2].weights));
}

TEST_P(OptimizerTest, PartsHaveStatesOfTheirOwn) {
  for (const auto& [table, weights] : kOfPyTorch) {
    Optimizer optimizer(settings_of(table));
    EXPECT_THAT(learned(optimizer, 1, true), IsCloseTo(weights)) << table;
  }
}

// More elements than one block takes, in fours and singly; the bf16 copies are exact.
TEST_P(OptimizerTest, TwoStatesOfManyElementsAreUpdatedEqually) {
  for (const size_t count : {8, 7, 9001}) {
    Optimizer optimizer(settings_of("type = 'adamw'"));
    Param w = make_param(std::vector<float>(count, 1), std::vector<float>(count, 3), Precision::kBf16);
    update(optimizer, w, 0.25);
    EXPECT_THAT(download(w.value), testing::Each(testing::FloatNear(1 - 0.25f - 0.0025f, 1e-6f))) << count;
    EXPECT_THAT(download(w.copy16), testing::Each(0.74609375f)) << count;
    for (const Tensor& state : optimizer.states(w))
      EXPECT_THAT(download(state), testing::Each(testing::Ne(0))) << count;
  }
}

TEST_P(OptimizerTest, BiasesHaveARateOfTheirOwn) {
  Optimizer optimizer({.momentum = 0, .decay = 0});
  Param weight = make_param({1}, {1}), bias = make_param({1}, {1});
  weight.name = "conv1.weight";
  bias.name = "conv1.bias";
  update(optimizer, std::vector<Param*>{&weight, &bias}, StepRates{0.25, 0.5});
  EXPECT_THAT(download(weight.value), ElementsAre(0.75));
  EXPECT_THAT(download(bias.value), ElementsAre(0.5));
}

// On the CPU, without a stored gradient.
TEST(Optimizer, PiecesOfAGradientGiveWhatTheWholeGives) {
  for (const auto& [table, weights] : kOfPyTorch) {
    Optimizer optimizer(settings_of(table));
    Param w;
    w.name = "w";
    w.full_shape = Shape{4};
    w.part = {0, 4};
    w.allocate();
    w.set_value(upload(kFirst, {4}, Device::kCpu));
    const uint64_t before = w.version;
    for (size_t i = 0; i < kGradients.size(); ++i) {
      const Optimizer::Rates rates{{kRates[i], kRates[i], static_cast<double>(i)}};
      const TakeGradient take = optimizer.update_in_pieces(w, rates, 1);
      take(3, 1, &kGradients[i][3]);
      take(0, 3, kGradients[i].data());
    }
    EXPECT_EQ(w.version, before + kGradients.size()) << "copies in another format would be stale";
    EXPECT_THAT(download(w.value), IsCloseTo(weights)) << table;
  }
}

TEST(OptimizerSettings, TheShareOfSgdGrowsWithoutAStepFromNothingToAll) {
  const OptimizerSettings s = settings_of("type = 'rmsprop_warmup'");
  EXPECT_NEAR(s.sgd_share(0), std::exp(-4.0) / 2, 1e-12);
  EXPECT_NEAR(s.sgd_share(7.5), std::exp(-1.0) / 2, 1e-12);
  EXPECT_NEAR(s.sgd_share(10 - 1e-9), 0.5, 1e-8);
  EXPECT_EQ(s.sgd_share(10), 0.5);
  EXPECT_NEAR(s.sgd_share(11), 0.7, 1e-12);
  EXPECT_EQ(s.sgd_share(12.5), 1);
  EXPECT_EQ(s.sgd_share(90), 1);
  EXPECT_EQ(settings_of("").sgd_share(0), 1);
}

TEST(OptimizerSettings, NameTheirStatesAsFilesHaveThem) {
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"", {""}},
      {"momentum_correction = true", {".momentum_buffer"}},
      {"type = 'adamw'", {".exp_avg", ".exp_avg_sq"}},
      {"type = 'rmsprop'", {".square_avg"}},
      {"type = 'rmsprop'\nmomentum = 0.5", {".square_avg", ".momentum_buffer"}},
      {"type = 'adagrad'", {".sum"}},
      {"type = 'rmsprop_warmup'", {".momentum_buffer", ".square_avg"}},
      {"type = 'proximal'", {".trust_region"}}};
  std::set<std::string> names;
  for (const auto& [table, states] : cases) {
    EXPECT_EQ(settings_of(table).states(), states) << table;
    names.insert(settings_of(table).name());
  }
  EXPECT_EQ(names.size(), std::size(cases));
}

TEST(OptimizerSettings, AreReadWithTheirDefaults) {
  Config config = Config::text("type = 'sgd'\nlearning_rate = 0.01\nnesterov = true");
  const OptimizerSettings settings = OptimizerSettings::from(config);
  EXPECT_EQ(settings.learning_rate, 0.01);
  EXPECT_EQ(settings.momentum, 0.9);
  EXPECT_EQ(settings.decay, 5e-4);
  EXPECT_TRUE(settings.nesterov);
}

TEST(OptimizerSettings, RejectBadTables) {
  const auto complaint = [](const std::string& text) -> std::string {
    Config config = Config::text(text);
    return message_of([&] { OptimizerSettings::from(config); });
  };
  EXPECT_THAT(complaint("momentum = 0.9"), HasSubstr("learning_rate"));
  EXPECT_THAT(complaint("learning_rate = 0"), HasSubstr("learning_rate"));
  EXPECT_THAT(complaint("learning_rate = 1\nmomentum = 1"), HasSubstr("momentum"));
  EXPECT_THAT(complaint("learning_rate = 1\ndecay = -1"), HasSubstr("decay"));
  EXPECT_THAT(complaint("learning_rate = 1\nmomentun = 0.5"), HasSubstr("did you mean 'momentum'?"));
  EXPECT_THAT(complaint("learning_rate = 1\ntype = 'adam'"), HasSubstr("did you mean 'adamw'?"));
  EXPECT_THAT(complaint("learning_rate = 1\ntype = 'adamw'\nmomentum = 0.9"),
              testing::AllOf(HasSubstr("no key 'momentum'"), HasSubstr("optimizer type 'adamw'")));
  EXPECT_THAT(complaint("learning_rate = 1\ntype = 'adamw'\nbeta2 = 1"), HasSubstr("wanted less"));
  EXPECT_THAT(complaint("learning_rate = 1\ntype = 'adagrad'\neps = 0"), HasSubstr("eps"));
  EXPECT_THAT(complaint("learning_rate = 1\ntype = 'rmsprop_warmup'\nperiod = 0"), HasSubstr("period"));
  EXPECT_THAT(complaint("learning_rate = 1\ntype = 'proximal'\nmomentum = 0.9"), HasSubstr("no key 'momentum'"));
}

}  // namespace
}  // namespace owt::optimizer_test
