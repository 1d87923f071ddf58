#include "src/net/scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/net/layer_types.h"
#include "src/system/check.h"
#include "tests/support/check_layer.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"
#include "tests/support/using_conv_algorithm.h"

namespace owt::scale_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<Layer> scale_from(const std::string& body, const Shape& in) {
  const std::string toml = "name = 'se'\ntype = 'scale'\nbody = [" + body + "]\n";
  return make_layer(Config::text(toml, "scale.toml"), in.row(), {}, {}, net_layer_types());
}

class ScaleTest : public DeviceTest {
 protected:
  Harness harness(const std::string& body, const Shape& in) const { return {scale_from(body, in), in, device()}; }
  void check(const std::string& body, const Shape& in, LayerCheck options = {}) const {
    SCOPED_TRACE(body);
    options.rounds_once = false;
    const UsingConvAlgorithm direct(ConvAlgorithm::kDirect);
    check_layer([&](std::optional<Slice>) { return scale_from(body, in); }, in, device(), options);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, ScaleTest, ::testing::ValuesIn(devices()), device_name);

std::string excitation(int64_t channels) {
  return concat(
      "{ name = 'pool', type = 'global_avg_pool' }, { name = 'fc1', type = 'dense', out = 3 }, "
      "{ name = 'act', type = 'activation', kind = 'silu' }, { name = 'fc2', type = 'dense', out = ",
      channels, " }, { name = 'gate', type = 'activation', kind = 'sigmoid' }");
}

TEST_P(ScaleTest, KeepsTheLayerContract) {
  check(excitation(6), {3, 5, 4, 6});
  check(excitation(8), {2, 4, 4, 8});
  check(excitation(520), {2, 3, 1, 520}, {.samples = 20});  // more channels than a block of the sums has
  check("{ name = 'pool', type = 'avg_pool', kernel = 4 }, { name = 'conv', type = 'conv', out = 5, kernel = 1 }",
        {3, 4, 4, 5});
  check("{ name = 'fc', type = 'dense', out = 7 }", {4, 7});
  check(
      "{ name = 'inner', type = 'scale', body = [{ name = 'pool', type = 'global_avg_pool' }] }, "
      "{ name = 'pool', type = 'global_avg_pool' }",
      {2, 3, 3, 4}, {.step = 5e-3, .tolerance = 3e-2});
}

// The means of the two channels are 2 and -1; y = x * mean, dx = dy * mean + (sum of dy * x) / positions.
TEST_P(ScaleTest, MultipliesEveryChannelByItsFactor) {
  Harness scale = harness("{ name = 'pool', type = 'global_avg_pool' }", {1, 1, 2, 2});
  EXPECT_THAT(scale.forward({1, 2, 3, -4}), ElementsAre(2, -2, 6, 4));
  EXPECT_THAT(scale.backward({1, 0, 2, 1}), ElementsAre(2 + 3.5, 0 - 2, 4 + 3.5, -1 - 2));
}

TEST_P(ScaleTest, EvaluatesAsItTrains) {
  const Shape in{3, 4, 4, 6};
  Harness scale = harness(excitation(6), in);
  const std::vector<float> x = distinct_values(in.elements(), 2, 11), y = scale.forward(x);
  EXPECT_EQ(scale.evaluate(x), y);
}

TEST(Scale, NamesParametersByLayerAndInnerLayer) {
  const auto scale = scale_from(excitation(4), {1, 2, 2, 4});
  std::vector<std::string> names;
  for (const Param* param : scale->params()) names.push_back(param->name);
  EXPECT_THAT(names, ElementsAre("se.fc1.weight", "se.fc1.bias", "se.fc2.weight", "se.fc2.bias"));
}

// One product for each element, and the body: the pool and 2 * (4 * 3 + 3 * 4), sigmoid and silu.
TEST(Scale, CountsTheProductAndItsBody) {
  const auto scale = scale_from(excitation(4), {1, 2, 2, 4});
  EXPECT_EQ(scale->flops({2, 2, 2, 4}), 2 * (16 + 16 + 48 + 3 * 4 + 4 * 3));
}

TEST(Scale, SaysWhatIsWrong) {
  const auto error = [](const std::string& body, const Shape& in) { return message_of([&] { scale_from(body, in); }); };
  EXPECT_THAT(error("", {1, 4, 4, 3}), HasSubstr("'body' is empty"));
  EXPECT_THAT(error(excitation(4), {1, 4, 4, 3}), HasSubstr("a factor for each of the 3 channels"));
  EXPECT_THAT(error("{ name = 'a', type = 'relu' }", {1, 4, 4, 3}), HasSubstr("the body's output is 4x4x3"));
  EXPECT_THAT(error("{ name = 'a', type = 'dense', out = 2 }", {1, 3}), HasSubstr("each of the 3 features"));
  EXPECT_THAT(error("{ name = 'a', type = 'relu' }, { name = 'a', type = 'global_avg_pool' }", {1, 4, 4, 3}),
              HasSubstr("two layers called 'se.a'"));
}

}  // namespace
}  // namespace owt::scale_test
