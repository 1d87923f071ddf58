// INT8 export: ranges of activations, and the pairs of QuantizeLinear and DequantizeLinear. Values:
// onnx_dnn_test.cpp.
#include "src/onnx/export_int8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

#include <cstring>
#include <map>
#include <random>
#include <set>

#include "src/commands/features.h"
#include "src/onnx/export_ranges.h"
#include "src/system/files.h"
#include "tests/support/runs.h"
#include "tests/support/saved_net.h"

namespace owt::onnx_int8_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Key;
using ::testing::Not;

constexpr Calibration kAll{.images = 1000, .method = CalibrationMethod::kMinMax};

// A model after conversion, by the names of its values.
class Converted {
 public:
  explicit Converted(const Settings& settings, const Calibration& calibration = kAll) {
    const SavedNet net(settings);
    export_onnx(settings, net.weights(), {.calibration = calibration}, net.file("net.onnx"));
    EXPECT_TRUE(model_.ParseFromString(read_file(net.file("net.onnx"))));
    for (const auto& node : model_.graph().node()) {
      makers_[node.output(0)] = &node;
      for (const std::string& input : node.input()) readers_[input].push_back(node.op_type());
    }
    for (const auto& tensor : model_.graph().initializer()) constants_[tensor.name()] = &tensor;
  }

  const onnx::NodeProto& maker(const std::string& value) const { return *makers_.at(value); }
  std::string made_by(const std::string& value) const {
    const auto found = makers_.find(value);
    return found == makers_.end() ? "nothing" : found->second->op_type();
  }
  // The types of the operators between the pairs.
  std::vector<std::string> operators() const {
    std::vector<std::string> types;
    for (const auto& node : model_.graph().node())
      if (node.op_type() != "QuantizeLinear" && node.op_type() != "DequantizeLinear") types.push_back(node.op_type());
    return types;
  }
  // The operators of this type that readers cannot fuse with pairs around them.
  std::vector<std::string> outside(const std::string& type) const {
    std::vector<std::string> names;
    for (const auto& node : model_.graph().node()) {
      if (node.op_type() != type) continue;
      bool inside = true;
      for (const std::string& input : node.input()) inside &= made_by(input) == "DequantizeLinear";
      std::string y = node.output(0);
      if (readers_.at(y) == std::vector<std::string>{"Relu"})
        for (const auto& relu : model_.graph().node())
          if (relu.op_type() == "Relu" && relu.input(0) == y) y = relu.output(0);
      inside &= readers_.at(y) == std::vector<std::string>{"QuantizeLinear"};
      if (!inside) names.push_back(node.name());
    }
    return names;
  }
  // The values that the integers of a quantised activation stand for.
  ValueRange range(const std::string& value) const {
    const auto& pair = maker(value);
    float scale = 0;
    std::memcpy(&scale, constants_.at(pair.input(1))->raw_data().data(), sizeof scale);
    const int zero = static_cast<uint8_t>(constants_.at(pair.input(2))->raw_data()[0]);
    return {scale * static_cast<float>(-zero), scale * static_cast<float>(255 - zero)};
  }
  std::string metadata(const std::string& key) const {
    for (const auto& entry : model_.metadata_props())
      if (entry.key() == key) return entry.value();
    return "";
  }

 private:
  onnx::ModelProto model_;
  std::map<std::string, const onnx::NodeProto*> makers_;
  std::map<std::string, std::vector<std::string>> readers_;
  std::map<std::string, const onnx::TensorProto*> constants_;
};

Settings settings_of(const std::string& layers) {
  return small_settings(recipe_of("[3, 12, 12]", "side = 12\ntrain_images = 50\nbatch = 12\n", layers),
                        {{"run.device", "cpu"}});
}

