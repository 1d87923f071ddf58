#include "layers/conv_cpu/depthwise_conv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/conv_problem.h"
#include "tests/support/team_size.h"

namespace owt::depthwise_conv_test {
namespace {

using testing::DoubleNear;
using testing::Pointwise;

using Values = ConvProblem::Values;
using Gradients = ConvProblem::Gradients;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

ConvGeometry depthwise(const std::string& keys, const Shape& image) {
  return geometry_of(concat(keys, " out=", image[2], " groups=", image[2]), image);
}

// Channels that fill vectors and blocks and that do not; widths of less than a tile and of several; kernels and strides
// with and without special code; and all kinds of padding.
const std::vector<ConvGeometry>& geometries() {
  static const std::vector<ConvGeometry> all{
      depthwise("kernel=3 pad=1", {9, 8, 48}),
      depthwise("kernel=3", {5, 17, 37}),
      depthwise("kernel=3 pad=1", {5, 6, 1}),
      depthwise("kernel=3 pad=3", {2, 7, 70}),
      depthwise("kernel=3 stride=2 pad=1", {14, 13, 32}),
      depthwise("kernel=3 stride=2 round='up'", {6, 12, 33}),
      depthwise("kernel=3 stride=[1,2] pad=[0,1]", {6, 19, 16}),
      depthwise("kernel=3 stride=3 pad=1", {10, 11, 17}),
      depthwise("kernel=1", {4, 9, 64}),
      depthwise("kernel=1 stride=2", {5, 9, 20}),
      depthwise("kernel=2 stride=3 pad=1", {8, 16, 19}),  // some pixels are in no window
      depthwise("kernel=2", {6, 10, 24}),
      depthwise("kernel=[2,3] stride=[2,1] pad=[1,0]", {7, 10, 40}),
      depthwise("kernel=[3,4] pad=[1,2]", {6, 9, 21}),
      depthwise("kernel=5 pad=2", {2, 2, 35}),
      depthwise("kernel=5 pad=2", {11, 12, 96}),
      depthwise("kernel=5 stride=2 pad=2", {13, 15, 49}),
      depthwise("kernel=7 pad=3", {8, 15, 34}),
      depthwise("kernel=7 stride=4 pad=3", {13, 13, 3}),
  };
  return all;
}

Values y_of(const ConvProblem& p, bool biased = true) {
  return p.y(*make_depthwise_conv(p.shape, PassKind::kForward), biased);
}
Values dx_of(const ConvProblem& p) { return p.dx(*make_depthwise_conv(p.shape, PassKind::kBackwardData)); }
Gradients gradients_of(const ConvProblem& p) {
  return p.gradients(*make_depthwise_conv(p.shape, PassKind::kBackwardWeights));
}
Gradients add_gradients(const ConvProblem& p, const Gradients& to, float beta, float bias_beta) {
  return p.add_gradients(*make_depthwise_conv(p.shape, PassKind::kBackwardWeights), to, beta, bias_beta);
}

// The first images of a problem, as a separate batch.
ConvProblem first_images(const ConvProblem& all, int64_t rows) {
  ConvProblem first(all.shape.geometry, rows, all.shape.images);
  std::copy_n(all.x.begin(), first.x.size(), first.x.begin());
  std::copy_n(all.dy.begin(), first.dy.size(), first.dy.begin());
  return first;
}

Values beginning_of(const Values& values, size_t count) {
  return Values(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count));
}

enum class Kind { kFinite, kInfinite, kNaN };
std::vector<Kind> kinds(const auto& values) {
  std::vector<Kind> found;
  for (const auto value : values)
    found.push_back(std::isnan(value) ? Kind::kNaN : std::isinf(value) ? Kind::kInfinite : Kind::kFinite);
  return found;
}

class DepthwiseConv : public testing::TestWithParam<DType> {
 protected:
  static ConvProblem problem(const ConvGeometry& g, int64_t rows) { return {g, rows, GetParam()}; }
  // Tolerance for y and dx, which are rounded to the type of images.
  static double tolerance() { return GetParam() == DType::kBF16 ? 0x1p-8 + 1e-5 : 1e-5; }
};
INSTANTIATE_TEST_SUITE_P(Types, DepthwiseConv, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(DepthwiseConv, MatchesTheDefinitionForEveryTeam) {
  for (const int threads : {1, 3}) {
    const TeamSize team(threads);
    for (const ConvGeometry& g : geometries()) {
      const ConvProblem p = problem(g, 2);
      SCOPED_TRACE(p.name());
      EXPECT_NEAR(relative_error(y_of(p), p.reference.y(p.x, p.weight, p.bias)), 0, tolerance());
      EXPECT_NEAR(relative_error(y_of(p, false), p.reference.y(p.x, p.weight, {})), 0, tolerance());
      EXPECT_NEAR(relative_error(dx_of(p), p.reference.dx(p.dy, p.weight)), 0, tolerance());
      const Gradients found = gradients_of(p);
      EXPECT_NEAR(relative_error(found.weight, p.reference.dw(p.x, p.dy)), 0, 1e-5);
      EXPECT_THAT(found.bias, Pointwise(DoubleNear(1e-4), p.reference.db(p.dy)));  // with one channel it is 0
    }
  }
}

TEST_P(DepthwiseConv, YAndDxAreTheSameForEveryTeamAndBatch) {
  for (const ConvGeometry& g : geometries()) {
    const ConvProblem of_five = problem(g, 5), first = first_images(of_five, 1);
    SCOPED_TRACE(of_five.name());
    const Values y = y_of(of_five), dx = dx_of(of_five);
    {
      const TeamSize team(3);
      EXPECT_EQ(y_of(of_five), y);
      EXPECT_EQ(dx_of(of_five), dx);
    }
    EXPECT_EQ(y_of(first), beginning_of(y, first.dy.size()));
    EXPECT_EQ(dx_of(first), beginning_of(dx, first.x.size()));
  }
}

TEST_P(DepthwiseConv, GradientsAreTheSameTwiceWithOneTeam) {
  const TeamSize team(3);
  for (const ConvGeometry& g : geometries()) {
    const ConvProblem p = problem(g, 2);
    const Gradients once = gradients_of(p), again = gradients_of(p);
    EXPECT_EQ(once.weight, again.weight) << p.name();
    EXPECT_EQ(once.bias, again.bias) << p.name();
  }
}

// Channels that are in two blocks are added once.
TEST_P(DepthwiseConv, GradientsAreAddedWhereBetaIsOne) {
  for (const ConvGeometry& g : geometries()) {
    const ConvProblem p = problem(g, 2);
    SCOPED_TRACE(p.name());
    const Gradients once = gradients_of(p), weight_twice = add_gradients(p, once, 1, 0),
                    bias_twice = add_gradients(p, once, 0, 1), no_bias = add_gradients(p, {once.weight, {}}, 1, 0);
    for (size_t i = 0; i < once.weight.size(); ++i) EXPECT_EQ(weight_twice.weight[i], 2 * once.weight[i]);
    for (size_t i = 0; i < once.bias.size(); ++i) EXPECT_EQ(bias_twice.bias[i], 2 * once.bias[i]);
    EXPECT_EQ(weight_twice.bias, once.bias);
    EXPECT_EQ(bias_twice.weight, once.weight);
    EXPECT_EQ(no_bias.weight, weight_twice.weight);
  }
}

TEST_P(DepthwiseConv, NaNIsWhereTheDefinitionHasItAndNowhereElse) {
  for (const ConvGeometry& g : geometries()) {
    ConvProblem p = problem(g, 2);
    SCOPED_TRACE(p.name());
    const auto channels = static_cast<size_t>(g.in_c);
    for (size_t pixel = 0; pixel * channels < p.x.size(); pixel += 7) p.x[pixel * channels + pixel % channels] = kNaN;
    EXPECT_EQ(kinds(y_of(p)), kinds(p.reference.y(p.x, p.weight, p.bias)));
    EXPECT_EQ(kinds(gradients_of(p).weight), kinds(p.reference.dw(p.x, p.dy)));
    p.dy[p.dy.size() / 2] = kNaN;
    EXPECT_EQ(kinds(dx_of(p)), kinds(p.reference.dx(p.dy, p.weight)));
    EXPECT_EQ(kinds(gradients_of(p).bias), kinds(p.reference.db(p.dy)));
  }
}

TEST_P(DepthwiseConv, NothingComesOfAnInfiniteWeightAndTheZerosAroundAnImage) {
  for (const ConvGeometry& g : geometries()) {
    ConvProblem p = problem(g, 2);
    SCOPED_TRACE(p.name());
    p.weight[0] = kInfinity;
    p.weight.back() = -kInfinity;
    EXPECT_EQ(kinds(y_of(p)), kinds(p.reference.y(p.x, p.weight, p.bias)));
    EXPECT_EQ(kinds(dx_of(p)), kinds(p.reference.dx(p.dy, p.weight)));
  }
}

TEST(DepthwiseConvPasses, WeightsBesideImagesOfBf16AreRounded) {
  ConvProblem p(depthwise("kernel=1", {1, 1, 1}), 1, DType::kBF16);
  p.x = {1};
  p.weight = {1 + 0x1p-8f + 0x1p-9f};
  p.dy = {256};
  EXPECT_EQ(y_of(p, false), Values{1 + 0x1p-7f});
  EXPECT_EQ(dx_of(p), Values{258});
}

TEST(DepthwiseConvPasses, ComputesNoOtherConvolutions) {
  for (const char* keys : {"out=8 kernel=3", "out=8 kernel=3 groups=4", "out=16 kernel=3 groups=8"})
    for (const auto kind : {PassKind::kForward, PassKind::kBackwardData, PassKind::kBackwardWeights})
      EXPECT_EQ(make_depthwise_conv({geometry_of(keys, {6, 6, 8}), 2, true, DType::kF32}, kind), nullptr) << keys;
}

}  // namespace
}  // namespace owt::depthwise_conv_test
