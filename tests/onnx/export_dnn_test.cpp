// Outputs of exported models in OpenCV's ONNX reader, against the network itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <opencv2/dnn.hpp>
#include <set>

#include "data/synthetic.h"
#include "src/onnx/export.h"
#include "src/system/files.h"
#include "src/train/job.h"
#include "tests/support/runs.h"
#include "tests/support/saved_net.h"

namespace owt::onnx_dnn_test {
namespace {

constexpr int64_t kRows = 3;

std::vector<float> run_onnx(const std::string& file, const Tensor& images) {
  const Shape& s = images.shape();
  std::vector<float> planes = channels_first(images);
  const std::vector<int> extents = {static_cast<int>(s[0]), static_cast<int>(s[3]), static_cast<int>(s[1]),
                                    static_cast<int>(s[2])};
  cv::dnn::Net net = cv::dnn::readNetFromONNX(file);
  net.setInput(cv::Mat(extents, CV_32F, planes.data()));
  const cv::Mat y = net.forward();
  EXPECT_EQ(y.dims, 2);
  return {y.ptr<float>(), y.ptr<float>() + y.total()};
}

void expect_same(const std::vector<float>& found, const std::vector<float>& wanted, float error = 1e-4f) {
  ASSERT_EQ(found.size(), wanted.size());
  float largest = 0;
  for (const float value : wanted) largest = std::max(largest, std::abs(value));
  ASSERT_GT(largest, 0.01f) << "outputs too small to tell anything";
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], error * largest) << "output " << i;
}

std::vector<float> softmax(std::vector<float> logits, size_t classes) {
  for (size_t row = 0; row < logits.size(); row += classes) {
    double sum = 0;
    for (size_t c = 0; c < classes; ++c) sum += std::exp(static_cast<double>(logits[row + c]));
    for (size_t c = 0; c < classes; ++c)
      logits[row + c] = static_cast<float>(std::exp(static_cast<double>(logits[row + c])) / sum);
  }
  return logits;
}

// One net, or several, for each type of layer: keys of its layers, in front of a dense layer.
struct Case {
  std::string type;
  std::vector<std::string> keys;

