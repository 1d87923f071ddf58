// Products and convolutions whose bits do not depend on how their rows and columns are divided, nor on the threads.
#include <gtest/gtest.h>

#include <cmath>

#include "layers/conv_cpu/canonical_conv.h"
#include "layers/conv_cpu/canonical_product.h"
#include "layers/conv_cpu/conv_trial.h"
#include "src/core/canonical.h"
#include "tests/support/check_layer.h"
#include "tests/support/conv_problem.h"
#include "tests/support/harness.h"
#include "tests/support/team_size.h"

namespace owt::canonical_layers_test {
namespace {

// rows x terms, and columns x terms.
struct Product {
  int64_t rows, columns, terms;

  std::vector<int64_t> ends(int64_t block) const {
    std::vector<int64_t> all;
    for (int64_t begin = 0; begin < terms; begin += block) all.push_back(std::min(begin + block, terms));
    return all;
  }
};

// Parts and whole tiles of every size; more rows and terms than a task has.
constexpr Product kProducts[] = {{1, 1, 1},     {3, 5, 7},     {8, 48, 16},    {13, 50, 33},
                                 {200, 97, 70}, {9, 130, 600}, {400, 20, 1100}};

// a: rows x terms and b: terms x columns, or one of them transposed.
struct Factors {
  Factors(const Product& p, bool a_transposed, bool b_transposed)
      : a(distinct_values(p.rows * p.terms, 1, 1)),
        b(distinct_values(p.columns * p.terms, 1, 2)),
        of_a{a.data(), a_transposed ? 1 : p.terms, a_transposed ? p.rows : 1},
        of_b{b.data(), b_transposed ? p.terms : 1, b_transposed ? 1 : p.columns} {}

