#include "layers/few_channel_conv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "src/core/check.h"
#include "src/core/threads.h"
#include "tests/support/check_layer.h"
#include "tests/support/conv_reference.h"
#include "tests/support/harness.h"

namespace owt {
namespace {

using Values = std::vector<float>;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Size {
  int64_t h, w;
};

ConvGeometry geometry(Size in, int64_t channels, int64_t out, Size kernel, Size stride, Size pad) {
  return {.in_h = in.h,
          .in_w = in.w,
          .in_c = channels,
          .out_h = (in.h + 2 * pad.h - kernel.h) / stride.h + 1,
          .out_w = (in.w + 2 * pad.w - kernel.w) / stride.w + 1,
          .out_c = out,
          .kernel_h = kernel.h,
          .kernel_w = kernel.w,
          .stride_h = stride.h,
          .stride_w = stride.w,
          .top = pad.h,
          .left = pad.w,
          .bottom = pad.h,
          .right = pad.w};
}

// Odd and even runs and widths, outputs of less and more than whole vectors and blocks, strides and zeros of all kinds.
const ConvGeometry kGeometries[] = {
    geometry({31, 31}, 3, 64, {11, 11}, {4, 4}, {2, 2}), geometry({8, 8}, 3, 32, {5, 5}, {1, 1}, {2, 2}),
    geometry({9, 8}, 1, 20, {5, 5}, {1, 1}, {0, 0}),     geometry({6, 13}, 2, 10, {3, 3}, {2, 2}, {1, 1}),
    geometry({5, 7}, 4, 48, {2, 2}, {1, 1}, {0, 0}),     geometry({7, 10}, 3, 70, {3, 5}, {2, 1}, {1, 0}),
    geometry({1, 1}, 3, 3, {1, 1}, {1, 1}, {0, 0}),      geometry({9, 9}, 3, 17, {1, 1}, {4, 4}, {0, 0}),
    geometry({2, 2}, 1, 130, {3, 3}, {1, 1}, {3, 3}),    geometry({6, 1}, 3, 16, {1, 2}, {1, 3}, {0, 4}),
    geometry({3, 301}, 2, 64, {3, 3}, {1, 1}, {1, 1}),  // a row of dy in portions
};

// Sets the size of the team while it lives.
class Team {
 public:
  explicit Team(int threads) { set_team_size(threads); }
  ~Team() { set_team_size(before_); }

 private:
  int before_ = team_size();
};

// One convolution, its factors as the type of images holds them, and what the passes make of them.
class Problem {
 public:
  Problem(const ConvGeometry& g, int64_t rows, DType images)
      : reference{g, rows},
        x(rounded(rows * g.in_h * g.in_w * g.in_c, 1, images)),
        dy(rounded(rows * g.out_h * g.out_w * g.out_c, 2, images)),
        weight(rounded(g.out_c * g.kernel_h * g.kernel_w * g.in_c, 3, images)),
        bias(distinct_values(g.out_c, 1, 4)),
        shape_{g, rows, true, images} {}

  bool can_be_computed() const { return make_few_channel_conv(shape_, PassKind::kForward) != nullptr; }

  Values y(bool biased = true) const {
    const auto pass = make_few_channel_conv(shape_, PassKind::kForward);
    Tensor packed({static_cast<int64_t>(pass->packed_bytes())}, DType::kU8);
    Tensor y({static_cast<int64_t>(dy.size())}, shape_.images);
    fill(y, kNaN);
    pass->pack(weight.data(), packed.raw());
    pass->forward(on_cpu(x).raw(), packed.raw(), biased ? bias.data() : nullptr, y.raw());
    return download(y);
  }

  struct Gradients {
    Values weight, bias;
  };
  Gradients add_gradients(Gradients to, float beta, float bias_beta) const {
    make_few_channel_conv(shape_, PassKind::kBackwardWeights)
        ->backward_weights(on_cpu(x).raw(), on_cpu(dy).raw(), beta, to.weight.data(), bias_beta,
                           to.bias.empty() ? nullptr : to.bias.data());
    return to;
  }
  Gradients gradients() const { return add_gradients({Values(weight.size(), kNaN), Values(bias.size(), kNaN)}, 0, 0); }

  ConvReference reference;
  Values x, dy, weight, bias;

 private:
  static Values rounded(int64_t count, uint64_t seed, DType type) {
    return download(upload(distinct_values(count, 1, seed), {count}, Device::kCpu, type));
  }
  Tensor on_cpu(const Values& values) const {
    return upload(values, {static_cast<int64_t>(values.size())}, Device::kCpu, shape_.images);
  }