  friend void PrintTo(const Case& one, std::ostream* out) {
    for (const std::string& layer : one.keys) *out << layer << "; ";
  }
};
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"conv", {"type='conv' out=6 kernel=[3,2] stride=[1,2] pad=[1,0]"}},
      {"conv", {"type='conv' out=6 kernel=3 groups=3 bias=false"}},
      {"conv", {"type='conv' out=5 kernel=3 stride=2 round='up' pad=1"}},
      {"conv", {"type='conv' out=4 kernel=3 dilation=[2,3] pad=2 stride=[1,2] round='up'"}},
      {"cosine", {"type='cosine' out=7"}},
      {"cosine", {"type='dense' out=6", "type='cosine' out=7"}},
      {"dense", {"type='dense' out=7", "type='relu'"}},
      {"dense", {"type='conv' out=4 kernel=1", "type='dense' out=7 bias=false"}},
      {"max_pool", {"type='max_pool' kernel=3 stride=2"}},
      {"max_pool", {"type='max_pool' kernel=3 stride=2 pad=1"}},
      {"max_pool", {"type='max_pool' kernel=3 stride=2 round='up'"}},
      {"max_pool", {"type='max_pool' kernel=3 stride=3 pad=1 round='up'"}},
      {"max_pool", {"type='max_pool' kernel=2 stride=3 pad=1 round='up'"}},
      {"avg_pool", {"type='avg_pool' kernel=3 stride=2"}},
      {"avg_pool", {"type='avg_pool' kernel=3 stride=2 pad=1"}},
      {"avg_pool", {"type='avg_pool' kernel=3 stride=2 pad=1 count_pad=false"}},
      {"avg_pool", {"type='avg_pool' kernel=3 stride=3 pad=1 round='up' count_pad=false"}},
      {"avg_pool", {"type='avg_pool' kernel=3 stride=2 round='up'"}},
      {"avg_pool", {"type='avg_pool' kernel=3 stride=3 pad=1 round='up'"}},
      {"global_avg_pool", {"type='global_avg_pool'"}},
      {"lrn", {"type='conv' out=9 kernel=1", "type='lrn' size=5 alpha=0.5 beta=0.75 k=2.0"}},
      {"lrn_within", {"type='conv' out=4 kernel=1", "type='lrn' size=3 alpha=0.5 beta=0.75 k=2.0 within=true"}},
      {"lrn_within", {"type='conv' out=4 kernel=1", "type='lrn' size=4 alpha=0.5 beta=0.5 within=true"}},
      {"batch_norm", {"type='conv' out=4 kernel=3", "type='batch_norm' eps=0.01"}},
      {"batch_norm", {"type='dense' out=8", "type='batch_norm'"}},
      {"batch_norm", {"type='dense' out=8 bias=false", "type='relu'", "type='batch_norm'"}},
      {"batch_norm", {"type='conv' out=4 kernel=3", "type='max_pool' kernel=2", "type='batch_norm'"}},
      {"batch_norm", {"type='conv' out=1 kernel=3", "type='max_pool' kernel=2", "type='batch_norm' name='b'"}},
      {"relu", {"type='relu'"}},
      {"residual",
       {"name='block' type='residual' "
        "body=[{name='a',type='conv',out=3,kernel=3,pad=1,bias=false},{name='b',type='batch_norm'}]"}},
      {"residual",
       {"name='block' type='residual' relu=false "
        "body=[{name='a',type='relu'},{name='b',type='conv',out=4,kernel=3,pad=1,stride=2}] "
        "shortcut=[{name='s',type='conv',out=4,kernel=1,stride=2}]"}},
      {"branches",
       {"name='mixed' type='branches' branches=[{}, "
        "{name='left',layers=[{name='a',type='conv',out=3,kernel=3,pad=1},{name='r',type='relu'}]}]"}},
      {"branches",
       {"name='mixed' type='branches' branches=[{layers=[{name='a',type='dense',out=3}]}, "
        "{layers=[{name='p',type='global_avg_pool'}]}]"}},
      {"scale",
       {"type='conv' out=4 kernel=3",
        "name='se' type='scale' body=[{name='pool',type='global_avg_pool'},{name='fc1',type='dense',out=3},"
        "{name='r',type='relu'},{name='fc2',type='dense',out=4},{name='gate',type='activation',kind='sigmoid'}]"}},
      {"scale",
       {"type='conv' out=3 kernel=1",
        "name='se' type='scale' body=[{name='p',type='avg_pool',kernel=8,stride=8},"
        "{name='c',type='conv',out=3,kernel=1},{name='gate',type='activation',kind='hard_sigmoid'}]"}},
      {"scale",
       {"type='dense' out=6",
        "name='se' type='scale' "
        "body=[{name='fc',type='dense',out=6},{name='gate',type='activation',kind='hard_sigmoid'}]"}},
      {"abs", {"type='conv' out=4 kernel=3", "type='activation' kind='abs'"}},
      {"gelu", {"type='conv' out=4 kernel=3", "type='activation' kind='gelu'"}},
      {"gelu", {"type='dense' out=6", "type='activation' kind='gelu' approximate='tanh'"}},
      {"hard_sigmoid", {"type='conv' out=4 kernel=3", "type='activation' kind='hard_sigmoid'"}},
      {"hard_swish", {"type='conv' out=4 kernel=3", "type='activation' kind='hard_swish'"}},
      {"layer_norm", {"type='conv' out=5 kernel=3", "type='layer_norm' eps=0.1"}},
      {"layer_norm", {"type='dense' out=6", "type='layer_norm' eps=0.1"}},
      {"leaky", {"type='conv' out=4 kernel=3", "type='activation' kind='leaky' slope=0.3"}},
      {"local", {"type='local' out=4 kernel=[3,2] stride=[1,2] pad=[1,0]"}},
      {"local", {"type='conv' out=4 kernel=3", "type='local' out=3 kernel=3 stride=2 round='up' bias=false"}},
      {"prelu", {"type='conv' out=4 kernel=3", "type='activation' kind='prelu'"}},
      {"prelu", {"type='dense' out=6", "type='activation' kind='prelu'"}},
      {"prelu", {"type='conv' out=4 kernel=3", "type='activation' kind='prelu' shared=true"}},
      {"relu6", {"type='conv' out=4 kernel=3", "type='activation' kind='relu6'"}},
      {"sigmoid", {"type='conv' out=4 kernel=3", "type='activation' kind='sigmoid'"}},
      {"silu", {"type='conv' out=4 kernel=3", "type='activation' kind='silu'"}},
      {"softplus", {"type='conv' out=4 kernel=3", "type='activation' kind='softplus'"}},
      {"square", {"type='conv' out=4 kernel=3", "type='activation' kind='square'"}},
      {"tanh", {"type='conv' out=4 kernel=3", "type='activation' kind='tanh'"}},
      {"drop_path", {"type='conv' out=4 kernel=3", "type='drop_path' rate=0.5"}},
      {"dropout", {"type='dropout' rate=0.5", "type='dense' out=9", "type='dropout' rate=0.5"}},
  };
  return all;
}

