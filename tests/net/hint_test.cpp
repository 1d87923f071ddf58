#include "src/net/hint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/support/check_layer.h"
#include "tests/support/harness.h"

namespace owt::hint_test {
namespace {

using testing::DoubleNear;
using testing::FloatNear;
using testing::Pointwise;

const Shape kImages{3, 2, 4, 5}, kProjected{3, 2, 4, 6};
constexpr double kWeight = 0.7;

std::unique_ptr<Layer> layer_of(int64_t channels) {
  const std::array types{hint_type()};
  return make_layer(hint_table(channels, kWeight), kImages.row(), {}, {}, types);
}

// The loss of the definition, without the layers after it; filters: 6 x 5, then 6 biases.
double loss_of(const std::vector<float>& x, const std::vector<float>& teacher, const std::vector<double>& filters,
               int64_t step_rows) {
  double loss = 0;
  for (size_t position = 0; position < teacher.size() / 6; ++position)
    for (size_t out = 0; out < 6; ++out) {
      double value = filters[30 + out];
      for (size_t in = 0; in < 5; ++in) value += filters[out * 5 + in] * double{x[position * 5 + in]};
      const double difference = value - double{teacher[position * 6 + out]};
      loss += kWeight * difference * difference / 48 / static_cast<double>(step_rows);
    }
  return loss;
}

using HintTest = DeviceTest;
INSTANTIATE_TEST_SUITE_P(Devices, HintTest, testing::ValuesIn(devices()), device_name);

TEST_P(HintTest, GradientsAreThoseOfDifferences) {
  Harness hint(layer_of(6), kImages, device());
  const std::vector<float> x = distinct_values(120, 2, 1), dy = distinct_values(120, 1, 2),
                           teacher = distinct_values(144, 2, 3), weight = distinct_values(30, 1, 4),
                           bias = distinct_values(6, 1, 5);
  hint.set_param("project.weight", weight);
  hint.set_param("project.bias", bias);
  hint.pass().hint = upload(teacher, kProjected, device());
  hint.pass().step_rows = 4;
  EXPECT_EQ(hint.forward(x), x);
  std::vector<double> filters(weight.begin(), weight.end());
  filters.insert(filters.end(), bias.begin(), bias.end());
  constexpr double kStep = 1e-3;
  const std::vector<float> dx = hint.backward(dy);
  for (size_t i = 0; i < x.size(); i += 7) {
    std::vector<float> high = x, low = x;
    high[i] += static_cast<float>(kStep), low[i] -= static_cast<float>(kStep);
    const double slope =
        (loss_of(high, teacher, filters, 4) - loss_of(low, teacher, filters, 4)) / (double{high[i]} - double{low[i]});
    EXPECT_NEAR(double{dx[i]}, double{dy[i]} + slope, 1e-5) << i;
  }
  std::vector<float> gradient = hint.grad("project.weight");
  const std::vector<float> of_bias = hint.grad("project.bias");
  gradient.insert(gradient.end(), of_bias.begin(), of_bias.end());
  std::vector<double> wanted;
  for (size_t i = 0; i < filters.size(); ++i) {
    std::vector<double> high = filters, low = filters;
    high[i] += kStep, low[i] -= kStep;
    wanted.push_back((loss_of(x, teacher, high, 4) - loss_of(x, teacher, low, 4)) / (2 * kStep));
  }
  EXPECT_THAT(gradient, Pointwise(DoubleNear(1e-5), wanted));
}

TEST_P(HintTest, AnInputWithoutGradientIsAllowed) {
  Harness hint(layer_of(6), kImages, device());
  hint.pass().hint = upload(std::vector<float>(144, 1), kProjected, device());
  hint.forward(distinct_values(120, 2, 1));
  hint.backward_without_dx(std::vector<float>(120, 1));
  EXPECT_NE(hint.grad("project.bias"), std::vector<float>(6, 0));
}

TEST_P(HintTest, InBf16TheGradientsAreRoundedTheSame) {
  Compute on = device();
  on.precision = Precision::kBf16;
  Harness rounded(layer_of(6), kImages, on), hint(layer_of(6), kImages, device());
  const std::vector<float> x = distinct_values(120, 2, 1), dy = distinct_values(120, 1, 2),
                           teacher = distinct_values(144, 2, 3);
  rounded.pass().hint = upload(teacher, kProjected, device(), DType::kBF16);
  hint.pass().hint = upload(teacher, kProjected, device());
  rounded.forward(x), hint.forward(x);
  EXPECT_THAT(rounded.backward(dy), Pointwise(FloatNear(0.02f), hint.backward(dy)));
}

TEST_P(HintTest, TheTeachersLayerGivesItsInputAwayInEvaluation) {
  Harness tap(layer_of(0), kImages, device());
  const std::vector<float> x = distinct_values(120, 2, 1);
  EXPECT_EQ(tap.evaluate(x), x) << "and needs no reader";
  tap.pass().hint = upload(std::vector<float>(120, 0), kImages, device());
  EXPECT_EQ(tap.evaluate(x), x);
  EXPECT_EQ(download(tap.pass().hint), x);
}

}  // namespace
}  // namespace owt::hint_test
