#include "src/net/layer_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tests/support/models.h"

namespace owt::layer_names_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LayerNames, AreForALayerOrForTheLayersThatItIsMadeOf) {
  EXPECT_TRUE(names_layer("conv1", "conv1"));
  EXPECT_FALSE(names_layer("conv", "conv1"));
  EXPECT_TRUE(names_layer("conv?", "conv1"));
  EXPECT_TRUE(names_layer("layer1", "layer1.0.conv1"));
  EXPECT_TRUE(names_layer("layer1.0", "layer1.0.conv1"));
  EXPECT_TRUE(names_layer("*.bn[12]", "layer1.0.bn2"));
  EXPECT_FALSE(names_layer("layer1.0.conv1.weight", "layer1.0.conv1"));
  EXPECT_FALSE(names_layer("layer1.0", "layer1.01"));
}

TEST(LayerNames, AreFoundInOrderAndAnUnknownOneIsAnErrorWithANearName) {
  const std::vector<std::string> layers{"conv1", "conv2", "fc"};
  EXPECT_THAT(layers_named("--except", std::vector<std::string>{"fc", "conv*"}, layers),
              ElementsAre("conv1", "conv2", "fc"));
  EXPECT_THAT(
      message_of([&] { layers_named("--except", std::vector<std::string>{"conf1"}, layers); }),
      HasSubstr(
          "--except conf1: no layer with weights is called that; there are conv1, conv2, fc; did you mean 'conv1'?"));
}

TEST(FrozenLayersOfAModel, HaveParametersThatDoNotLearn) {
  Model model = model_of("[1, 2, 2]", 4, R"(
  { name = "conv", type = "conv", out = 3, kernel = 1 },
  { name = "bn", type = "batch_norm" },
  { name = "block", type = "residual", body = [{ name = "a", type = "conv", out = 3, kernel = 1, bias = false },
                                               { name = "b", type = "conv", out = 3, kernel = 1, bias = false }] },
  { name = "fc", type = "dense", out = 4, bias = false })");
  model.frozen = {"bn", "*.a"};
  std::vector<ParamRole> roles;
  for (const auto& layer : whole_layers(model))
    for (const Param* param : layer->params()) roles.push_back(param->role);
  constexpr auto kTrained = ParamRole::kTrained, kFrozen = ParamRole::kFrozen, kMean = ParamRole::kFrozenAverage;
  EXPECT_THAT(roles, ElementsAre(kTrained, kTrained, kFrozen, kFrozen, kMean, kMean, kFrozen, kTrained, kTrained));
}

}  // namespace
}  // namespace owt::layer_names_test