class OnnxLayerTest : public testing::TestWithParam<Case> {};

TEST_P(OnnxLayerTest, GivesTheSameOutputsInOpenCv) {
  for (const int side : {8, 9, 10}) {
    SCOPED_TRACE(side);
    std::vector<std::string> keys = GetParam().keys;
    keys.push_back("type='dense' out=5");
    const Settings settings = settings_of_layers(keys, concat("[3, ", side, ", ", side + 1, "]"), 5);
    SavedNet net(settings);
    export_onnx(settings, net.weights(), {.batch = kRows}, net.file("net.onnx"));
    const Tensor images = random_images(kRows, settings.model.input);
    expect_same(run_onnx(net.file("net.onnx"), images), net.logits(images));
  }
}
INSTANTIATE_TEST_SUITE_P(Layers, OnnxLayerTest, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Case>& info) {
                           return concat(info.param.type, "_", info.index);
                         });

TEST(OnnxLayers, EveryTypeThatCanBeWrittenIsAmongThem) {
  std::set<std::string> tried;
  for (const Case& one : cases()) tried.insert(one.type);
  EXPECT_THAT(onnx_layer_types(), testing::UnorderedElementsAreArray(tried));
}

TEST(OnnxDnn, AWholeNetGivesTheSameLogitsAndProbabilities) {
  const Settings settings = small_settings(kSmallRecipe);
  SavedNet net(settings);
  const Tensor images = random_images(kRows, settings.model.input);
  const std::vector<float> logits = net.logits(images);
  export_onnx(settings, net.weights(), {.batch = kRows}, net.file("logits.onnx"));
  expect_same(run_onnx(net.file("logits.onnx"), images), logits);
  export_onnx(settings, net.weights(), {.batch = kRows, .probabilities = true}, net.file("softmax.onnx"));
  expect_same(run_onnx(net.file("softmax.onnx"), images), softmax(logits, 10));
}

