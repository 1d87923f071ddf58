// The predicted launches of a step equal the launches of a recorded step, so that the estimate follows the code.
#include "tests/simulated_gpu/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/comm/threads.h"
#include "src/parallel/step.h"
#include "src/predict/step_launches.h"
#include "src/system/plan_cache.h"
#include "src/train/made_up_batch.h"
#include "tests/simulated_gpu/runtime.h"
#include "tests/support/models.h"

namespace owt::step_launches_gpu_test {
namespace {

// A GPU uses the variants that were measured to be fastest. This test sets the expected ones: convolutions, bias and
// relu by cuDNN, in bf16 also the mask and the sums of a data gradient, few channels packed, batch norm by our own
// kernels, which take all groups of rows at a time.
void choose_what_is_expected() {
  for (const auto& [key, text] : PlanCache::process().known()) {
    const auto holds = [&](const char* words) { return key.find(words) != std::string::npos; };
    if (holds("own kernels or cuDNN, ")) PlanCache::process().store_for_this_process(key, "own");
    if (holds("groups of a norm at once, ")) PlanCache::process().store_for_this_process(key, "all");
    if (holds("own convolution or cuDNN, ")) PlanCache::process().store_for_this_process(key, "cuDNN");
    if (holds("epilogue, ")) PlanCache::process().store_for_this_process(key, "fused");
    if (holds("mask of dx, ")) PlanCache::process().store_for_this_process(key, holds("1 = bf16 ") ? "fused" : "apart");
    if (holds("presentation, "))
      PlanCache::process().store_for_this_process(key, holds("stride 1x1 ") ? "8 channels" : "blocks");
  }
}

std::string line(const std::string& kernel, bool beside) { return kernel + (beside ? " (beside)" : ""); }

// The nodes of the second step on one rank, which is recorded, with images in the layout that the first layer wants.
std::vector<std::string> recorded(const Model& model, const Plan& plan) {
  std::vector<std::string> nodes;
  run_ranks(
      1, 1,
      [&](Communicator& comm) {
        RankModel layers(model, plan, 0);
        Optimizer optimizer({.learning_rate = 0.01});
        Step step(plan, layers, optimizer, comm, nullptr, {});
        layers.initialize(1);
        step.prepare(4);
        const Batch batch = made_up_batch(model, {0, 4}, plan.request, step.wanted_images(4));
        for (int i = 0; i < 2; ++i) step.train(batch, i, {.front = 0.01, .back = 0.01, .kept = 0.5}, false);
        const auto graphs = simulated_gpu::live_graphs();
        ASSERT_EQ(graphs.size(), 1u);
        for (const auto& node : graphs.front())
          nodes.push_back(line(node.name.substr(0, node.name.find('<')), node.stream > 0));
      },
      Device::kCuda);
  return nodes;
}

void expect_the_launches_of(const Model& model, const PlanRequest& request) {
  const Plan plan = make_plan(model, request);
  recorded(model, plan);  // makes all choices
  choose_what_is_expected();
  std::vector<std::string> listed;
  for (const StepLaunch& launch : launches_of_step(model, plan)) listed.push_back(line(launch.kernel, launch.beside));
  EXPECT_THAT(listed, ::testing::ElementsAreArray(recorded(model, plan)));
}

void expect_the_launches_of(const std::string& input, const std::string& layers, Precision precision = Precision::kBf16,
                            int ema_every = 0, const std::vector<std::string>& frozen = {}, int norm_sums = 0) {
  Model model = model_of(input, 10, layers);
  model.frozen = frozen;
  expect_the_launches_of(
      model, {.step_rows = 4, .on = {Device::kCuda, precision}, .ema_every = ema_every, .norm_sums = norm_sums});
}

TEST(StepLaunches, OfANetworkLikeAlexNetAreThoseOfARecordedStep) {
  expect_the_launches_of("[3, 64, 64]", R"(
  { name = "conv1", type = "conv", out = 8, kernel = 11, stride = 4, pad = 2 },
  { name = "relu1", type = "relu" },
  { name = "pool1", type = "max_pool", kernel = 3, stride = 2 },
  { name = "conv2", type = "conv", out = 8, kernel = 5, pad = 2, groups = 2 },
  { name = "pool2", type = "max_pool", kernel = 3, stride = 2 },
  { name = "relu2", type = "relu" },
  { name = "conv3", type = "conv", out = 8, kernel = 3, pad = 1, bias = false },
  { name = "relu3", type = "relu" },
  { name = "conv4", type = "conv", out = 8, kernel = 3, pad = 1 },
  { name = "relu4", type = "relu" },
  { name = "conv5", type = "conv", out = 8, kernel = 3, pad = 1 },
  { name = "relu5", type = "relu" },
  { name = "pool5", type = "avg_pool", kernel = 2 },
  { name = "fc6", type = "dense", out = 1024 },
  { name = "relu6", type = "relu" },
  { name = "drop6", type = "dropout", rate = 0.5 },
  { name = "fc7", type = "dense", out = 1024 },
  { name = "relu7", type = "relu" },
  { name = "fc8", type = "dense", out = 10 })");
}

// Layers after a frozen convolution, and a frozen layer of each kind between trained layers.
TEST(StepLaunches, OfFrozenLayersAreThoseOfARecordedStep) {
  constexpr const char* kLayers = R"(
  { name = "conv1", type = "conv", out = 8, kernel = 3, pad = 1 },
  { name = "relu1", type = "relu" },
  { name = "pool1", type = "max_pool", kernel = 3, stride = 2 },
  { name = "conv2", type = "conv", out = 8, kernel = 3, pad = 1 },
  { name = "bn2", type = "batch_norm" },
  { name = "relu2", type = "relu" },
  { name = "conv3", type = "conv", out = 8, kernel = 3, pad = 1 },
  { name = "relu3", type = "relu" },
  { name = "pool3", type = "max_pool", kernel = 2 },
  { name = "one", type = "residual", body = [
    { name = "a", type = "conv", out = 8, kernel = 3, pad = 1 },
    { name = "bn", type = "batch_norm" } ] },
  { name = "fc1", type = "dense", out = 16 },
  { name = "relu4", type = "relu" },
  { name = "fc2", type = "dense", out = 16 },
  { name = "fc3", type = "dense", out = 10 })";
  for (const std::vector<std::string>& frozen : {std::vector<std::string>{"conv*", "bn2"},
                                                 {"conv[23]", "bn2"},
                                                 {"one.bn", "fc1"},
                                                 {"fc[12]", "one.a"},
                                                 {"c*", "bn2", "one.a"}})
    expect_the_launches_of("[8, 16, 16]", kLayers, Precision::kBf16, 0, frozen);
}

TEST(StepLaunches, OfANetworkLikeCifar10QuickAreThoseOfARecordedStep) {
  expect_the_launches_of("[3, 16, 16]", R"(
  { name = "conv1", type = "conv", out = 8, kernel = 5, pad = 2 },
  { name = "pool1", type = "max_pool", kernel = 3, stride = 2, round = "up" },
  { name = "relu1", type = "relu" },
  { name = "norm1", type = "lrn", size = 5 },
  { name = "conv2", type = "conv", out = 8, kernel = 5, pad = 2 },
  { name = "relu2", type = "relu" },
  { name = "pool2", type = "avg_pool", kernel = 3, stride = 2, round = "up" },
  { name = "norm2", type = "lrn", size = 4 },
  { name = "norm3", type = "lrn", size = 3, within = true },
  { name = "drop2", type = "dropout", rate = 0.5 },
  { name = "fc1", type = "dense", out = 16 },
  { name = "fc2", type = "dense", out = 10, bias = false })");
}

// The cosines learn; are frozen after a layer that learns; and are alone.
TEST(StepLaunches, OfCosinesAreThoseOfARecordedStep) {
  constexpr const char* kLayers = R"(
  { name = "fc1", type = "dense", out = 16 },
  { name = "cos", type = "cosine", out = 10 })";
  for (const Precision precision : {Precision::kBf16, Precision::kFp32})
    for (const std::vector<std::string>& frozen :
         {std::vector<std::string>{}, std::vector<std::string>{"cos"}, std::vector<std::string>{"fc1"}})
      expect_the_launches_of("[8, 4, 4]", kLayers, precision, 0, frozen);
}