  ConvShape shape_;
};

class FewChannelConv : public testing::TestWithParam<DType> {
 protected:
  static Problem problem(const ConvGeometry& g, int64_t rows) { return Problem(g, rows, GetParam()); }
  // Of y, which is rounded to the type of images.
  static double tolerance() { return GetParam() == DType::kBF16 ? 0x1p-8 : 1e-6; }

  void SetUp() override {
    if (!problem(kGeometries[0], 1).can_be_computed()) GTEST_SKIP() << "this processor has no products of bf16";
  }
};
INSTANTIATE_TEST_SUITE_P(Types, FewChannelConv, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(FewChannelConv, MatchesTheDefinitionForEveryTeam) {
  for (const int threads : {1, 3}) {
    const Team team(threads);
    for (const ConvGeometry& g : kGeometries) {
      SCOPED_TRACE(concat(g.in_h, "x", g.in_w, "x", g.in_c, " to ", g.out_c, ", kernel ", g.kernel_h, "x", g.kernel_w));
      const Problem p = problem(g, 2);
      EXPECT_LT(relative_error(p.y(), p.reference.y(p.x, p.weight, p.bias)), tolerance());
      EXPECT_LT(relative_error(p.y(false), p.reference.y(p.x, p.weight, {})), tolerance());
      const Problem::Gradients found = p.gradients();
      EXPECT_LT(relative_error(found.weight, p.reference.dw(p.x, p.dy)), 1e-6);
      EXPECT_LT(relative_error(found.bias, p.reference.db(p.dy)), 1e-6);
    }
  }
}

TEST_P(FewChannelConv, AnOutputIsTheSameForEveryTeamAndBatch) {
  const Problem of_five = problem(kGeometries[0], 5), of_one = problem(kGeometries[0], 1);
  const Values y = of_five.y();
  {
    const Team team(4);
    EXPECT_EQ(of_five.y(), y);
  }
  Problem first = of_one;
  std::copy_n(of_five.x.begin(), first.x.size(), first.x.begin());
  EXPECT_EQ(first.y(), Values(y.begin(), y.begin() + static_cast<std::ptrdiff_t>(first.dy.size())));
}

TEST_P(FewChannelConv, GradientsAreAddedWhereBetaIsOne) {
  const Problem p = problem(kGeometries[1], 2);
  const Problem::Gradients once = p.gradients(), weight_twice = p.add_gradients(once, 1, 0),
                           bias_twice = p.add_gradients(once, 0, 1), no_bias = p.add_gradients({once.weight, {}}, 1, 0);
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

// Pairs of bf16 at the end of a run or a row have a half that belongs to nothing.
TEST_P(FewChannelConv, NaNIsWhereTheDefinitionHasItAndNowhereElse) {
  for (const ConvGeometry& g : kGeometries) {
    SCOPED_TRACE(concat(g.in_h, "x", g.in_w, "x", g.in_c, " to ", g.out_c, ", kernel ", g.kernel_h, "x", g.kernel_w));
    Problem p = problem(g, 2);
    for (int64_t h = 0; h < g.in_h; h += 3)
      for (int64_t w = h % 2; w < g.in_w; w += 7) p.x[static_cast<size_t>((h * g.in_w + w) * g.in_c)] = kNaN;
    EXPECT_EQ(numbers(p.y()), numbers(p.reference.y(p.x, p.weight, p.bias)));
    const Values weight = p.gradients().weight;
    const std::vector<bool> wanted = numbers(p.reference.dw(p.x, p.dy));
    EXPECT_EQ(numbers(weight), wanted);
  }
}

TEST_P(FewChannelConv, NaNInAGradientOfAnOutputStaysInThatOutput) {
  for (const ConvGeometry& g : kGeometries) {
    Problem p = problem(g, 2);
    const auto outputs = static_cast<size_t>(g.out_c), last = outputs - 1, per_output = p.weight.size() / outputs;
    p.dy[last] = kNaN;
    const Problem::Gradients found = p.gradients();
    for (size_t o = 0; o < outputs; ++o) {
      EXPECT_EQ(std::isnan(found.bias[o]), o == last) << o;
      EXPECT_EQ(std::isnan(found.weight[o * per_output]), o == last) << o;
    }
  }
}

TEST(FewChannelConvPasses, ComputesNoPassThatItDoesNotSuit) {
  ConvGeometry groups = kGeometries[4], channels = kGeometries[0];
  groups.groups = 2;
  channels.in_c = 5;
  for (const ConvGeometry& g : {groups, channels})
    for (const auto kind : {PassKind::kForward, PassKind::kBackwardWeights})
      EXPECT_EQ(make_few_channel_conv({g, 2, true, DType::kF32}, kind), nullptr);
  EXPECT_EQ(make_few_channel_conv({kGeometries[0], 2, true, DType::kF32}, PassKind::kBackwardData), nullptr);
}

}  // namespace
}  // namespace owt
