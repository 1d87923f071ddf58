// Plans of the installed cuDNN for an H200, made without one from a description of the GPU.
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "layers/conv.h"
#include "layers/gpu/conv_plans.h"
#include "layers/gpu/cudnn_plan.h"
#include "src/net/model.h"
#include "src/system/check.h"
#include "src/system/files.h"
#include "src/system/texts.h"

namespace owt {
namespace {

// The folder of the repository; a bundle for another machine sets it.
std::string source_folder() {
  const char* moved = std::getenv("OWT_SOURCE_DIR");
  return moved ? moved : OWT_SOURCE_DIR;
}

const PlanTarget& h200() {
  // cuDNN loads and unloads NVRTC for every engine that compiles, which took half of the time. A loaded one stays.
  [[maybe_unused]] static void* const nvrtc = dlopen(concat("libnvrtc.so.", CUDART_VERSION / 1000).c_str(), RTLD_LAZY);
  static const PlanTarget target = PlanTarget::described_by(read_file(source_folder() + "/tests/support/h200.json"));
  return target;
}

PlanRules rules_of(Precision precision) {
  PlanRules rules;
  rules.tensor_cores = precision != Precision::kFp32;
  return rules;
}

int plans_of(const CudnnGraph& graph, const PlanRules& rules, int most = 1000) {
  int plans = 0;
  for_each_plan(graph, rules, h200(),
                [&](const CudnnPlan&) { return ++plans < most ? PlanVerdict::kTaken : PlanVerdict::kEnough; });
  return plans;
}

std::optional<CudnnPlan> first_plan(const CudnnGraph& graph, const PlanRules& rules) {
  std::optional<CudnnPlan> first;
  for_each_plan(graph, rules, h200(), [&](CudnnPlan plan) {
    first = std::move(plan);
    return PlanVerdict::kEnough;
  });
  return first;
}

struct NamedConv {
  std::string name;
  ConvGeometry geometry;
  bool first;  // needs no gradient of its input
  bool bias;
};

class Convolutions {
 public:
  void add(const std::string& model, Layer& layer, const Shape& in, bool first) {
    for (const Layer::Inner& inner : layer.inner(in)) add(model, *inner.layer, inner.in, first && inner.first);
    const std::optional<ConvGeometry> geometry = conv_geometry(layer, in);
    if (!geometry) return;
    const bool bias = layer.params().size() > 1;
    if (seen_.insert(concat(conv_forward_graph(*geometry, 1, DType::kF32).text(), first, bias)).second)
      all.push_back({model + ", " + layer.name(), *geometry, first, bias});
  }
  std::vector<NamedConv> all;

