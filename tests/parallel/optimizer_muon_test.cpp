#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/parallel/update_test.h"

namespace owt::optimizer_muon_test {
namespace {

using testing::ElementsAre;

class MuonTest : public UpdateTest {
 protected:
  Param matrix_of(const Shape& shape, const std::vector<float>& value, Precision precision = Precision::kFp32) const {
    Param param;
    param.name = "w";
    param.full_shape = shape;
    param.part = {0, shape.rows()};
    param.is_matrix = true;
    param.cpu_reads_copy16 = true;
    param.allocate({device(), precision});
    param.set_value(upload(value, shape, Device::kCpu));
    return param;
  }
  Optimizer optimizer_of(const OptimizerSettings& settings) const {
    Optimizer optimizer(settings);
    optimizer.reserve_matrices(1 << 10, device());
    return optimizer;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, MuonTest, testing::ValuesIn(devices()), device_name);

// Weights after four updates at changing rates, by torch.optim.Muon in double precision. Printed by
// tools/bench/torch_optimizers.py.
const struct {
  Shape shape;
  OptimizerSettings settings;
  std::vector<float> weights;
} kOfMuon[] = {
    {{2, 4},
     {.momentum = 0.95, .decay = 0.1, .nesterov = true},
     {-0.455099924, 0.179880608, -0.341248902, 0.656723657, 0.123335839, -0.398962463, 0.431282079, -0.066907582}},
    {{2, 4},
     {.momentum = 0.6, .decay = 0.5, .ns_steps = 3, .adjust_lr = OptimizerSettings::AdjustLr::kMatchRmsAdamW},
     {-0.488859499, 0.198594187, -0.254307432, 0.559722008, 0.111114024, -0.340553319, 0.411445036, -0.027149864}},
    {{4, 2},
     {.momentum = 0.95, .decay = 0.1, .nesterov = true},
     {-0.374773943, 0.263370251, -0.348680814, 0.744001528, 0.103451111, -0.403437477, 0.449925754, -0.163989778}},
    {{4, 2},
     {.momentum = 0.6, .decay = 0.5, .ns_steps = 3, .adjust_lr = OptimizerSettings::AdjustLr::kMatchRmsAdamW},
     {-0.484145341, 0.220616516, -0.241895893, 0.583350761, 0.104184038, -0.339697621, 0.42768147, -0.042575084}},
};

TEST_P(MuonTest, GivesTheWeightsOfPyTorch) {
  for (const auto& [shape, settings, wanted] : kOfMuon) {
    OptimizerSettings muon = settings;
    muon.type = OptimizerSettings::Type::kMuon;
    muon.learning_rate = muon.others_rate = 1;
    Optimizer optimizer = optimizer_of(muon);
    std::vector<float> value;
    for (int e = 0; e < 8; ++e) value.push_back(static_cast<float>((7 * e) % 11 - 5) / 8);
    Param w = matrix_of(shape, value);
    const double rates[] = {0.1, 0.1, 0.025, 0.05};
    for (int number = 0; number < 4; ++number) {
      std::vector<float> gradient;
      for (int e = 0; e < 8; ++e) gradient.push_back(static_cast<float>((5 * e + 2 * number) % 13 - 6) / 16);
      set_grad(w, gradient);
      update(optimizer, w, rates[number]);
    }
    EXPECT_THAT(download(w.value), testing::Pointwise(testing::FloatNear(1e-5f), wanted)) << shape;
  }
}

// w is divided by its norm and multiplied by the root of its rows. The update's singular value is
// s (a + b s^2 + c s^4) for s = 1.
TEST_P(MuonTest, UnitWeightsHaveANormOfOnePerRowBeforeTheUpdate) {
  Optimizer optimizer = optimizer_of({.type = OptimizerSettings::Type::kMuon,
                                      .learning_rate = 1,
                                      .momentum = 0,
                                      .decay = 0,
                                      .ns_steps = 1,
                                      .unit_weights = true,
                                      .adjust_lr = OptimizerSettings::AdjustLr::kNone,
                                      .others_rate = 1});
  Param w = matrix_of({2, 2}, {3, 4, 0, 0}, Precision::kBf16);
  w.lr_mult = 2;
  set_grad(w, {0, 0, 0.25, 0});
  update(optimizer, w, 0.5);
  const auto root = std::sqrt(2.0f);
  const std::vector<float> wanted{0.6f * root, 0.8f * root, -0.701f, 0.0f};
  EXPECT_THAT(download(w.value), testing::Pointwise(testing::FloatNear(1e-6f), wanted));
  EXPECT_THAT(download(w.copy16), testing::Pointwise(testing::FloatNear(4e-3f), wanted));
}

TEST_P(MuonTest, UpdatesAllOtherParametersByItsOwnSgd) {
  Optimizer muon = optimizer_of({.type = OptimizerSettings::Type::kMuon,
                                 .learning_rate = 4,
                                 .others_rate = 2,
                                 .others_momentum = 0.5,
                                 .others_decay = 0.25,
                                 .others_nesterov = true}),
            sgd({.learning_rate = 2, .momentum = 0.5, .decay = 0.25, .nesterov = true, .momentum_correction = true});
  Param a = make_param({1, 2}, {}), b = make_param({1, 2}, {});
  for (const float g : {1.0f, -2.0f, 0.5f}) {
    set_grad(a, {g, 1});
    set_grad(b, {g, 1});
    update(muon, a, 0.5);
    update(sgd, b, 0.25);
  }
  EXPECT_EQ(download(a.value), download(b.value));
}

TEST_P(MuonTest, LeavesRunningAveragesTheirRate) {
  Optimizer muon = optimizer_of({.type = OptimizerSettings::Type::kMuon, .learning_rate = 0.25, .others_rate = 2});
  Param mean = make_param({4, 0}, {8, 4});
  mean.role = ParamRole::kAverage;
  mean.lr_mult = 0.25;
  update(muon, mean, 0.5);
  EXPECT_THAT(download(mean.value), ElementsAre(5, 1));
}

// More elements than the threads of a kernel at once, in rows that no pack divides.
TEST_P(MuonTest, MakesTheRowsOfALargeUpdateOrthogonal) {
  constexpr int64_t kRows = 9, kColumns = 12345;
  for (const bool tall : {false, true}) {
    const Shape shape = tall ? Shape{kColumns, kRows} : Shape{kRows, kColumns};
    std::vector<float> zeros(kRows * kColumns, 0.0f), gradient;
    for (int64_t i = 0; i < kRows * kColumns; ++i) gradient.push_back(std::sin(static_cast<float>(i * i % 10007)));
    Optimizer optimizer({.type = OptimizerSettings::Type::kMuon,
                         .learning_rate = 1,
                         .decay = 0,
                         .ns_steps = 12,
                         .adjust_lr = OptimizerSettings::AdjustLr::kNone,
                         .others_rate = 1});
    optimizer.reserve_matrices(4 * kRows * kColumns, device());
    Param w = matrix_of(shape, zeros);
    set_grad(w, gradient);
    update(optimizer, w, 1);
    const std::vector<float> moved = download(w.value);
    const int64_t step = tall ? kRows : 1, from_row = tall ? 1 : kColumns;
    for (int64_t a = 0; a < kRows; ++a)
      for (int64_t b = 0; b <= a; ++b) {
        double product = 0;
        for (int64_t i = 0; i < kColumns; ++i)
          product += double{moved[static_cast<size_t>(a * from_row + i * step)]} *
                     moved[static_cast<size_t>(b * from_row + i * step)];
        EXPECT_NEAR(product, a == b ? 1 : 0, a == b ? 0.6 : 0.2) << a << ", " << b;
      }
  }
}

}  // namespace
}  // namespace owt::optimizer_muon_test
