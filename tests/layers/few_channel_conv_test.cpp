#include "layers/conv_cpu/few_channel_conv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/conv_problem.h"
#include "tests/support/team_size.h"

namespace owt::few_channel_conv_test {
namespace {

using Values = ConvProblem::Values;
using Gradients = ConvProblem::Gradients;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Odd and even runs and widths, outputs of less and more than whole vectors and blocks, strides and zeros of all kinds.
const std::vector<ConvGeometry>& geometries() {
  static const std::vector<ConvGeometry> all{
      geometry_of("out=64 kernel=11 stride=4 pad=2", {31, 31, 3}),
      geometry_of("out=32 kernel=5 pad=2", {8, 8, 3}),
      geometry_of("out=20 kernel=5", {9, 8, 1}),
      geometry_of("out=10 kernel=3 stride=2 pad=1", {6, 13, 2}),
      geometry_of("out=10 kernel=3 stride=2 round='up'", {6, 12, 3}),
      geometry_of("out=48 kernel=2", {5, 7, 4}),
      geometry_of("out=70 kernel=[3,5] stride=[2,1] pad=[1,0]", {7, 10, 3}),
      geometry_of("out=3 kernel=1", {1, 1, 3}),
      geometry_of("out=17 kernel=1 stride=4", {9, 9, 3}),
      geometry_of("out=130 kernel=3 pad=3", {2, 2, 1}),
      geometry_of("out=16 kernel=[1,2] stride=[1,3] pad=[0,4]", {6, 1, 3}),
      geometry_of("out=64 kernel=3 pad=1", {3, 301, 2}),  // a row of dy in portions
  };
  return all;
}

Values y_of(const ConvProblem& p, bool biased = true) {
  return p.y(*make_few_channel_conv(p.shape, PassKind::kForward), biased);
}
Gradients gradients_of(const ConvProblem& p) {
  return p.gradients(*make_few_channel_conv(p.shape, PassKind::kBackwardWeights));
}
Gradients add_gradients(const ConvProblem& p, const Gradients& to, float beta, float bias_beta) {
  return p.add_gradients(*make_few_channel_conv(p.shape, PassKind::kBackwardWeights), to, beta, bias_beta);
}

class FewChannelConv : public testing::TestWithParam<DType> {
 protected:
  static ConvProblem problem(const ConvGeometry& g, int64_t rows) { return {g, rows, GetParam()}; }
  // Tolerance for y, which is rounded to the type of images.
  static double tolerance() { return GetParam() == DType::kBF16 ? 0x1p-8 + 1e-5 : 1e-5; }

  void SetUp() override {
    if (!make_few_channel_conv(problem(geometries()[0], 1).shape, PassKind::kForward))
      GTEST_SKIP() << "this processor has no products of bf16";
  }
};
INSTANTIATE_TEST_SUITE_P(Types, FewChannelConv, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(FewChannelConv, MatchesTheDefinitionForEveryTeam) {
  for (const int threads : {1, 3}) {
    const TeamSize team(threads);
    for (const ConvGeometry& g : geometries()) {
      const ConvProblem p = problem(g, 2);
      SCOPED_TRACE(p.name());
      EXPECT_NEAR(relative_error(y_of(p), p.reference.y(p.x, p.weight, p.bias)), 0, tolerance());
      EXPECT_NEAR(relative_error(y_of(p, false), p.reference.y(p.x, p.weight, {})), 0, tolerance());
      const Gradients found = gradients_of(p);
      EXPECT_NEAR(relative_error(found.weight, p.reference.dw(p.x, p.dy)), 0, 1e-5);
      EXPECT_NEAR(relative_error(found.bias, p.reference.db(p.dy)), 0, 1e-5);
    }
  }
}

TEST_P(FewChannelConv, AnOutputIsTheSameForEveryTeamAndBatch) {
  const ConvProblem of_five = problem(geometries()[0], 5);
  const Values y = y_of(of_five);
  {
    const TeamSize team(4);
    EXPECT_EQ(y_of(of_five), y);
  }
  ConvProblem first = problem(geometries()[0], 1);
  std::copy_n(of_five.x.begin(), first.x.size(), first.x.begin());
  EXPECT_EQ(y_of(first), Values(y.begin(), y.begin() + static_cast<std::ptrdiff_t>(first.dy.size())));
}

TEST_P(FewChannelConv, GradientsAreAddedWhereBetaIsOne) {
  const ConvProblem p = problem(geometries()[1], 2);
  const Gradients once = gradients_of(p), weight_twice = add_gradients(p, once, 1, 0),
                  bias_twice = add_gradients(p, once, 0, 1), no_bias = add_gradients(p, {once.weight, {}}, 1, 0);
  for (size_t i = 0; i < once.weight.size(); ++i) EXPECT_EQ(weight_twice.weight[i], 2 * once.weight[i]);
  for (size_t i = 0; i < once.bias.size(); ++i) EXPECT_EQ(bias_twice.bias[i], 2 * once.bias[i]);
  EXPECT_EQ(weight_twice.bias, once.bias);
  EXPECT_EQ(bias_twice.weight, once.weight);
  EXPECT_EQ(no_bias.weight, weight_twice.weight);
}

std::vector<bool> numbers(const auto& values) {
  std::vector<bool> are;
  for (const auto value : values) are.push_back(!std::isnan(value));
  return are;
}

// Pairs of bf16 at the end of a run or a row have an unused half.
TEST_P(FewChannelConv, NaNIsWhereTheDefinitionHasItAndNowhereElse) {
  for (const ConvGeometry& g : geometries()) {
    ConvProblem p = problem(g, 2);
    SCOPED_TRACE(p.name());
    for (int64_t h = 0; h < g.in_h; h += 3)
      for (int64_t w = h % 2; w < g.in_w; w += 7) p.x[static_cast<size_t>((h * g.in_w + w) * g.in_c)] = kNaN;
    EXPECT_EQ(numbers(y_of(p)), numbers(p.reference.y(p.x, p.weight, p.bias)));
    EXPECT_EQ(numbers(gradients_of(p).weight), numbers(p.reference.dw(p.x, p.dy)));
  }
}

TEST_P(FewChannelConv, NaNInAGradientOfAnOutputStaysInThatOutput) {
  for (const ConvGeometry& g : geometries()) {
    ConvProblem p = problem(g, 2);
    SCOPED_TRACE(p.name());
    const auto outputs = static_cast<size_t>(g.out_c), last = outputs - 1, per_output = p.weight.size() / outputs;
    p.dy[last] = kNaN;
    const Gradients found = gradients_of(p);
    for (size_t o = 0; o < outputs; ++o) {
      EXPECT_EQ(std::isnan(found.bias[o]), o == last) << o;
      EXPECT_EQ(std::isnan(found.weight[o * per_output]), o == last) << o;
    }
  }
}

TEST(FewChannelConvPasses, ComputesNoPassThatItDoesNotSuit) {
  ConvGeometry groups = geometry_of("out=48 kernel=2", {5, 7, 4}), channels = geometries()[0];
  groups.groups = 2;
  channels.in_c = 5;
  for (const ConvGeometry& g : {groups, channels})
    for (const auto kind : {PassKind::kForward, PassKind::kBackwardWeights})
      EXPECT_EQ(make_few_channel_conv({g, 2, true, DType::kF32}, kind), nullptr);
  EXPECT_EQ(make_few_channel_conv({geometries()[0], 2, true, DType::kF32}, PassKind::kBackwardData), nullptr);
}

}  // namespace
}  // namespace owt::few_channel_conv_test