TEST(OnnxDnn, ANetThatEndsInCosinesIsItsEmbeddingUnlessTheHeadIsAskedFor) {
  const Settings settings = small_settings(cosine_recipe());
  SavedNet net(settings);
  const Tensor images = random_images(kRows, settings.model.input);
  std::vector<float> cosines = net.logits(images), logits = cosines;
  for (float& value : logits) value *= 8;
  export_onnx(settings, net.weights(), {.batch = kRows, .head = true}, net.file("head.onnx"));
  expect_same(run_onnx(net.file("head.onnx"), images), logits);
  export_onnx(settings, net.weights(), {.batch = kRows, .probabilities = true}, net.file("softmax.onnx"));
  expect_same(run_onnx(net.file("softmax.onnx"), images), softmax(logits, 10));

  export_onnx(settings, net.weights(), {.batch = kRows}, net.file("embedding.onnx"));
  const std::vector<float> embedding = run_onnx(net.file("embedding.onnx"), images);
  ASSERT_EQ(embedding.size(), kRows * 17u);
  const std::vector<float> weight = net.weight("fc3.weight");
  const auto cosine = [&](size_t row, size_t c) {
    double product = 0, of_x = 0, of_w = 0;
    for (size_t i = 0; i < 17; ++i) {
      const auto x = static_cast<double>(embedding[row * 17 + i]), w = static_cast<double>(weight[c * 17 + i]);
      product += x * w, of_x += x * x, of_w += w * w;
    }
    return static_cast<float>(product / std::sqrt(of_x * of_w));
  };
  for (size_t i = 0; i < cosines.size(); ++i) EXPECT_NEAR(cosine(i / 10, i % 10), cosines[i], 1e-4) << i;
}

TEST(OnnxDnn, TheProbabilitiesOfALogisticLossAreSigmoids) {
  const Settings settings = small_settings(kSmallRecipe, {{"loss.type", "logistic"}});
  SavedNet net(settings);
  const Tensor images = random_images(kRows, settings.model.input);
  std::vector<float> wanted = net.logits(images);
  for (float& value : wanted) value = 1 / (1 + std::exp(-value));
  export_onnx(settings, net.weights(), {.batch = kRows, .probabilities = true}, net.file("sigmoid.onnx"));
  expect_same(run_onnx(net.file("sigmoid.onnx"), images), wanted);
}

// The model without pairs: its activations are not rounded, and its weights are the rounded ones.
void remove_pairs(const std::string& file) {
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(read_file(file)));
  onnx::GraphProto& graph = *model.mutable_graph();
  std::map<std::string, onnx::TensorProto*> constants;
  for (onnx::TensorProto& tensor : *graph.mutable_initializer()) constants[tensor.name()] = &tensor;
  const auto floats = [&](const std::string& name) {
    std::vector<float> values(constants.at(name)->raw_data().size() / 4);
    std::memcpy(values.data(), constants.at(name)->raw_data().data(), values.size() * 4);
    return values;
  };
  std::map<std::string, std::string> instead;  // the value before a pair
  std::vector<onnx::NodeProto> kept;
  for (onnx::NodeProto node : graph.node()) {
    const std::string x = node.input(0), y = node.output(0);
    if (node.op_type() == "DequantizeLinear" && constants.contains(x)) {
      onnx::TensorProto& tensor = *constants.at(x);
      const std::vector<float> scales = floats(node.input(1));
      const bool bytes = tensor.data_type() == onnx::TensorProto::INT8;
      const std::string raw = tensor.raw_data();
      std::vector<float> values(raw.size() / (bytes ? 1 : 4));
      for (size_t i = 0; i < values.size(); ++i) {
        int32_t whole = 0;
        if (bytes)
          whole = static_cast<int8_t>(raw[i]);
        else
          std::memcpy(&whole, raw.data() + 4 * i, 4);
        values[i] = static_cast<float>(whole) * scales[i * scales.size() / values.size()];
      }
      tensor.set_name(y);
      tensor.set_data_type(onnx::TensorProto::FLOAT);
      tensor.set_raw_data(values.data(), values.size() * 4);
    } else if (node.op_type() == "DequantizeLinear" || node.op_type() == "QuantizeLinear") {
      instead[y] = instead.contains(x) ? instead[x] : x;
    } else {
      for (std::string& input : *node.mutable_input())
        if (instead.contains(input)) input = instead[input];
      kept.push_back(node);
    }
  }
  graph.clear_node();
  for (const onnx::NodeProto& node : kept) *graph.add_node() = node;
  write_bytes(file, model.SerializeAsString());
}

