#include "src/train/sgd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/core/check.h"
#include "src/core/threads.h"

namespace owt {
namespace {

using testing::ElementsAre;
using testing::FloatEq;
using testing::HasSubstr;

Param make_param(const std::vector<float>& value, const std::vector<float>& grad) {
  Param param;
  param.name = "w";
  param.full_shape = Shape{static_cast<int64_t>(value.size())};
  param.part = {0, static_cast<int64_t>(value.size())};
  param.allocate();
  std::copy(value.begin(), value.end(), param.value.data());
  std::copy(grad.begin(), grad.end(), param.grad.data());
  param.grad_is_zero = grad.empty();
  return param;
}

void set_grad(Param& param, float grad) {
  param.grad.data()[0] = grad;
  param.grad_is_zero = false;
}

void update(Sgd& sgd, Param& param, double rate, double gradient_scale = 1) {
  Param* const list[] = {&param};
  sgd.update(list, rate, gradient_scale);
}

std::vector<float> values(const Tensor& tensor) { return {tensor.data(), tensor.data() + tensor.elements()}; }

TEST(Sgd, MovesTheWeightsByTheVelocity) {
  Sgd sgd({.momentum = 0.5, .decay = 0});
  Param w = make_param({1, 2}, {4, -8});

  update(sgd, w, 0.25);  // v = -0.25 g
  EXPECT_THAT(values(sgd.velocity(w)), ElementsAre(-1, 2));
  EXPECT_THAT(values(w.value), ElementsAre(0, 4));

  set_grad(w, 2), w.grad.data()[1] = 0;
  update(sgd, w, 0.25);  // v = 0.5 v - 0.25 g
  EXPECT_THAT(values(sgd.velocity(w)), ElementsAre(-1, 1));
  EXPECT_THAT(values(w.value), ElementsAre(-1, 5));
}

TEST(Sgd, DecaysByRateTimesDecayTimesWeight) {
  Sgd sgd({.momentum = 0, .decay = 0.5});
  Param w = make_param({8}, {2});
  w.decay_mult = 0.5;
  w.lr_mult = 2;

  update(sgd, w, 0.125, 3);  // lr = 0.25; v = -0.25 * (3 * 2 + 0.25 * 8) = -2
  EXPECT_THAT(values(w.value), ElementsAre(6));
}

TEST(Sgd, NesterovLooksOneStepAhead) {
  Sgd sgd({.momentum = 0.5, .decay = 0, .nesterov = true});
  Param w = make_param({0}, {4});

  update(sgd, w, 0.25);  // v = -1; w += 0.5 * -1 - 1
  EXPECT_THAT(values(sgd.velocity(w)), ElementsAre(-1));
  EXPECT_THAT(values(w.value), ElementsAre(-1.5));
  set_grad(w, 4);
  update(sgd, w, 0.25);  // v = -0.5 - 1; w += -0.75 - 1
  EXPECT_THAT(values(sgd.velocity(w)), ElementsAre(-1.5));
  EXPECT_THAT(values(w.value), ElementsAre(-3.25));
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

TEST(Sgd, GivesTheWeightsOfPyTorchWhileTheRateIsConstant) {
  const std::vector<float> grads = {1, -3, 2, 0.5};
  for (const bool nesterov : {false, true}) {
    Sgd sgd({.momentum = 0.9, .decay = 0, .nesterov = nesterov});
    Param w = make_param({1}, {});
    for (const float g : grads) {
      set_grad(w, g);
      update(sgd, w, 0.1);
    }
    EXPECT_NEAR(w.value.data()[0], pytorch_weight(grads, 0.1f, 0.9f, nesterov), 1e-6) << nesterov;
  }
}

TEST(Sgd, AZeroGradientLeavesMomentumAndDecayAtWork) {
  for (const bool nesterov : {false, true}) {
    Sgd sgd({.momentum = 0.5, .decay = 0.5, .nesterov = nesterov});
    Param w = make_param({4}, {});
    w.grad.data()[0] = NAN;  // never read
    sgd.velocity(w).data()[0] = 2;

    update(sgd, w, 0.25);  // step = 0.25 * 0.5 * 4 = 0.5; v = 1 - 0.5
    EXPECT_THAT(values(sgd.velocity(w)), ElementsAre(0.5));
    EXPECT_THAT(values(w.value), ElementsAre(nesterov ? 3.75 : 4.5));
  }
}

TEST(Sgd, MarksTheGradientUsedAndTheValueChanged) {
  Sgd sgd({.momentum = 0, .decay = 0});
  Param w = make_param({1}, {1});
  const uint64_t before = w.version;

  update(sgd, w, 0.5);

  EXPECT_TRUE(w.grad_is_zero);
  EXPECT_EQ(w.version, before + 1);
}

TEST(Sgd, AveragesMoveTowardsTheStatisticWithoutRateDecayOrMomentum) {
  Sgd sgd({.momentum = 0.9, .decay = 0.5});
  Param mean = make_param({4, 0}, {16, 8});
  mean.role = ParamRole::kAverage;
  mean.lr_mult = 0.25;

  update(sgd, mean, 1000, 0.5);  // 4 + (8 - 4) / 4, 0 + (4 - 0) / 4
  EXPECT_THAT(values(mean.value), ElementsAre(5, 1));
  EXPECT_TRUE(mean.grad_is_zero);

  update(sgd, mean, 1000, 0.5);  // no new statistic
  EXPECT_THAT(values(mean.value), ElementsAre(5, 1));
  EXPECT_THROW(sgd.velocity(mean), Error);
}

TEST(Sgd, TreatsEveryElementAlikeWhateverTheTeam) {
  const size_t count = (1 << 16) + 7;
  const std::vector<float> ones(count, 1), grads(count, 3);
  const int threads = team_size();
  for (const int team : {1, 3}) {
    set_team_size(team);
    Sgd sgd({.momentum = 0.9, .decay = 0.1});
    Param w = make_param(ones, grads);
    update(sgd, w, 0.1);
    update(sgd, w, 0.1);
    const std::vector<float> after = values(w.value);
    EXPECT_THAT(after, testing::Each(FloatEq(after[0])));
    EXPECT_NE(after[0], 1);
  }
  set_team_size(threads);
}

TEST(Sgd, UpdatesEmptyPartsOfAShardedParameter) {
  Sgd sgd({});
  Param w = make_param({}, {});
  update(sgd, w, 0.1);
  EXPECT_EQ(sgd.velocity(w).elements(), 0);
}

TEST(SgdSettings, AreReadWithTheirDefaults) {
  Config config = Config::text("type = 'sgd'\nlearning_rate = 0.01\nnesterov = true");
  const SgdSettings settings = SgdSettings::from(config);
  EXPECT_EQ(settings.learning_rate, 0.01);
  EXPECT_EQ(settings.momentum, 0.9);
  EXPECT_EQ(settings.decay, 5e-4);
  EXPECT_TRUE(settings.nesterov);
}

TEST(SgdSettings, RejectBadTables) {
  const auto complaint = [](const std::string& text) -> std::string {
    Config config = Config::text(text);
    try {
      SgdSettings::from(config);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(complaint("momentum = 0.9"), HasSubstr("learning_rate"));
  EXPECT_THAT(complaint("learning_rate = 0"), HasSubstr("learning_rate"));
  EXPECT_THAT(complaint("learning_rate = 1\nmomentum = 1"), HasSubstr("momentum"));
  EXPECT_THAT(complaint("learning_rate = 1\ndecay = -1"), HasSubstr("decay"));
  EXPECT_THAT(complaint("learning_rate = 1\nmomentun = 0.5"), HasSubstr("did you mean 'momentum'?"));
  EXPECT_THAT(complaint("learning_rate = 1\ntype = 'adam'"), HasSubstr("'adam'"));
}

}  // namespace
}  // namespace owt
