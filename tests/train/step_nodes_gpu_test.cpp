// The number of nodes in a recorded step: each node costs a GPU more than a microsecond.
#include "tests/simulated_gpu/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/comm/threads.h"
#include "src/parallel/step.h"
#include "src/train/made_up_batch.h"
#include "tests/simulated_gpu/runtime.h"
#include "tests/support/models.h"

namespace owt::step_nodes_gpu_test {
namespace {

using Node = simulated_gpu::GraphNode;
using Nodes = std::vector<Node>;
using ::testing::Each;
using ::testing::Field;

// AlexNet's layers with few outputs each.
constexpr const char* kAlexNetLike = R"(
  { name = "conv1", type = "conv", out = 8, kernel = 3, stride = 2 },
  { name = "relu1", type = "relu" },
  { name = "pool1", type = "max_pool", kernel = 3, stride = 2 },
  { name = "conv2", type = "conv", out = 8, kernel = 5, pad = 2 },
  { name = "relu2", type = "relu" },
  { name = "pool2", type = "max_pool", kernel = 3, stride = 2 },
  { name = "conv3", type = "conv", out = 8, kernel = 3, pad = 1 },
  { name = "relu3", type = "relu" },
  { name = "conv4", type = "conv", out = 8, kernel = 3, pad = 1 },
  { name = "relu4", type = "relu" },
  { name = "conv5", type = "conv", out = 8, kernel = 3, pad = 1 },
  { name = "relu5", type = "relu" },
  { name = "pool5", type = "max_pool", kernel = 3, stride = 2 },
  { name = "fc6", type = "dense", out = 32 },
  { name = "relu6", type = "relu" },
  { name = "drop6", type = "dropout", rate = 0.5 },
  { name = "fc7", type = "dense", out = 32 },
  { name = "relu7", type = "relu" },
  { name = "drop7", type = "dropout", rate = 0.5 },
  { name = "fc8", type = "dense", out = 10 })";

// The layers of models/cifar10_quick.toml.
constexpr const char* kCifarQuickLike = R"(
  { name = "conv1", type = "conv", out = 8, kernel = 5, pad = 2 },
  { name = "pool1", type = "max_pool", kernel = 3, stride = 2, round = "up" },
  { name = "relu1", type = "relu" },
  { name = "conv2", type = "conv", out = 8, kernel = 5, pad = 2 },
  { name = "relu2", type = "relu" },
  { name = "pool2", type = "avg_pool", kernel = 3, stride = 2, round = "up" },
  { name = "conv3", type = "conv", out = 16, kernel = 5, pad = 2 },
  { name = "relu3", type = "relu" },
  { name = "pool3", type = "avg_pool", kernel = 3, stride = 2, round = "up" },
  { name = "fc1", type = "dense", out = 16 },
  { name = "fc2", type = "dense", out = 10 })";

// The nodes of one training step on one rank, in bf16. The images have eight channels. Images of three channels would
// be packed by pack_images and pack_weights in a form that is chosen by measurement, and their weights' gradient
// unpacked. Kernels that add bias and relu are not counted: they are used if cuDNN was measured to be slower, which may
// happen with a simulated one.
std::vector<Nodes> nodes_of_steps(const std::string& layers, int64_t side, int64_t beside_from, int steps,
                                  const StepOptions& options) {
  const Model model = model_of(concat("[8, ", side, ", ", side, "]"), 10, layers);
  const Plan plan =
      make_plan(model, {.step_rows = 4, .on = {Device::kCuda, Precision::kBf16}, .beside_from = beside_from});
  std::vector<Nodes> all;
  run_ranks(
      1, 1,
      [&](Communicator& comm) {
        RankModel layers_of_rank(model, plan, 0);
        Optimizer optimizer({.learning_rate = 0.01});
        Step step(plan, layers_of_rank, optimizer, comm, nullptr, options);
        layers_of_rank.initialize(1);
        const Batch batch = made_up_batch(model, {0, 4}, plan.request);
        for (int i = 0; i < steps || step.chooses(); ++i) step.train(batch, i, {0.01, 0.01}, false);
        all = simulated_gpu::live_graphs();
      },
      Device::kCuda);
  for (Nodes& nodes : all)
    std::erase_if(nodes, [](const auto& node) { return node.name.find("AddBias") != std::string::npos; });
  return all;
}

Nodes nodes_of_a_step(const std::string& layers, int64_t side, int64_t beside_from = kUpdateBesideFrom) {
  const auto all = nodes_of_steps(layers, side, beside_from, 2, {});  // the second step is recorded
  EXPECT_EQ(all.size(), 1u);
  return all.front();
}

std::string lines(const Nodes& nodes) {
  std::string text;
  for (const auto& node : nodes) text += concat("\n  ", node.name, node.stream > 0 ? " (beside)" : "");
  return text;
}

TEST(StepNodes, OfANetworkLikeAlexNetAreNoMoreThanTheyWere) {
  const Nodes nodes = nodes_of_a_step(kAlexNetLike, 64);
  EXPECT_LE(nodes.size(), 36u) << lines(nodes);
}

TEST(StepNodes, OfANetworkLikeCifar10QuickAreNoMoreThanTheyWere) {
  const Nodes nodes = nodes_of_a_step(kCifarQuickLike, 16);
  EXPECT_LE(nodes.size(), 22u) << lines(nodes);
}

TEST(StepNodes, UpdateLargeDenseLayersDuringTheConvolutions) {
  const Nodes together = nodes_of_a_step(kAlexNetLike, 64);
  EXPECT_THAT(together, Each(Field(&Node::stream, 0u))) << lines(together);
  const Nodes nodes = nodes_of_a_step(kAlexNetLike, 64, 1);
  EXPECT_EQ(nodes.size(), together.size() + 1) << lines(nodes);
  const auto beside = std::find_if(nodes.begin(), nodes.end(), [](const Node& node) { return node.stream > 0; });
  ASSERT_NE(beside, nodes.end()) << lines(nodes);
  EXPECT_THAT(beside->name, testing::StartsWith("update_by_products<"));
  EXPECT_GT(beside->priority, nodes.front().priority) << "the convolutions have to come first";
  const auto convolution = [](const Node& node) { return node.name == "cudnnBackendExecute"; };
  EXPECT_EQ(std::count_if(beside, nodes.end(), convolution), 9) << lines(nodes);  // all backward passes
}

// Each of the three slots has a graph of each order.
TEST(StepNodes, AreThoseOfBothOrdersWhileTheOrderIsChosen) {
  const size_t together = nodes_of_a_step(kAlexNetLike, 64, kNeverBeside).size();
  std::vector<size_t> sizes;
  for (const Nodes& nodes : nodes_of_steps(kAlexNetLike, 64, 1, 0, {.choose_beside = true})) {
    const bool beside = std::ranges::any_of(nodes, [](const Node& node) { return node.stream > 0; });
    EXPECT_EQ(nodes.size(), together + (beside ? 1 : 0)) << lines(nodes);
    sizes.push_back(nodes.size());
  }
  EXPECT_THAT(sizes,
              testing::UnorderedElementsAre(together, together, together, together + 1, together + 1, together + 1));
  for (const Nodes& nodes : nodes_of_steps(kAlexNetLike, 64, kNeverBeside, 2, {.choose_beside = true}))
    EXPECT_EQ(nodes.size(), together) << "there is nothing to choose" << lines(nodes);
}

}  // namespace
}  // namespace owt::step_nodes_gpu_test
