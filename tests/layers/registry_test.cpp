#include "layers/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "src/system/check.h"
#include "tests/support/message_of.h"

namespace owt::registry_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kModel = R"(
[[layer]]
name = "pool1"
type = "max_pool"
kernel = 3
[[layer]]
name = "pool2"
type = "max_pol"
kernel = 3
[[layer]]
name = "pool3"
type = "max_pool"
kernal = 3
[[layer]]
name = "pool4"
type = "max_pool"
[[layer]]
name = "pool5"
type = "max_pool"
kernel = 40
[[layer]]
name = "pool6"
type = "max_pool"
kernel = 3
strides = 2
)";

auto making(size_t index) {
  return [index] { make_layer(Config::text(kModel, "models/x.toml").tables("layer").at(index), Shape{32, 32, 3}); };
}

TEST(Registry, MakesTheLayerOfATable) {
  const auto layer = make_layer(Config::text(kModel, "models/x.toml").tables("layer").at(0), Shape{32, 32, 3});
  EXPECT_EQ(layer->name(), "pool1");
  EXPECT_EQ(layer->type(), "max_pool");
  EXPECT_EQ(layer->out_shape({5, 32, 32, 3}), (Shape{5, 10, 10, 3}));
}

TEST(Registry, UnknownTypeNamesFileLineLayerAndTheNearestType) {
  EXPECT_THAT(message_of(making(1)), AllOf(StartsWith("models/x.toml:8: [[layer]] pool2:"), HasSubstr("'max_pol'"),
                                           HasSubstr("did you mean 'max_pool'?")));
}

TEST(Registry, MissingKeyIsNamedWithFileAndLayer) {
  EXPECT_THAT(message_of(making(3)),
              AllOf(StartsWith("models/x.toml:"), HasSubstr("[[layer]] pool4"), HasSubstr("key 'kernel' is missing")));
}

TEST(Registry, MisspeltKeyNamesFileLineLayerAndTheNearestKey) {
  EXPECT_THAT(message_of(making(5)),
              AllOf(StartsWith("models/x.toml:25: [[layer]] pool6: no key 'strides' (keys of max_pool: "),
                    HasSubstr("did you mean 'stride'?")));
}

TEST(Registry, MisspeltRequiredKeyIsNamedWithItsLine) {
  EXPECT_THAT(message_of(making(2)),
              AllOf(StartsWith("models/x.toml:13: [[layer]] pool3: "), HasSubstr("key 'kernel' is missing"),
                    HasSubstr("did you mean it by 'kernal'?")));
}

TEST(Registry, ImpossibleGeometryNamesFileLineLayerAndInput) {
  EXPECT_THAT(message_of(making(4)),
              AllOf(StartsWith("models/x.toml:19: [[layer]] pool5:"), HasSubstr("32x32x3"), HasSubstr("40x40")));
}

TEST(Registry, ListsEveryTypeOnce) {
  std::set<std::string> types;
  for (const LayerType& type : layer_types()) EXPECT_TRUE(types.insert(type.type).second) << type.type;
  EXPECT_THAT(types, testing::IsSupersetOf({"avg_pool", "batch_norm", "conv", "dense", "dropout", "global_avg_pool",
                                            "lrn", "max_pool", "relu"}));
}

TEST(Registry, LayersThatNoMemoryHoldsAreRefused) {
  const auto make = [](const std::string& keys, const Shape& row) {
    return [=] { make_layer(Config::text("name = 'big'\n" + keys, "big.toml"), row); };
  };
  const Shape image{1 << 16, 1, 1};
  // 2^24 outputs of 2^16 inputs are 2^40 weights.
  EXPECT_NO_THROW(make("type = 'dense'\nout = 16777216", image)());
  EXPECT_THAT(message_of(make("type = 'dense'\nout = 16777216", {1 << 16, 2, 1})),
              AllOf(HasSubstr("big"), HasSubstr("larger than any memory")));
  // Labels are int32, and loops need some room above.
  EXPECT_NO_THROW(make("type = 'dense'\nout = 2147418112", {1, 1, 1})());
  EXPECT_THAT(message_of(make("type = 'dense'\nout = 2147418113", {1, 1, 1})), HasSubstr("2147418112"));
  // 2^24 channels of 2^8 pixels are 2^32 values.
  EXPECT_NO_THROW(make("type = 'conv'\nkernel = 1\nout = 16777216", {1 << 8, 1, 1})());
  EXPECT_THAT(message_of(make("type = 'conv'\nkernel = 1\nout = 16777216", {1 << 8, 2, 1})),
              HasSubstr("it would give 8589934592 values for each image"));
}

}  // namespace
}  // namespace owt::registry_test