// Updated together with the layer before, and, with more parameters, beside its backward pass.
TEST(StepLaunches, OfSampledClassesAreThoseOfARecordedStep) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp32})
    for (const char* type : {"dense", "cosine"})
      for (const int64_t beside_from : {int64_t{100}, kUpdateBesideFrom})
        for (const int norm_sums : {0, 1}) {
          const Model model = model_of("[8, 4, 4]", 300,
                                       concat("{ name = \"fc1\", type = \"dense\", out = 16 },\n"
                                              "{ name = \"fc2\", type = \"",
                                              type, "\", out = 300 }"));
          expect_the_launches_of(model, {.step_rows = 4,
                                         .on = {Device::kCuda, precision},
                                         .loss = {.sample = 0.1},
                                         .norm_sums = norm_sums,
                                         .beside_from = beside_from});
        }
}

TEST(StepLaunches, OfActivationsAreThoseOfARecordedStep) {
  expect_the_launches_of("[8, 8, 8]", R"(
  { name = "act0", type = "activation", kind = "gelu" },
  { name = "conv1", type = "conv", out = 8, kernel = 3 },
  { name = "act1", type = "activation", kind = "prelu" },
  { name = "conv2", type = "conv", out = 8, kernel = 3, dilation = 2 },
  { name = "path", type = "drop_path", rate = 0.5 },
  { name = "act2", type = "activation", kind = "hard_swish" },
  { name = "local3", type = "local", out = 4, kernel = 2 },
  { name = "fc1", type = "dense", out = 16 },
  { name = "act3", type = "activation", kind = "silu" },
  { name = "fc2", type = "dense", out = 10 })");
  expect_the_launches_of("[8, 8, 8]", R"(
  { name = "act0", type = "activation", kind = "prelu" },
  { name = "fc2", type = "dense", out = 10 })");
}

