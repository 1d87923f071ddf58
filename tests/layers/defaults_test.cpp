// What keys of layers are where they are left out, as docs/models.md has it.
#include <gtest/gtest.h>

#include "layers/conv.h"
#include "tests/support/harness.h"

namespace owt::defaults_test {
namespace {

TEST(LayerDefaults, OfConvolutionsAreOneWindowAtATimeWithoutPadding) {
  const Shape in{2, 9, 7, 4};
  const auto conv = layer_from("type='conv' out=6 kernel=[3,2]", in);
  const ConvGeometry g = conv_geometry(*conv, in).value();
  EXPECT_EQ(conv->out_shape(in), (Shape{2, 7, 6, 6}));
  EXPECT_EQ(g.stride_h, 1);
  EXPECT_EQ(g.stride_w, 1);
  EXPECT_EQ(g.top + g.left + g.bottom + g.right, 0);
  EXPECT_EQ(g.groups, 1);
  EXPECT_FALSE(g.dilated());
  // Rounded down: the eighth row is seen by no window.
  EXPECT_EQ(layer_from("type='conv' out=6 kernel=2 stride=3", in)->out_shape(in), (Shape{2, 3, 2, 6}));
}

TEST(LayerDefaults, OfPoolsAreWindowsSideBySide) {
  const Shape in{2, 9, 7, 4};
  for (const std::string type : {"max_pool", "avg_pool"}) {
    const auto pool = layer_from("type='" + type + "' kernel=2", in);
    EXPECT_EQ(pool->out_shape(in), (Shape{2, 4, 3, 4})) << type;
    const Described described = pool->describe(in);
    EXPECT_EQ(described.integers("stride"), (std::vector<int64_t>{2, 2}));
    EXPECT_EQ(described.integers("pad"), std::vector<int64_t>(4, 0));  // not rounded up either
    if (type == "avg_pool") {
      EXPECT_EQ(described.integers("zeros"), std::vector<int64_t>(4, 0));
    }
  }
}

TEST(LayerDefaults, OfNormalisationsAreThoseOfTheirPapers) {
  const Shape in{1, 2, 2, 8};
  const Described lrn = layer_from("type='lrn'", in)->describe(in);
  EXPECT_EQ(lrn.integer("size"), 5);
  EXPECT_EQ(lrn.number("alpha"), double{1e-4f});
  EXPECT_EQ(lrn.number("beta"), 0.75);
  EXPECT_EQ(lrn.number("k"), 1);
  EXPECT_EQ(layer_from("type='layer_norm'", in)->describe(in).number("eps"), 1e-5);
  const auto norm = layer_from("type='batch_norm'", in);
  EXPECT_EQ(norm->describe(in).number("eps"), 1e-5);
  EXPECT_EQ(norm->describe(in).number("momentum"), 0.1);
  for (const Param* param : norm->params())
    EXPECT_EQ(param->lr_mult, param->role == ParamRole::kAverage ? 0.1 : 1) << param->name;
}

TEST(LayerDefaults, WeightsAreDrawnByXavierAndBiasesAreZeroAndLearnEqually) {
  for (const std::string keys : {"type='conv' out=6 kernel=3 groups=2", "type='dense' out=6"}) {
    const auto layer = layer_from(keys, {1, 5, 5, 4});
    ASSERT_EQ(layer->params().size(), 2u) << keys;
    const Param &weight = *layer->params()[0], &bias = *layer->params()[1];
    EXPECT_EQ(weight.init.type, Initializer::Type::kXavier);
    EXPECT_EQ(bias.init.type, Initializer::Type::kConstant);
    EXPECT_EQ(bias.init.value, 0);
    for (const Param* param : layer->params()) {
      EXPECT_EQ(param->lr_mult, 1);
      EXPECT_EQ(param->decay_mult, 1);
    }
    const bool conv = keys.find("conv") != std::string::npos;
    EXPECT_EQ(weight.fan_in, conv ? 3 * 3 * 2 : 100);
    EXPECT_EQ(weight.fan_out, conv ? 3 * 3 * 3 : 6);
  }
  EXPECT_EQ(layer_from("type='dense' out=6 bias=false", {1, 5})->params().size(), 1u);
}

}  // namespace
}  // namespace owt::defaults_test
