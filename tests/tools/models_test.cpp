// The model files in configs/models.
#include <gtest/gtest.h>

#include <set>

#include "src/recipe/settings.h"

namespace owt::models_test {
namespace {

struct Published {
  const char* file;
  int64_t parameters;  // trained parameters
};

Model shipped(const std::string& file) {
  Config config = Config::file(concat(OWT_SOURCE_DIR, "/configs/models/", file, ".toml"));
  return read_model(config);
}

class ModelFile : public ::testing::TestWithParam<Published> {};

TEST_P(ModelFile, HasThePublishedNumberOfParameters) {
  int64_t count = 0;
  std::set<std::string> names;
  for (const auto& layer : whole_layers(shipped(GetParam().file)))
    for (const Param* param : layer->params()) {
      EXPECT_TRUE(names.insert(param->name).second) << param->name;
      if (param->role == ParamRole::kTrained) count += param->full_shape.elements();
    }
  EXPECT_EQ(count, GetParam().parameters);
}

// cifar10_resnet20: He et al.'s 0.27 M, 269,722, and 2,752 in its shortcuts. cifar10_94: Jordan's 1.97 M. cifar10_96:
// the 312 parameters of its whitening layer, 9,907,200 weights of convolutions, 6,144 of norms and 5,120 of the last
// layer. alexnet_owt*: torchvision's 61,100,840; conv4 with 384 filters adds 128 * (384 * 9 + 1) and 256 * 128 * 9.
// iresnet*: as the networks in tools/iresnet_check.py, which have no head. inception_v3: without the auxiliary
// classifier. The other numbers are torchvision's.
constexpr int64_t kFaceHead = 512 * 93'431;
INSTANTIATE_TEST_SUITE_P(
    Shipped, ModelFile,
    ::testing::Values(Published{"alexnet_owt", 61'100'840}, Published{"alexnet_owt_lrn", 61'100'840},
                      Published{"alexnet_owt_384", 61'838'248}, Published{"alexnet_owt_lrn_384", 61'838'248},
                      Published{"vgg_a", 132'863'336}, Published{"vgg16", 138'357'544},
                      Published{"resnet18", 11'689'512}, Published{"resnet34", 21'797'672},
                      Published{"resnet50", 25'557'032}, Published{"resnet101", 44'549'160},
                      Published{"googlenet", 6'624'904}, Published{"squeezenet", 1'235'496},
                      Published{"mobilenet_v1", 4'231'976}, Published{"mobilenet_v2", 3'504'872},
                      Published{"iresnet18", 24'025'600 + kFaceHead}, Published{"iresnet50", 43'590'848 + kFaceHead},
                      Published{"iresnet100", 65'156'160 + kFaceHead}, Published{"cifar10_resnet20", 269'722 + 2'752},
                      Published{"cifar10_94", 1'972'792}, Published{"cifar10_96", 9'918'776},
                      Published{"efficientnet_b0", 5'288'548}, Published{"mobilenet_v3_large", 5'483'032},
                      Published{"regnet_y_400mf", 4'344'144}, Published{"convnext_tiny", 28'589'128},
                      Published{"resnext50_32x4d", 25'028'904}, Published{"densenet121", 7'978'856},
                      Published{"wide_resnet50_2", 68'883'240}, Published{"inception_v3", 23'834'568}),
    [](const auto& info) { return info.param.file; });

// Multiply-adds of convolutions and dense layers for an image of 224 x 224: from torchvision, and for mobilenet_v1 from
// Howard et al. 2017, table 4.
TEST(ModelFiles, DoTheWorkThatIsPublished) {
  const auto multiply_adds = [](const std::string& file) {
    double flops = 0;
    const Plan plan = make_plan(shipped(file), {});
    for (const LayerPlan& layer : plan.layers) {
      if (layer.type == "conv" || layer.type == "dense") flops += layer.flops_per_row;
      for (const LayerPlan& inner : layer.inner)
        if (inner.type == "conv") flops += inner.flops_per_row;
    }
    return flops / 2;
  };
  EXPECT_NEAR(multiply_adds("resnet18"), 1.814e9, 1e6);
  EXPECT_NEAR(multiply_adds("resnet34"), 3.664e9, 1e6);
  EXPECT_NEAR(multiply_adds("resnet50"), 4.089e9, 1e6);
  EXPECT_NEAR(multiply_adds("resnet101"), 7.801e9, 1e6);
  EXPECT_NEAR(multiply_adds("googlenet"), 1.498e9, 1e6);
  EXPECT_NEAR(multiply_adds("squeezenet"), 0.349e9, 1e6);
  EXPECT_NEAR(multiply_adds("mobilenet_v1"), 569e6, 1e6);
  EXPECT_NEAR(multiply_adds("mobilenet_v2"), 300.8e6, 1e6);
}

// fb.resnet.torch and torchvision ("version 1.5").
TEST(ModelFiles, ResNet50StridesInThe3x3Convolution) {
  const Plan plan = make_plan(shipped("resnet50"), {});
  for (const LayerPlan& layer : plan.layers)
    for (const LayerPlan& inner : layer.inner) {
      if (inner.name.ends_with(".conv1")) {
        EXPECT_EQ(inner.in[0], inner.out[0]) << inner.name;
      }
    }
}

TEST(ModelFiles, AlexNetOfCudaConvnetHasItsGeometry) {
  const Plan plan = make_plan(shipped("alexnet_owt_lrn"), {});
  EXPECT_EQ(plan.layers[0].out, (Shape{55, 55, 64}));
  EXPECT_EQ(plan.layers[1].type, "lrn");
  EXPECT_EQ(plan.layers[2].out, (Shape{27, 27, 64}));
}

// InsightFace trains all other parameters with weight decay.
TEST(ModelFiles, OnlyTheWeightOfTheEmbeddingIsNotTrained) {
  for (const char* file : {"iresnet18", "iresnet50", "iresnet100"})
    for (const auto& layer : whole_layers(shipped(file)))
      for (const Param* param : layer->params()) {
        if (param->role != ParamRole::kTrained) continue;
        const double wanted = param->name == "features.weight" ? 0 : 1;
        EXPECT_EQ(param->lr_mult, wanted) << param->name;
        EXPECT_EQ(param->decay_mult, wanted) << param->name;
      }
}

// Goyal et al. 2017, section 5.1.
TEST(ModelFiles, BlocksOfResNetsStartAsTheIdentityAndNormalisationDoesNotDecay) {
  const std::pair<const char*, size_t> files[] = {
      {"resnet18", 8}, {"resnet34", 16}, {"resnet50", 16}, {"resnet101", 33}};
  for (const auto& [file, wanted] : files) {
    size_t blocks = 0, zeros = 0;
    for (const auto& layer : whole_layers(shipped(file))) {
      if (layer->type() == "residual") ++blocks;
      for (const Param* param : layer->params()) {
        if (param->full_shape.rank() > 1) continue;
        EXPECT_EQ(param->decay_mult, 0) << param->name;
        if (param->name.ends_with(".weight") && param->init.value == 0) ++zeros;
      }
    }
    EXPECT_EQ(blocks, wanted);
    EXPECT_EQ(zeros, blocks);
  }
}

}  // namespace
}  // namespace owt::models_test