  std::vector<float> a, b;
  TermsOf of_a, of_b;
};

std::vector<double> sums_of(const Product& p, const Factors& f, int64_t block) {
  std::vector<double> sums(static_cast<size_t>(p.rows * p.columns), NAN);
  canonical_product({p.rows, p.columns, p.ends(block)}, f.of_a, f.of_b, kCanonicalUnit, 0, sums.data());
  return sums;
}

TEST(CanonicalProduct, IsTheProductInDoublePrecision) {
  for (const Product& p : kProducts)
    for (const bool a_transposed : {false, true})
      for (const bool b_transposed : {false, true}) {
        const Factors f(p, a_transposed, b_transposed);
        const std::vector<double> found = sums_of(p, f, 16);
        for (int64_t r = 0; r < p.rows; ++r)
          for (int64_t c = 0; c < p.columns; ++c) {
            double sum = 0, size = 0;
            for (int64_t t = 0; t < p.terms; ++t) {
              const double term = static_cast<double>(f.of_a.values[r * f.of_a.of_element + t * f.of_a.of_term]) *
                                  static_cast<double>(f.of_b.values[c * f.of_b.of_element + t * f.of_b.of_term]);
              sum += term;
              size += std::abs(term);
            }
            ASSERT_NEAR(found[static_cast<size_t>(r * p.columns + c)], sum, 1e-6 * size + 1e-12) << r << ' ' << c;
          }
      }
}

TEST(CanonicalProduct, AddsToWhatThereIsOrOverwritesIt) {
  const Product p{9, 50, 33};
  const Factors f(p, false, false);
  const std::vector<double> once = sums_of(p, f, 8);
  std::vector<double> twice = once;
  canonical_product({p.rows, p.columns, p.ends(8)}, f.of_a, f.of_b, kCanonicalUnit, 1, twice.data());
  for (size_t i = 0; i < once.size(); ++i) ASSERT_EQ(twice[i], 2 * once[i]);
}

TEST(CanonicalProduct, RoundsOnceAndAddsTheBias) {
  const Product p{9, 50, 33};
  const Factors f(p, false, true);
  const std::vector<double> sums = sums_of(p, f, 8);
  const std::vector<float> bias = distinct_values(p.columns, 1, 3);
  std::vector<float> plain(sums.size()), biased(sums.size());
  canonical_product({p.rows, p.columns, p.ends(8)}, f.of_a, f.of_b, kCanonicalUnit, nullptr, plain.data());
  canonical_product({p.rows, p.columns, p.ends(8)}, f.of_a, f.of_b, kCanonicalUnit, bias.data(), biased.data());
  for (size_t i = 0; i < sums.size(); ++i) {
    ASSERT_EQ(plain[i], static_cast<float>(sums[i]));
    ASSERT_EQ(biased[i], plain[i] + bias[i % bias.size()]);
  }
}

// The terms of two parts, in whole blocks, as two ranks have them.
TEST(CanonicalProduct, PartsOfTheTermsAddUpToTheBitsOfTheWhole) {
  for (const Product& p : kProducts) {
    const int64_t block = 8, first = p.terms / 2 / block * block;
    if (first == 0) continue;
    const Factors f(p, false, false);
    const Product head{p.rows, p.columns, first}, tail{p.rows, p.columns, p.terms - first};
    std::vector<double> sums(static_cast<size_t>(p.rows * p.columns));
    canonical_product({p.rows, p.columns, tail.ends(block)}, {f.of_a.values + first, p.terms, 1},
                      {f.of_b.values + first * p.columns, 1, p.columns}, kCanonicalUnit, 0, sums.data());
    canonical_product({p.rows, p.columns, head.ends(block)}, f.of_a, f.of_b, kCanonicalUnit, 1, sums.data());
    ASSERT_EQ(sums, sums_of(p, f, block));
  }
}

TEST(CanonicalProduct, ARowAloneHasTheBitsThatItHasAmongOthers) {
  for (const Product& p : kProducts) {
    const Factors f(p, false, true);
    const std::vector<double> all = sums_of(p, f, 8);
    const int64_t r = p.rows / 2, c = p.columns / 2;
    std::vector<double> one(1);
    canonical_product({1, 1, p.ends(8)}, {f.of_a.values + r * p.terms, p.terms, 1},
                      {f.of_b.values + c * p.terms, p.terms, 1}, kCanonicalUnit, 0, one.data());
    ASSERT_EQ(one[0], all[static_cast<size_t>(r * p.columns + c)]);
  }
}

TEST(CanonicalProduct, DoesNotDependOnTheThreads) {
  for (const Product& p : kProducts) {
    const Factors f(p, true, false);
    const TeamSize three(3);
    const std::vector<double> of_three = sums_of(p, f, 8);
    const TeamSize one(1);
    ASSERT_EQ(sums_of(p, f, 8), of_three);
  }
}

// So small values that nearly all sums have more digits than the unit keeps.
TEST(CanonicalDense, SumsThatRanksAddAreMultiplesOfTheUnit) {
  constexpr int64_t kRows = 6, kIn = 40, kOut = 48;
  const auto small = [](int64_t count, uint64_t seed) {
    std::vector<float> values = distinct_values(count, 1, seed);
    for (float& value : values) value *= 1e-4f;
    return values;
  };
  auto layer = layer_from("type='dense' out=48", {kRows, kIn});
  Param &weight = *layer->params()[0], &bias = *layer->params()[1];
  weight.grad_type = bias.grad_type = DType::kF64;
  Compute on;
  on.canonical_rows = 2;
  Harness dense(std::move(layer), {kRows, kIn}, on);
  dense.forward(small(kRows * kIn, 1));
  dense.backward(small(kRows * kOut, 2));
  for (const Param* param : {&weight, &bias})
    for (int64_t i = 0; i < param->grad.elements(); ++i) {
      const double gradient = param->grad.data<double>()[i];
      ASSERT_EQ(gradient, canonical(gradient)) << param->name;
    }
  const std::vector<float> x = small(kRows * kIn, 1), dy = small(kRows * kOut, 2);
  double sum = 0;
  for (int64_t row = 0; row < kRows; ++row) sum += static_cast<double>(dy[static_cast<size_t>(row * kOut)]);
  EXPECT_NEAR(bias.grad.data<double>()[0], sum, kRows * kCanonicalUnit);

  // The gradient of the input, from the outputs of two ranks.
  DevicePass pass(Device::kCpu, kRows);
  const Tensor inputs = upload(x, {kRows, kIn}, Device::kCpu);
  Tensor dx({kRows, kIn}, DType::kF64);
  const double unit = canonical_input_unit(pass.pass().step_rows);
  const auto op = dense.layer().bind({kRows, kIn}, on);
  op->backward_data(pass.pass(), inputs, {}, upload(dy, {kRows, kOut}, Device::kCpu), &dx);
  for (int64_t i = 0; i < dx.elements(); ++i) ASSERT_EQ(dx.data<double>()[i], canonical(dx.data<double>()[i], unit));
}

struct ConvSums {
  std::vector<float> y, dx;
  std::vector<double> weight, bias;
  bool operator==(const ConvSums&) const = default;
};

// Rows `rows` of the problem, in blocks of `block` rows. Gradients are added to the gradients of `to`.
ConvSums conv_sums(const ConvProblem& problem, ConvAlgorithm algorithm, const Slice& rows, ConvSums to = {},
                   int64_t block = 2) {
  const ConvGeometry& g = problem.shape.geometry;
  const int64_t in = g.in_h * g.in_w * g.in_c, out = g.out_h * g.out_w * g.out_c;
  ConvShape shape = problem.shape;
  shape.rows = rows.size();
  const auto pass = [&](PassKind kind) { return make_canonical_conv(shape, kind, algorithm, block); };
  const auto packed = [&](const ConvPass& of) {
    Tensor weights({static_cast<int64_t>(of.packed_bytes())}, DType::kU8);
    of.pack(problem.weight.data(), weights.raw());
    return weights;
  };
  const float *x = problem.x.data() + rows.begin * in, *dy = problem.dy.data() + rows.begin * out;
  const size_t first_y = to.y.size(), first_dx = to.dx.size();
  to.y.resize(first_y + static_cast<size_t>(rows.size() * out));
  to.dx.resize(first_dx + static_cast<size_t>(rows.size() * in));
  const auto forward = pass(PassKind::kForward), backward = pass(PassKind::kBackwardData);
  forward->forward(x, packed(*forward).raw(), problem.bias.data(), to.y.data() + first_y);
  backward->backward_data(dy, packed(*backward).raw(), to.dx.data() + first_dx);
  const float beta = to.weight.empty() ? 0 : 1;
  to.weight.resize(problem.weight.size(), NAN);
  to.bias.resize(problem.bias.size(), NAN);
  pass(PassKind::kBackwardWeights)->canonical_gradients(x, dy, beta, to.weight.data(), beta, to.bias.data());
  return to;
}

// Every algorithm that can compute all passes. Seven rows: three blocks of two, and one of one.
class CanonicalConv : public testing::Test {
 protected:
  static constexpr int64_t kRows = 7;
  template <class Check>
  void each(const Check& check) {
    for (const auto& [keys, image] :
         {std::pair{"out=8 kernel=3 pad=1", Shape{9, 8, 16}}, std::pair{"out=16 kernel=5 stride=2", Shape{11, 12, 3}},
          std::pair{"out=16 kernel=3 pad=1 groups=16", Shape{7, 7, 16}}}) {
      const ConvProblem problem(geometry_of(keys, image), kRows, DType::kF32);
      for (const ConvAlgorithm algorithm : conv_candidates(problem.shape, PassKind::kBackwardData)) {
        SCOPED_TRACE(concat(problem.name(), ", ", name_of(algorithm)));
        check(problem, algorithm);
      }
    }
  }
};

TEST_F(CanonicalConv, IsTheConvolution) {
  each([](const ConvProblem& problem, ConvAlgorithm algorithm) {
    const ConvSums all = conv_sums(problem, algorithm, {0, kRows});
    EXPECT_LT(relative_error(all.y, problem.reference.y(problem.x, problem.weight, problem.bias)), 1e-5);
    EXPECT_LT(relative_error(all.dx, problem.reference.dx(problem.dy, problem.weight)), 1e-5);
    const std::vector<float> weight(all.weight.begin(), all.weight.end()), bias(all.bias.begin(), all.bias.end());
    EXPECT_LT(relative_error(weight, problem.reference.dw(problem.x, problem.dy)), 1e-5);
    EXPECT_LT(relative_error(bias, problem.reference.db(problem.dy)), 1e-5);
  });
}

// A block of 6 rows, and all rows in one block of 7: passes that may pack the weights in different ways.
TEST_F(CanonicalConv, ALastBlockMayBeLargerThanTheOthers) {
  each([](const ConvProblem& problem, ConvAlgorithm algorithm) {
    for (const int64_t block : {3, 6}) {
      const ConvSums all = conv_sums(problem, algorithm, {0, kRows}, {}, block);
      EXPECT_LT(relative_error(all.y, problem.reference.y(problem.x, problem.weight, problem.bias)), 1e-5);
      EXPECT_LT(relative_error(all.dx, problem.reference.dx(problem.dy, problem.weight)), 1e-5);
    }
  });
}

TEST_F(CanonicalConv, PartsOfTheRowsHaveTheBitsOfTheWhole) {
  each([](const ConvProblem& problem, ConvAlgorithm algorithm) {
    const ConvSums all = conv_sums(problem, algorithm, {0, kRows});
    for (const int64_t cut : {2, 4, 6})
      EXPECT_EQ(conv_sums(problem, algorithm, {cut, kRows}, conv_sums(problem, algorithm, {0, cut})), all) << cut;
  });
}

TEST_F(CanonicalConv, DoesNotDependOnTheThreads) {
  each([](const ConvProblem& problem, ConvAlgorithm algorithm) {
    const TeamSize three(3);
    const ConvSums of_three = conv_sums(problem, algorithm, {0, kRows});
    const TeamSize one(1);
    EXPECT_EQ(conv_sums(problem, algorithm, {0, kRows}), of_three);
  });
}

}  // namespace
}  // namespace owt::canonical_layers_test