const char* const kResidual = R"(
  { name = "conv1", type = "conv", out = 6, kernel = 3, bias = false },
  { name = "norm1", type = "batch_norm" },
  { name = "relu1", type = "relu" },
  { name = "block", type = "residual", body = [
    { name = "a", type = "conv", out = 6, kernel = 3, pad = 1 },
    { name = "r", type = "relu" },
    { name = "b", type = "conv", out = 6, kernel = 3, pad = 1 }] },
  { name = "mixed", type = "branches", branches = [
    { layers = [{ name = "p", type = "max_pool", kernel = 3, stride = 1, pad = 1 }] },
    { layers = [{ name = "c", type = "conv", out = 4, kernel = 1 }, { name = "cr", type = "relu" }] }] },
  { name = "conv2", type = "conv", out = 8, kernel = 3 },
  { name = "relu2", type = "relu" },
  { name = "pool", type = "global_avg_pool" },
  { name = "fc", type = "dense", out = 10 })";

TEST(OnnxInt8, WholeChainsOfOperatorsAreBetweenPairs) {
  const Converted model(settings_of(kResidual));
  EXPECT_THAT(model.operators(), ElementsAre("Conv", "Relu", "Conv", "Relu", "Conv", "Add", "Relu", "MaxPool", "Conv",
                                             "Relu", "Concat", "Conv", "Relu", "GlobalAveragePool", "Flatten", "Gemm"));
  for (const char* type : {"Conv", "Add", "MaxPool", "Concat", "GlobalAveragePool", "Flatten"})
    EXPECT_THAT(model.outside(type), ElementsAre()) << type;
  const onnx::NodeProto& last = model.maker("logits");
  EXPECT_EQ(last.op_type(), "Gemm");
  for (const std::string& input : last.input()) EXPECT_EQ(model.made_by(input), "DequantizeLinear") << input;
  EXPECT_EQ(model.metadata("owt.int8"), "minmax");
}

