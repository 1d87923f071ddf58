#include "layers/base/description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/harness.h"
#include "tests/support/message_of.h"

namespace owt::description_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Description, OfAConvolutionRoundedUpHasTheZerosThatFollowTheImage) {
  const Shape in{2, 8, 9, 4};
  const auto conv = layer_from("type='conv' out=6 kernel=[3,2] stride=[2,3] pad=1 groups=2 round='up'", in);
  const Described described = conv->describe(in);
  EXPECT_EQ(described.op, "conv");
  EXPECT_THAT(described.integers("kernel"), ElementsAre(3, 2));
  EXPECT_THAT(described.integers("stride"), ElementsAre(2, 3));
  EXPECT_THAT(described.integers("pad"), ElementsAre(1, 1, 2, 1));
  EXPECT_EQ(described.integer("groups"), 2);
  EXPECT_EQ(described.params, conv->params());
}

TEST(Description, OfAConvolutionHasADilationIfItIsDilated) {
  const Shape in{2, 8, 9, 4};
  const Described dilated =
      layer_from("type='conv' out=6 kernel=3 dilation=[1,2] round='up' stride=3", in)->describe(in);
  EXPECT_THAT(dilated.integers("dilation"), ElementsAre(1, 2));
  EXPECT_THAT(dilated.integers("pad"), ElementsAre(0, 0, 1, 2));
  const auto plain = layer_from("type='conv' out=6 kernel=3", in);
  EXPECT_THAT(message_of([&] { plain->describe(in).integers("dilation"); }), HasSubstr("has no 'dilation'"));
}

TEST(Description, OfPoolsTellsPaddingThatCountsFromWhatLiesBeyond) {
  const Shape in{1, 8, 9, 1};
  const std::string keys = " kernel=3 stride=2 pad=1 round='up'";
  const Described max = layer_from("type='max_pool'" + keys, in)->describe(in);
  EXPECT_THAT(max.integers("pad"), ElementsAre(1, 1, 2, 1));
  const Described mean = layer_from("type='avg_pool'" + keys, in)->describe(in);
  EXPECT_THAT(mean.integers("zeros"), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(mean.integers("pad"), ElementsAre(0, 0, 1, 0));
}

TEST(Description, OfACompositeLeavesItsLayersToDescribeThemselves) {
  const Shape in{1, 4, 4, 2};
  const auto block = layer_from("name='block' type='residual' body=[{name='a',type='conv',out=2,kernel=1}]", in);
  EXPECT_EQ(block->describe(in).integer("relu"), 1);
  EXPECT_TRUE(block->describe(in).params.empty());
  ASSERT_EQ(block->inner(in).size(), 1u);
  EXPECT_EQ(block->inner(in)[0].layer->describe(in).params, block->params());
}

TEST(Description, SaysWhichAttributeIsMissingOrOfAnotherType) {
  const Described described{"lrn", {{"size", int64_t{5}}}, {}};
  EXPECT_THAT(message_of([&] { described.number("size"); }), HasSubstr("the description of lrn has no 'size'"));
  EXPECT_THAT(message_of([&] { described.integer("width"); }), HasSubstr("the description of lrn has no 'width'"));
}

}  // namespace
}  // namespace owt::description_test
