#include "layers/conv_cpu/winograd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "src/system/cpu_level.h"
#include "tests/support/conv_problem.h"
#include "tests/support/team_size.h"

namespace owt::winograd_test {
namespace {

constexpr PassKind kAllKinds[] = {PassKind::kForward, PassKind::kBackwardData, PassKind::kBackwardWeights};

// Tiles that an image fills or leaves, one tile, zeros wider than the kernel, channels of less and more than whole
// vectors and panels.
std::vector<ConvGeometry> geometries(int kernel) {
  const auto of = [=](const std::string& keys, const Shape& image) {
    return geometry_of(concat("kernel=", kernel, " ", keys), image);
  };
  return {of("out=40 pad=1", {13, 9, 24}), of("out=48 pad=2", {6, 7, 32}), of("out=3 pad=4", {1, 2, 5}),
          of("out=19 pad=[0,2]", {5, 6, 17}), of("out=130", {8, 5, 70})};
}

// Each pass against the definition. rounding: of y and dx to the type of images; exact: of the products.
void expect_definition(const ConvProblem& p, DType products, double rounding, double exact) {
  SCOPED_TRACE(p.name());
  const auto pass = [&](PassKind kind) { return make_winograd(p.shape, kind, products); };
  EXPECT_NEAR(relative_error(p.y(*pass(PassKind::kForward)), p.reference.y(p.x, p.weight, p.bias)), 0,
              rounding + exact);
  EXPECT_NEAR(relative_error(p.dx(*pass(PassKind::kBackwardData)), p.reference.dx(p.dy, p.weight)), 0,
              rounding + exact);
  const ConvProblem::Gradients found = p.gradients(*pass(PassKind::kBackwardWeights));
  EXPECT_NEAR(relative_error(found.weight, p.reference.dw(p.x, p.dy)), 0, exact);
  EXPECT_NEAR(relative_error(found.bias, p.reference.db(p.dy)), 0, 1e-5);
}

bool has_bf16_products() { return cpu_level() >= CpuLevel::kBf16; }

void expect_definition_of_f32_products(DType images, double rounding) {
  for (const int threads : {1, 7}) {
    const TeamSize team(threads);
    for (const int kernel : {3, 5})
      for (const ConvGeometry& g : geometries(kernel)) expect_definition({g, 2, images}, DType::kF32, rounding, 1e-4);
  }
}

TEST(Winograd, ProductsOfF32MatchTheDefinitionForEveryTeam) { expect_definition_of_f32_products(DType::kF32, 0); }

TEST(Winograd, WhatF32ProductsComputeIsRoundedOnceToBf16) { expect_definition_of_f32_products(DType::kBF16, 0x1p-8); }

TEST(Winograd, ProductsOfBf16MatchTheDefinitionWithinSomeRoundingsOfBf16) {
  if (!has_bf16_products()) GTEST_SKIP() << "this processor has no products of bf16";
  for (const int threads : {1, 7}) {
    const TeamSize team(threads);
    for (const ConvGeometry& g : geometries(3)) expect_definition({g, 2, DType::kBF16}, DType::kBF16, 0, 0.05);
  }
}

TEST(Winograd, GradientsAreAddedWhereBetaIsOne) {
  for (const int kernel : {3, 5}) {
    const ConvProblem p(geometries(kernel)[3], 2, DType::kF32);
    const auto pass = make_winograd(p.shape, PassKind::kBackwardWeights, DType::kF32);
    const ConvProblem::Gradients once = p.gradients(*pass), weight_twice = p.add_gradients(*pass, once, 1, 0),
                                 bias_twice = p.add_gradients(*pass, once, 0, 1);
    for (size_t i = 0; i < once.weight.size(); ++i) EXPECT_EQ(weight_twice.weight[i], 2 * once.weight[i]);
    for (size_t i = 0; i < once.bias.size(); ++i) EXPECT_EQ(bias_twice.bias[i], 2 * once.bias[i]);
    EXPECT_EQ(weight_twice.bias, once.bias);
    EXPECT_EQ(bias_twice.weight, once.weight);
  }
}

TEST(Winograd, ABatchOfOneRowIsTheFirstOfABatchOfThree) {
  for (const int kernel : {3, 5}) {
    const ConvProblem three(geometries(kernel)[0], 3, DType::kF32);
    ConvProblem one(geometries(kernel)[0], 1, DType::kF32);
    std::copy_n(three.x.begin(), one.x.size(), one.x.begin());
    const ConvProblem::Values all = three.y(*make_winograd(three.shape, PassKind::kForward, DType::kF32));
    EXPECT_EQ(one.y(*make_winograd(one.shape, PassKind::kForward, DType::kF32)),
              ConvProblem::Values(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(one.dy.size())));
  }
}

// NaN is also in the other outputs of its tile, which the algorithm cannot distinguish.
TEST(Winograd, NaNIsInEveryOutputThatUsesItAndInNoOtherImage) {
  for (const int kernel : {3, 5}) {
    ConvProblem p(geometries(kernel)[0], 2, DType::kF32);
    p.x[0] = std::numeric_limits<float>::quiet_NaN();
    const ConvProblem::Values y = p.y(*make_winograd(p.shape, PassKind::kForward, DType::kF32));
    const std::vector<double> wanted = p.reference.y(p.x, p.weight, p.bias);
    for (size_t i = 0; i < y.size() / 2; ++i) EXPECT_TRUE(std::isnan(y[i]) || !std::isnan(wanted[i])) << i;
    for (size_t i = y.size() / 2; i < y.size(); ++i) EXPECT_FALSE(std::isnan(y[i])) << i;
  }
}

TEST(Winograd, ComputesNoPassThatItDoesNotSuit) {
  const ConvGeometry three = geometries(3)[0], five = geometries(5)[0];
  ConvGeometry strided = three, grouped = three, few = three, seven = three;
  strided.stride_w = 2;
  grouped.groups = 2;
  few.in_c = 4;
  seven.kernel_h = seven.kernel_w = 7;
  for (const ConvGeometry& g : {strided, grouped, few, seven})
    for (const PassKind kind : kAllKinds)
      EXPECT_EQ(make_winograd({g, 2, true, DType::kF32}, kind, DType::kF32), nullptr);
  EXPECT_EQ(make_winograd({five, 2, true, DType::kBF16}, PassKind::kForward, DType::kBF16), nullptr);
  EXPECT_EQ(make_winograd({three, 2, true, DType::kF32}, PassKind::kForward, DType::kBF16), nullptr);
}

}  // namespace
}  // namespace owt::winograd_test