// Weights of 8 bits have errors of 0.2 % of the largest weight of a channel.
TEST(OnnxDnn, ConvertedWeightsGiveNearlyTheSameLogits) {
  const Settings settings = small_settings(recipe_of("[3, 12, 12]", "side = 12\ntrain_images = 50\nbatch = 12\n", R"(
    { name = "conv1", type = "conv", out = 6, kernel = 3 },
    { name = "norm1", type = "batch_norm" },
    { name = "relu1", type = "relu" },
    { name = "block", type = "residual", body = [
      { name = "a", type = "conv", out = 6, kernel = 3, pad = 1, groups = 2 },
      { name = "r", type = "relu" },
      { name = "b", type = "conv", out = 6, kernel = 3, pad = 1 }] },
    { name = "conv2", type = "conv", out = 8, kernel = 3, stride = 2 },
    { name = "fc1", type = "dense", out = 12 },
    { name = "relu2", type = "relu" },
    { name = "fc2", type = "dense", out = 10 })"));
  SavedNet net(settings);
  export_onnx(settings, net.weights(), {.batch = kRows, .calibration = {.images = 50}}, net.file("net.onnx"));
  remove_pairs(net.file("net.onnx"));
  const Tensor images = random_images(kRows, settings.model.input);
  const std::vector<float> wanted = net.logits(images), found = run_onnx(net.file("net.onnx"), images);
  expect_same(found, wanted, 0.03f);
  EXPECT_NE(found, wanted);
}

// The exported model gets the pixels of the centre crop; the network gets the evaluation loader's batch of the same
// image.
TEST(OnnxDnn, RawPixelsAreNormalisedAsTheRecipeDoes) {
  for (const char* augment : {"{ crop = 12, scale = 0.02, mean = 'pixel' }",
                              "{ crop = 12, scale = 2.0, mean = [120.0, 110.0, 100.0], std = [50.0, 60.0, 70.0] }",
                              "{ crop = 18, pad = 2, scale = 0.02, mean = 'channel', std = 'channel' }",
                              "{ crop = 12, scale = 2.0, mean = [120.0], std = [50.0] }",
                              "{ crop = 12, mean = [120.0, 110.0], std = [50.0, 60.0] }"}) {
    SCOPED_TRACE(augment);
    Overrides changes = {{"data.augment", augment}};
    const auto has = [&](const char* text) { return std::string(augment).find(text) != std::string::npos; };
    if (has("18")) changes.emplace_back("model.input", "[3, 18, 18]");
    if (has("[120.0]")) changes.emplace_back("model.input", "[1, 12, 12]");
    if (has("110.0]")) changes.emplace_back("model.input", "[2, 12, 12]");
    const Settings settings = small_settings(kSmallRecipe, changes);
    SavedNet net(settings);
    export_onnx(settings, net.weights(), {.batch = 1, .raw_pixels = true}, net.file("raw.onnx"));

    Job job;
    job.settings = settings;
    open_data(job, "");
    const Shape image = job.test->image(), crop = settings.model.input;
    std::vector<uint8_t> pixels(static_cast<size_t>(image.elements()));
    job.test->read(4, {}, pixels.data());
    Tensor values(crop.batch_of(1)), raw(crop.batch_of(1));
    job.augmenter->make({}, 4, pixels.data(), values.data());
    const int64_t shift = (image[0] - crop[0]) / 2;  // negative: padding
    for (int64_t y = 0; y < crop[0]; ++y)
      for (int64_t x = 0; x < crop[1]; ++x)
        for (int64_t c = 0; c < crop[2]; ++c) {
          const bool inside = 0 <= y + shift && y + shift < image[0] && 0 <= x + shift && x + shift < image[1];
          const int64_t source = ((y + shift) * image[1] + x + shift) * image[2] + c;
          raw.data()[(y * crop[1] + x) * crop[2] + c] =
              inside ? static_cast<float>(pixels[static_cast<size_t>(source)]) : 77.0f;  // the value there is ignored
        }
    expect_same(run_onnx(net.file("raw.onnx"), raw), net.logits(values));
  }
}

}  // namespace
}  // namespace owt::onnx_dnn_test