TEST(OnnxInt8, UnknownOperatorsStayBetweenThePairs) {
  const Converted model(settings_of(R"(
    { name = "conv1", type = "conv", out = 6, kernel = 3 },
    { name = "gelu1", type = "activation", kind = "gelu" },
    { name = "conv2", type = "conv", out = 8, kernel = 3 },
    { name = "norm", type = "lrn", size = 3 },
    { name = "fc", type = "dense", out = 10 })"));
  EXPECT_THAT(model.outside("Conv"), ElementsAre());
  EXPECT_EQ(model.made_by("gelu1"), "DequantizeLinear");
  EXPECT_EQ(model.made_by("gelu1.scaled"), "Div");
  EXPECT_EQ(model.made_by("conv1"), "DequantizeLinear");
}

// What is not clipped by the range of the pool is not needed by the pool.
TEST(OnnxInt8, AMaxPoolHasOneScale) {
  const Converted model(settings_of(R"(
    { name = "conv1", type = "conv", out = 6, kernel = 3 },
    { name = "pool1", type = "max_pool", kernel = 3, stride = 2 },
    { name = "relu1", type = "relu" },
    { name = "conv2", type = "conv", out = 8, kernel = 3 },
    { name = "fc", type = "dense", out = 10 })"));
  EXPECT_THAT(model.outside("MaxPool"), ElementsAre());
  for (const char* value : {"conv1", "pool1", "relu1"}) {
    EXPECT_EQ(model.range(value).low, 0) << value;
    EXPECT_EQ(model.range(value).high, model.range("relu1").high) << value;
  }
  EXPECT_LT(model.range("conv2").low, 0);
}

TEST(OnnxInt8, ARelu6IsAReluWhoseRangeEndsAtSix) {
  const Converted model(settings_of(R"(
    { name = "conv1", type = "conv", out = 6, kernel = 3 },
    { name = "relu1", type = "activation", kind = "relu6" },
    { name = "fc", type = "dense", out = 10 })"));
  EXPECT_THAT(model.operators(), ElementsAre("Conv", "Relu", "Flatten", "Gemm"));
  EXPECT_LE(model.range("relu1").high, 6.0001f);
  EXPECT_EQ(model.range("relu1").low, 0);
}

TEST(ActivationRangesTest, AreLeastAndLargestValuesOnTheTrainingImages) {
  const Settings settings = settings_of(kResidual);
  const SavedNet net(settings);
  const ActivationRanges ranges = activation_ranges(settings, net.weights(), {.calibration = kAll});
  EXPECT_THAT(ranges, Contains(Key("block.a")));
  EXPECT_THAT(ranges, Contains(Key("mixed.cr")));
  for (const char* layer : {"conv1", "norm1", "relu1", "block", "mixed", "conv2", "fc"}) {
    FeatureSource source;
    source.weights = net.weights();
    source.layer = layer;
    source.split = Split::kTrain;
    Features features(settings, source);
    ValueRange wanted;
    features.each([&](const Tensor& y) {
      for (int64_t i = 0; i < y.elements(); ++i) {
        wanted.low = std::min(wanted.low, y.data()[i]);
        wanted.high = std::max(wanted.high, y.data()[i]);
      }
    });
    EXPECT_NEAR(ranges.at(layer).low, wanted.low, 1e-4) << layer;
    EXPECT_NEAR(ranges.at(layer).high, wanted.high, 1e-4) << layer;
    EXPECT_GT(wanted.high, 0.1) << layer;
  }
}

TEST(ActivationRangesTest, ASampleIsEvenlySpreadOverTheImages) {
  const Settings settings = settings_of(kResidual);
  const SavedNet net(settings);
  FeatureSource source;
  source.weights = net.weights();
  source.split = Split::kTrain;
  const auto inputs = [&](int64_t spread, std::vector<int64_t> numbers) {
    source.spread = spread;
    source.numbers = std::move(numbers);
    std::vector<float> all;
    Features(settings, source).each_input([&](const Tensor& x) {
      all.insert(all.end(), x.data(), x.data() + x.elements());
    });
    return all;
  };
  EXPECT_EQ(inputs(4, {}), inputs(0, {0, 12, 25, 37}));
  EXPECT_EQ(inputs(60, {}), inputs(0, {}));
}

TEST(ActivationRangesTest, PercentilesAndKlClipOutliers) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 1);
  Magnitudes magnitudes{100, std::vector<int64_t>(2048)};
  for (int i = 0; i < 1000000; ++i) ++magnitudes.counts[static_cast<size_t>(std::abs(normal(random)) / 100 * 2048)];
  ++magnitudes.counts.back();
  EXPECT_NEAR(percentile_threshold(magnitudes), 3.89, 0.1);  // 1 - erf(3.89 / sqrt(2)) is 1e-4
  EXPECT_GT(kl_threshold(magnitudes, 128), 3);
  EXPECT_LT(kl_threshold(magnitudes, 128), 10);
  const Magnitudes even{2, std::vector<int64_t>(2048, 1000)};
  EXPECT_GT(percentile_threshold(even), 1.99f);
  EXPECT_GT(kl_threshold(even, 128), 1.9f);
  EXPECT_EQ(percentile_threshold({0, std::vector<int64_t>(2048)}), 0);
}

TEST(ActivationRangesTest, AUniformBackgroundDoesNotMakeKlClipTheRest) {
  Magnitudes strokes{6, std::vector<int64_t>(2048)};
  for (size_t i = 0; i < 2048; ++i) strokes.counts[i] = i < 800 ? 1000 : 3;
  for (size_t i = 40; i < 800; i += 97) strokes.counts[i] = 200'000;  // a background: a bin for each channel
  EXPECT_GT(kl_threshold(strokes, 255), 5.7f);
}

TEST(ActivationRangesTest, EachMethodGivesARangeWithinTheLargest) {
  const Settings settings = settings_of(kResidual);
  const SavedNet net(settings);
  const auto of = [&](CalibrationMethod method) {
    return activation_ranges(settings, net.weights(), {.calibration = {.images = 50, .method = method}});
  };
  const ActivationRanges all = of(CalibrationMethod::kMinMax);
  for (const CalibrationMethod method : {CalibrationMethod::kPercentile, CalibrationMethod::kKl}) {
    bool clips = false;
    for (const auto& [layer, range] : of(method)) {
      EXPECT_LE(all.at(layer).low, range.low) << layer;
      EXPECT_GE(all.at(layer).high, range.high) << layer;
      EXPECT_GT(range.high - range.low, 0) << layer;
      clips |= range.high < 0.99f * all.at(layer).high;
    }
    EXPECT_TRUE(clips);
  }
}

}  // namespace
}  // namespace owt::onnx_int8_test
