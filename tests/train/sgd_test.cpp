#include "src/train/sgd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "src/core/check.h"
#include "src/core/threads.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"

namespace owt {
namespace {

using testing::ElementsAre;
using testing::FloatEq;
using testing::HasSubstr;

class SgdTest : public DeviceTest {
 protected:
  Param make_param(const std::vector<float>& value, const std::vector<float>& grad,
                   Precision precision = Precision::kFp32) const {
    Param param;
    param.name = "w";
    param.full_shape = Shape{static_cast<int64_t>(value.size())};
    param.part = {0, static_cast<int64_t>(value.size())};
    param.cpu_reads_copy16 = true;
    param.allocate({device(), precision});
    param.set_value(upload(value, param.shape(), Device::kCpu));
    if (!grad.empty()) set_grad(param, grad);
    return param;
  }

  static void set_grad(Param& param, const std::vector<float>& grad) {
    param.grad.copy_from(upload(grad, param.shape(), Device::kCpu));
    param.grad_is_zero = false;
  }

  // params: pointers to parameters, or parts.
  template <class Params>
  void update(Sgd& sgd, const std::vector<Params>& params, double rate, double gradient_scale = 1) const {
    Tensor here({1}, DType::kF64);
    here.data<double>()[0] = rate;
    const Stream stream(device());
    sgd.update(params, {rate, here.to(device())}, gradient_scale, stream);
    stream.synchronize();
  }
  void update(Sgd& sgd, Param& param, double rate, double gradient_scale = 1) const {
    update(sgd, std::vector<Param*>{&param}, rate, gradient_scale);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, SgdTest, testing::ValuesIn(devices()), device_name);

int64_t resident_bytes() {
  int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(Sgd, AVelocityIsZeroAndTakesNoMemoryBeforeItsFirstUse) {
  constexpr int64_t kBytes = 64 << 20, kCount = kBytes / 4 - 3;
  Tensor(Shape{kCount}).zero();  // memory that may come again
  Param w;
  w.name = "w";
  w.full_shape = Shape{kCount};
  w.part = {0, kCount};
  w.value = Tensor(w.full_shape);
  Sgd sgd({});
  const int64_t before = resident_bytes();
  const Tensor& velocity = sgd.velocity(w);
  EXPECT_LT(resident_bytes(), before + kBytes / 4);
  EXPECT_TRUE(std::all_of(velocity.data(), velocity.data() + kCount, [](float v) { return v == 0; }));
}

TEST_P(SgdTest, MovesTheWeightsByTheVelocity) {
  Sgd sgd({.momentum = 0.5, .decay = 0});
  Param w = make_param({1, 2}, {4, -8});

  update(sgd, w, 0.25);  // v = -0.25 g
  EXPECT_THAT(download(sgd.velocity(w)), ElementsAre(-1, 2));
  EXPECT_THAT(download(w.value), ElementsAre(0, 4));

  set_grad(w, {2, 0});
  update(sgd, w, 0.25);  // v = 0.5 v - 0.25 g
  EXPECT_THAT(download(sgd.velocity(w)), ElementsAre(-1, 1));
  EXPECT_THAT(download(w.value), ElementsAre(-1, 5));
}

TEST_P(SgdTest, DecaysByRateTimesDecayTimesWeight) {
  Sgd sgd({.momentum = 0, .decay = 0.5});
  Param w = make_param({8}, {2});
  w.decay_mult = 0.5;
  w.lr_mult = 2;

  update(sgd, w, 0.125, 3);  // lr = 0.25; v = -0.25 * (3 * 2 + 0.25 * 8) = -2
  EXPECT_THAT(download(w.value), ElementsAre(6));
}

TEST_P(SgdTest, NesterovLooksOneStepAhead) {
  Sgd sgd({.momentum = 0.5, .decay = 0, .nesterov = true});
  Param w = make_param({0}, {4});

  update(sgd, w, 0.25);  // v = -1; w += 0.5 * -1 - 1
  EXPECT_THAT(download(sgd.velocity(w)), ElementsAre(-1));
  EXPECT_THAT(download(w.value), ElementsAre(-1.5));
  set_grad(w, {4});
  update(sgd, w, 0.25);  // v = -0.5 - 1; w += -0.75 - 1
  EXPECT_THAT(download(sgd.velocity(w)), ElementsAre(-1.5));
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

TEST_P(SgdTest, GivesTheWeightsOfPyTorchWhileTheRateIsConstant) {
  const std::vector<float> grads = {1, -3, 2, 0.5};
  for (const bool nesterov : {false, true}) {
    Sgd sgd({.momentum = 0.9, .decay = 0, .nesterov = nesterov});
    Param w = make_param({1}, {});
    for (const float g : grads) {
      set_grad(w, {g});
      update(sgd, w, 0.1);
    }
    EXPECT_NEAR(download(w.value)[0], pytorch_weight(grads, 0.1f, 0.9f, nesterov), 1e-6) << nesterov;
  }
}

TEST_P(SgdTest, AZeroGradientLeavesMomentumAndDecayAtWork) {
  for (const bool nesterov : {false, true}) {
    Sgd sgd({.momentum = 0.5, .decay = 0.5, .nesterov = nesterov});
    Param w = make_param({4}, {});
    fill(w.grad, NAN);  // never read
    fill(sgd.velocity(w), 2);

    update(sgd, w, 0.25);  // step = 0.25 * 0.5 * 4 = 0.5; v = 1 - 0.5
    EXPECT_THAT(download(sgd.velocity(w)), ElementsAre(0.5));
    EXPECT_THAT(download(w.value), ElementsAre(nesterov ? 3.75 : 4.5));
  }
}

TEST_P(SgdTest, MarksTheGradientUsedAndTheValueChanged) {
  Sgd sgd({.momentum = 0, .decay = 0});
  Param w = make_param({1}, {1});
  const uint64_t before = w.version;

  update(sgd, w, 0.5);

  EXPECT_TRUE(w.grad_is_zero);
  EXPECT_EQ(w.version, before + 1);
}

TEST_P(SgdTest, AveragesMoveTowardsTheStatisticWithoutRateDecayOrMomentum) {
  Sgd sgd({.momentum = 0.9, .decay = 0.5});
  Param mean = make_param({4, 0}, {16, 8});
  mean.role = ParamRole::kAverage;
  mean.lr_mult = 0.25;

  update(sgd, mean, 1000, 0.5);  // 4 + (8 - 4) / 4, 0 + (4 - 0) / 4
  EXPECT_THAT(download(mean.value), ElementsAre(5, 1));
  EXPECT_TRUE(mean.grad_is_zero);

  update(sgd, mean, 1000, 0.5);  // no new statistic
  EXPECT_THAT(download(mean.value), ElementsAre(5, 1));
  EXPECT_THROW(sgd.velocity(mean), Error);
}

TEST_P(SgdTest, TreatsEveryElementAlikeWhateverTheTeam) {
  const size_t count = (1 << 16) + 7;
  const std::vector<float> ones(count, 1), grads(count, 3);
  const int threads = team_size();
  for (const int team : {1, 3}) {
    set_team_size(team);
    Sgd sgd({.momentum = 0.9, .decay = 0.1});
    Param w = make_param(ones, grads);
    update(sgd, w, 0.1);
    update(sgd, w, 0.1);
    const std::vector<float> after = download(w.value);
    EXPECT_THAT(after, testing::Each(FloatEq(after[0])));
    EXPECT_NE(after[0], 1);
  }
  set_team_size(threads);
}

// The parts of a parameter and the lists of parameters that a device takes at a time, and all that does not fit them.
TEST_P(SgdTest, UpdatesEveryElementOfEveryParameterOfALongList) {
  Sgd sgd({.momentum = 0, .decay = 0});
  std::vector<Param> params;
  for (size_t i = 0; i < 100; ++i) {
    const size_t count = i == 40 ? 9001 : i % 7;
    params.push_back(make_param(std::vector<float>(count, 1), std::vector<float>(count, static_cast<float>(i))));
    params.back().lr_mult = i % 2 == 0 ? 1 : 2;
    params.back().grad_is_zero = i == 98;
  }
  std::vector<Param*> all;
  for (Param& param : params) all.push_back(&param);

  update(sgd, all, 0.5);

  for (size_t i = 0; i < params.size(); ++i) {
    const float gradient = i == 98 ? 0 : static_cast<float>(i);
    EXPECT_THAT(download(params[i].value), testing::Each(1 - (i % 2 == 0 ? 0.5f : 1.0f) * gradient)) << i;
  }
}

TEST_P(SgdTest, UpdatesEmptyPartsOfAShardedParameter) {
  Sgd sgd({});
  Param w = make_param({}, {});
  update(sgd, w, 0.1);
  EXPECT_EQ(sgd.velocity(w).elements(), 0);
}

std::vector<float> counted(int64_t count, float scale) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(scale * static_cast<float>(i % 97 + 1));
  return values;
}

// Parts that begin and end anywhere: in the middle of what a kernel takes at once, or of what one of its blocks takes.
TEST_P(SgdTest, PartsAreUpdatedAsTheWholeIs) {
  constexpr int64_t kCount = 9001;
  const std::vector<float> value = counted(kCount, 1), grad = counted(kCount, -0.25f);
  for (const bool nesterov : {false, true}) {
    const SgdSettings settings{.momentum = 0.5, .decay = 0.25, .nesterov = nesterov};
    Sgd whole_sgd(settings);
    Param whole = make_param(value, grad);
    whole.lr_mult = 2;
    update(whole_sgd, whole, 0.25, 3);
    set_grad(whole, grad);
    update(whole_sgd, whole, 0.25, 3);
    const std::vector<float> expected = download(whole.value), velocity = download(whole_sgd.velocity(whole));
    for (const Slice part : {Slice{0, kCount}, Slice{0, 4}, Slice{1, 4097}, Slice{8, 8}, Slice{4096, kCount}}) {
      Sgd sgd(settings);
      Param w = make_param(value, {});
      w.lr_mult = 2;
      const std::vector<float> grads(grad.begin() + part.begin, grad.begin() + part.end);
      const ParamPart one{&w, part, upload(grads, {part.size()}, device())};
      update(sgd, std::vector<ParamPart>{one}, 0.25, 3);
      update(sgd, std::vector<ParamPart>{one}, 0.25, 3);
      const std::vector<float> after = download(w.value);
      for (int64_t i = 0; i < kCount; ++i) {
        const auto at = static_cast<size_t>(i);
        const bool inside = part.begin <= i && i < part.end;
        ASSERT_EQ(after[at], inside ? expected[at] : value[at]) << i << " of " << part.begin << " to " << part.end;
      }
      if (part.size() > 0) {
        const std::vector<float> kept = download(sgd.velocity(w, part));
        EXPECT_EQ(kept, std::vector<float>(velocity.begin() + part.begin, velocity.begin() + part.end));
      }
    }
  }
}

TEST_P(SgdTest, OfAPartOnlyItsVelocityIsKept) {
  Sgd sgd({.momentum = 0.5, .decay = 0});
  Param w = make_param({1, 2, 3, 4}, {});
  EXPECT_EQ(sgd.velocity(w, {1, 3}).shape(), (Shape{2}));
  EXPECT_THROW(sgd.velocity(w), Error);
  EXPECT_THROW(sgd.velocity(w, {0, 2}), Error);
}

TEST_P(SgdTest, OfAPartTheWholeGradientIsUsedAndTheValueChanged) {
  Sgd sgd({.momentum = 0, .decay = 0});
  Param w = make_param({1, 1}, {1, 1}), none = make_param({1}, {1});
  update(sgd, std::vector<ParamPart>{{&w, {1, 2}, upload({1}, {1}, device())}, {&none, {0, 0}}}, 0.5);
  for (const Param* param : {&w, &none}) {
    EXPECT_TRUE(param->grad_is_zero);
    EXPECT_EQ(param->version, 2u) << "after its first value";
  }
}

TEST_P(SgdTest, PartsOfAveragesMoveAndAZeroGradientOfAPartLeavesMomentumAtWork) {
  Sgd sgd({.momentum = 0.5, .decay = 0});
  Param mean = make_param({4, 0, 8}, {}), w = make_param({4, 4}, {});
  mean.role = ParamRole::kAverage;
  mean.lr_mult = 0.5;
  fill(sgd.velocity(w, {1, 2}), 2);
  update(sgd, std::vector<ParamPart>{{&mean, {1, 3}, upload({2, 4}, {2}, device())}, {&w, {1, 2}}}, 1);
  EXPECT_THAT(download(mean.value), ElementsAre(4, 1, 6));
  EXPECT_THAT(download(w.value), ElementsAre(4, 5));
}

class SgdOnGpu : public SgdTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SgdOnGpu);
INSTANTIATE_TEST_SUITE_P(Gpus, SgdOnGpu, testing::ValuesIn(gpu_devices()), device_name);

TEST_P(SgdTest, RenewsTheCopyInBf16OfTheWholeParameter) {
  for (const size_t count : {4, 7, 4099}) {
    Sgd sgd({.momentum = 0, .decay = 0});
    Param w = make_param(std::vector<float>(count, 1), std::vector<float>(count, 1), Precision::kBf16);
    update(sgd, w, 0x1p-9);
    EXPECT_THAT(download(w.value), testing::Each(1 - 0x1p-9f)) << count;
    EXPECT_THAT(download(w.copy16), testing::Each(1.0f)) << count;  // halfway to the next one below, 1 - 2^-8: to even
    set_grad(w, std::vector<float>(count, 1));
    update(sgd, w, 0x1p-9);
    EXPECT_THAT(download(w.copy16), testing::Each(1 - 0x1p-8f)) << count;
  }
}

// Gradients that bf16 holds: as many of them as are handled by fours and one by one, and more than a block takes. All
// products are exact, so that it does not matter which of them a compiler adds up unrounded.
TEST_P(SgdOnGpu, TakesGradientsInBf16AsTheirValues) {
  for (const size_t count : {4, 7, 4104, 4099}) {
    std::vector<float> value(count), grad(count);
    for (size_t i = 0; i < count; ++i) {
      value[i] = static_cast<float>(i % 37) - 11.25f;
      grad[i] = static_cast<float>(i % 101) - 40;
    }
    std::vector<std::vector<float>> weights, velocities;
    for (const DType type : {DType::kF32, DType::kBF16}) {
      Sgd sgd({.momentum = 0.5, .decay = 0.25});
      Param w = make_param(value, {}, Precision::kBf16);
      w.grad_type = type;
      w.grad = upload(grad, w.shape(), device(), type);
      w.grad_is_zero = false;
      update(sgd, w, 0.125);
      weights.push_back(download(w.value));
      velocities.push_back(download(sgd.velocity(w)));
    }
    EXPECT_EQ(weights[1], weights[0]) << count;
    EXPECT_EQ(velocities[1], velocities[0]) << count;
  }
}

TEST_P(SgdOnGpu, TakesGradientsAtAnyAddress) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    Sgd sgd({.momentum = 0, .decay = 0});
    Param w = make_param(std::vector<float>(8, 1), {}, Precision::kBf16);
    const Tensor all = upload({9, 1, 2, 3, 4, 5, 6, 7, 8}, {9}, device(), type);
    update(sgd, std::vector<ParamPart>{{&w, {0, 8}, all.part(1, {8})}}, 0.25);
    EXPECT_THAT(download(w.value), ElementsAre(0.75, 0.5, 0.25, 0, -0.25, -0.5, -0.75, -1));
  }
}

TEST_P(SgdTest, RenewsTheCopyOfAPartAndLeavesTheRest) {
  Sgd sgd({.momentum = 0, .decay = 0});
  Param w = make_param({1, 1, 1, 1}, {}, Precision::kBf16);
  update(sgd, std::vector<ParamPart>{{&w, {1, 3}, upload({1, 2}, {2}, device())}}, 0.25);
  EXPECT_THAT(download(w.copy16), ElementsAre(1, 0.75, 0.5, 1));
}

TEST_P(SgdOnGpu, TakesTheRateFromTheMemoryOfTheDevice) {
  Sgd sgd({.momentum = 0, .decay = 0});
  Param w = make_param({1}, {1});
  Param* const list[] = {&w};
  Tensor rate({1}, DType::kF64);
  rate.data<double>()[0] = 0.25;
  const Stream stream(device());
  sgd.update(list, {1000, rate.to(device())}, 1, stream);
  stream.synchronize();
  EXPECT_THAT(download(w.value), ElementsAre(0.75));
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
    return message_of([&] { SgdSettings::from(config); });
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