 private:
  std::set<std::string> seen_;
};

std::vector<NamedConv> read_shipped_convolutions() {
  Convolutions found;
  for (const auto& file : std::filesystem::directory_iterator(source_folder() + "/configs/models")) {
    Config config = Config::file(file.path().string());
    const Model model = read_model(config);
    Shape batch = model.input.batch_of(1);
    const auto layers = whole_layers(model);
    for (size_t i = 0; i < layers.size(); ++i) {
      found.add(model.name, *layers[i], batch, i == 0);
      batch = layers[i]->out_shape(batch);
    }
  }
  return found.all;
}

// Every convolution of the shipped models, each geometry once.
const std::vector<NamedConv>& shipped_convolutions() {
  static const std::vector<NamedConv> all = read_shipped_convolutions();
  return all;
}

struct Setting {
  Precision precision;
  int64_t batch;
};

class ShippedModels : public testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(Settings, ShippedModels,
                         testing::Values(Setting{Precision::kBf16, 128}, Setting{Precision::kBf16, 1024},
                                         Setting{Precision::kTf32, 128}, Setting{Precision::kTf32, 1024},
                                         Setting{Precision::kFp32, 128}, Setting{Precision::kFp32, 1024}),
                         [](const auto& info) { return concat(info.param.precision, "_batch_", info.param.batch); });

TEST_P(ShippedModels, EveryPassOfEveryConvolutionHasADeterministicPlan) {
  const auto [precision, batch] = GetParam();
  const DType dtype = activation_type(precision);
  const PlanRules rules = rules_of(precision);
  EXPECT_GT(shipped_convolutions().size(), 15u);
  for (const NamedConv& conv : shipped_convolutions()) {
    SCOPED_TRACE(conv.name);
    const ConvGeometry& g = conv.geometry;
    EXPECT_TRUE(first_plan(conv_forward_graph(g, batch, dtype), rules)) << "forward";
    EXPECT_TRUE(first_plan(conv_weight_gradient_graph(g, batch, dtype), rules)) << "weight gradient";
    if (!conv.first) {
      EXPECT_TRUE(first_plan(conv_data_gradient_graph(g, batch, dtype), rules)) << "data gradient";
    }
  }
}

TEST_P(ShippedModels, BiasAndReluCanBeFused) {
  const auto [precision, batch] = GetParam();
  const DType dtype = activation_type(precision);
  for (const NamedConv& conv : shipped_convolutions()) {
    if (!conv.bias) continue;
    SCOPED_TRACE(conv.name);
    for (const bool relu : {false, true})
      EXPECT_TRUE(
          first_plan(conv_fused_graph(conv.geometry, batch, dtype, {.bias = true, .relu = relu}), rules_of(precision)))
          << (relu ? "with relu" : "without relu");
  }
}

TEST_P(ShippedModels, FirstLayersHavePlansHoweverTheirChannelsArePacked) {
  const auto [precision, batch] = GetParam();
  const DType dtype = activation_type(precision);
  for (const NamedConv& conv : shipped_convolutions()) {
    if (!conv.first) continue;
    SCOPED_TRACE(conv.name);
    const ConvGeometry& g = conv.geometry;
    for (const ChannelPacking& packing :
         {ChannelPacking(g, 1, 1, 4), ChannelPacking(g, 1, 1, 8), ChannelPacking(g, g.stride_h, g.stride_w, 8)}) {
      EXPECT_TRUE(first_plan(conv_forward_graph(packing.packed(), batch, dtype), rules_of(precision)));
      EXPECT_TRUE(first_plan(conv_weight_gradient_graph(packing.packed(), batch, dtype), rules_of(precision)));
    }
  }
}

// Convolutions of a shipped model that follow a convolution and a relu, each geometry once.
std::vector<ConvGeometry> convolutions_after_a_relu(const std::string& file) {
  Config config = Config::file(source_folder() + "/configs/models/" + file);
  const Model model = read_model(config);
  std::vector<ConvGeometry> found;
  std::set<std::string> seen;
  Shape batch = model.input.batch_of(1);
  const auto layers = whole_layers(model);
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::optional<ConvGeometry> geometry = conv_geometry(*layers[i], batch);
    if (geometry && i >= 2 && layers[i - 1]->type() == "relu" && layers[i - 2]->type() == "conv" &&
        seen.insert(conv_forward_graph(*geometry, 1, DType::kF32).text()).second)
      found.push_back(*geometry);
    batch = layers[i]->out_shape(batch);
  }
  return found;
}

// All plans for these graphs are compiled, which needs the driver.
TEST(CudnnPlans, MaskAndSumTheDataGradientsOfVggAndAlexNet) {
  if (!dlopen("libcuda.so.1", RTLD_LAZY)) GTEST_SKIP() << "cuDNN compiles no plans without NVIDIA's driver";
  for (const auto& [file, batch, geometries] : {std::tuple("vgg16.toml", 64, 5u), {"alexnet_owt.toml", 1024, 2u}}) {
    const std::vector<ConvGeometry> found = convolutions_after_a_relu(file);
    EXPECT_EQ(found.size(), geometries);
    for (const ConvGeometry& g : found)
      for (const bool deterministic : {false, true}) {
        PlanRules rules;
        rules.deterministic = deterministic;
        const CudnnGraph graph = conv_masked_data_gradient_graph(g, batch, DType::kBF16, deterministic);
        EXPECT_TRUE(first_plan(graph, rules)) << graph.text();
      }
  }
}

const ConvGeometry kConv2{27, 27, 64, 27, 27, 192, 5, 5, 1, 1, 2, 2, 2, 2, 1};  // conv2 of AlexNet

TEST(CudnnPlans, RulesLeavePlansOut) {
  const CudnnGraph weights = conv_weight_gradient_graph(kConv2, 128, DType::kBF16);
  PlanRules rules, any = rules;
  any.deterministic = false;
  EXPECT_GT(plans_of(weights, any), plans_of(weights, rules));

  const CudnnGraph forward = conv_forward_graph(kConv2, 128, DType::kF32);
  EXPECT_GT(plans_of(forward, rules_of(Precision::kTf32)), plans_of(forward, rules_of(Precision::kFp32)));

  rules.workspace_limit = -1;
  EXPECT_EQ(plans_of(forward, rules), 0);
}

TEST(CudnnPlans, GroupsAndUnequalPaddingAreSupported) {
  const ConvGeometry groups{27, 27, 96, 27, 27, 256, 5, 5, 1, 1, 2, 2, 2, 2, 2};
  const ConvGeometry unequal{6, 8, 5, 3, 4, 8, 3, 3, 2, 2, 0, 0, 1, 1, 1};
  for (const auto precision : {Precision::kBf16, Precision::kTf32, Precision::kFp32})
    for (const ConvGeometry& g : {groups, unequal}) {
      const DType dtype = activation_type(precision);
      EXPECT_TRUE(first_plan(conv_forward_graph(g, 4, dtype), rules_of(precision)));
      EXPECT_TRUE(first_plan(conv_weight_gradient_graph(g, 4, dtype), rules_of(precision)));
      EXPECT_TRUE(first_plan(conv_data_gradient_graph(g, 4, dtype), rules_of(precision)));
    }
}

TEST(CudnnPlans, APlanComesBackFromItsText) {
  const CudnnGraph graph = conv_weight_gradient_graph(kConv2, 128, DType::kBF16);
  for_each_plan(graph, {}, h200(), [&](const CudnnPlan& plan) {
    const std::optional<CudnnPlan> again = CudnnPlan::from_json(plan.json(), h200());
    EXPECT_TRUE(again);
    if (again) {
      EXPECT_EQ(again->workspace_bytes(), plan.workspace_bytes());
      EXPECT_EQ(again->json(), plan.json());
    }
    return PlanVerdict::kTaken;
  });
}

TEST(CudnnPlans, ADamagedTextIsNoPlan) {
  const std::string json = first_plan(conv_forward_graph(kConv2, 128, DType::kBF16), {})->json();
  EXPECT_FALSE(CudnnPlan::from_json("", h200()));
  EXPECT_FALSE(CudnnPlan::from_json("no plan at all", h200()));
  EXPECT_FALSE(CudnnPlan::from_json(json.substr(0, json.size() / 2), h200()));
}

TEST(CudnnGraphs, DifferentGraphsHaveDifferentTexts) {
  std::set<std::string> texts;
  ConvGeometry stride = kConv2, pad = kConv2;
  stride.stride_h = 2;
  pad.bottom = 3;
  for (const ConvGeometry& g : {kConv2, stride, pad})
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      // The output's extents need not fit: text() does not promise that there is a plan.
      CudnnGraph graph;
      const auto x = graph.image(dtype, {128, 27, 27, 64}), w = graph.image(dtype, {192, 5, 5, 64});
      const auto y = graph.image(dtype, {128, g.stride_h == 2 ? 14 : g.bottom == 3 ? 28 : 27, 27, 192});
      graph.conv_forward(g, x, w, y);
      texts.insert(graph.text());
    }
  texts.insert(conv_fused_graph(kConv2, 128, DType::kF32, {.bias = true}).text());
  texts.insert(conv_fused_graph(kConv2, 128, DType::kF32, {.bias = true, .relu = true}).text());
  texts.insert(conv_fused_graph(kConv2, 128, DType::kF32, {.relu = true}).text());
  texts.insert(conv_weight_gradient_graph(kConv2, 128, DType::kF32).text());
  texts.insert(conv_data_gradient_graph(kConv2, 128, DType::kF32).text());
  texts.insert(conv_forward_graph(kConv2, 64, DType::kF32).text());
  for (const bool deterministic : {false, true})
    texts.insert(conv_masked_data_gradient_graph(kConv2, 128, DType::kF32, deterministic).text());
  EXPECT_EQ(texts.size(), 6u + 8u);
  EXPECT_EQ(conv_forward_graph(kConv2, 64, DType::kF32).text(), conv_forward_graph(kConv2, 64, DType::kF32).text());
}

TEST(CudnnErrors, NameTheCallAndTheCure) {
  try {
    CudnnDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    tensor.finalize();
    FAIL() << "an empty tensor descriptor was taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("cudnnBackendFinalize"));
    EXPECT_THAT(error.what(), testing::HasSubstr("CUDNN_STATUS_"));
    EXPECT_THAT(error.what(), testing::HasSubstr(";"));
  }
}

}  // namespace
}  // namespace owt