TEST(StepLaunches, OfANetworkLikeVggAreThoseOfARecordedStepInEveryPrecision) {
  for (const Precision precision : {Precision::kBf16, Precision::kTf32, Precision::kFp32})
    expect_the_launches_of("[8, 16, 16]", R"(
  { name = "conv1_1", type = "conv", out = 8, kernel = 3, pad = 1 },
  { name = "relu1_1", type = "relu" },
  { name = "conv1_2", type = "conv", out = 8, kernel = 3, pad = 1 },
  { name = "relu1_2", type = "relu" },
  { name = "pool1", type = "max_pool", kernel = 2 },
  { name = "conv2_1", type = "conv", out = 16, kernel = 3, pad = 1 },
  { name = "relu2_1", type = "relu" },
  { name = "conv2_2", type = "conv", out = 16, kernel = 3, pad = 1 },
  { name = "relu2_2", type = "relu" },
  { name = "conv2_3", type = "conv", out = 16, kernel = 3, pad = 1 },
  { name = "pool2", type = "max_pool", kernel = 2 },
  { name = "fc", type = "dense", out = 10 })",
                           precision);
}

TEST(StepLaunches, WithNormsAreThoseOfARecordedStep) {
  for (const int sums : {1, 2})
    expect_the_launches_of("[8, 8, 8]", R"(
  { name = "conv", type = "conv", out = 8, kernel = 3, pad = 1 },
  { name = "fc1", type = "dense", out = 1024 },
  { name = "fc2", type = "dense", out = 1024 },
  { name = "fc", type = "dense", out = 10 })",
                           Precision::kBf16, 0, {}, sums);
}

TEST(StepLaunches, WithAveragesOfTheWeightsAreThoseOfARecordedStep) {
  expect_the_launches_of("[8, 8, 8]", R"(
  { name = "conv", type = "conv", out = 8, kernel = 3, pad = 1 },
  { name = "fc", type = "dense", out = 10 })",
                         Precision::kBf16, 1);
}

// The first residual has a relu, and a body that does not overwrite its gradient. The body of the second one overwrites
// it, and both its branches need it. The third one must copy it.
TEST(StepLaunches, OfResidualsWithBatchNormAreThoseOfARecordedStep) {
  expect_the_launches_of("[8, 8, 8]", R"(
  { name = "conv", type = "conv", out = 8, kernel = 3, pad = 1, bias = false },
  { name = "bn", type = "batch_norm" },
  { name = "relu", type = "relu" },
  { name = "one", type = "residual", body = [
    { name = "a", type = "conv", out = 8, kernel = 3, pad = 1, bias = false },
    { name = "bn_a", type = "batch_norm", rows = 2 },
    { name = "relu", type = "relu" },
    { name = "b", type = "conv", out = 8, kernel = 3, pad = 1, bias = false },
    { name = "bn_b", type = "batch_norm" } ] },
  { name = "two", type = "residual", body = [
    { name = "c", type = "conv", out = 16, kernel = 3, pad = 1, stride = 2 },
    { name = "relu", type = "relu" } ], shortcut = [
    { name = "d", type = "conv", out = 16, kernel = 1, stride = 2, bias = false },
    { name = "bn_d", type = "batch_norm" } ] },
  { name = "three", type = "residual", relu = false, body = [
    { name = "e", type = "conv", out = 16, kernel = 3, pad = 1 },
    { name = "relu", type = "relu" } ] },
  { name = "pool", type = "global_avg_pool" },
  { name = "fc", type = "dense", out = 10 })");
}

// The first one's branches are an identity, a layer alone, and layers that run as one op; the input of the second one
// has a gradient.
TEST(StepLaunches, OfBranchesAreThoseOfARecordedStep) {
  expect_the_launches_of("[8, 8, 8]", R"(
  { name = "first", type = "branches", branches = [
    {},
    { layers = [{ name = "a", type = "conv", out = 8, kernel = 3, pad = 1, bias = false }] },
    { layers = [{ name = "b", type = "conv", out = 8, kernel = 1 }, { name = "relu", type = "relu" }] } ] },
  { name = "second", type = "branches", branches = [
    { layers = [{ name = "c", type = "conv", out = 8, kernel = 3, pad = 1 }, { name = "norm", type = "batch_norm" }] },
    {},
    { layers = [{ name = "pool", type = "max_pool", kernel = 3, stride = 1, pad = 1 }] } ] },
  { name = "pool", type = "global_avg_pool" },
  { name = "fc", type = "dense", out = 10 })");
}

// The first layer's input has no gradient; the body of the second one ends in layers that run as one op.
TEST(StepLaunches, OfScalesAndLayerNormsAreThoseOfARecordedStep) {
  expect_the_launches_of("[8, 8, 8]", R"(
  { name = "first", type = "scale", body = [
    { name = "pool", type = "global_avg_pool" },
    { name = "fc", type = "dense", out = 8 },
    { name = "gate", type = "activation", kind = "hard_sigmoid" } ] },
  { name = "norm", type = "layer_norm" },
  { name = "second", type = "scale", body = [
    { name = "pool", type = "global_avg_pool" },
    { name = "fc", type = "dense", out = 8 },
    { name = "relu", type = "relu" } ] },
  { name = "pool", type = "global_avg_pool" },
  { name = "fc", type = "dense", out = 10 })");
}

// More arrays than one launch of the loss looks through, and more parameters than one updates.
TEST(StepLaunches, OfADeepNetworkAreThoseOfARecordedStep) {
  std::string layers;
  for (int i = 0; i < 66; ++i)
    layers += concat("{ name = \"fc", i, "\", type = \"dense\", out = 10, bias = false },\n");
  expect_the_launches_of("[8, 1, 1]", layers);
}

}  // namespace
}  // namespace owt::step_launches_gpu_test
