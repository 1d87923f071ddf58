#include "src/onnx/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
// sys/mman.h, which another test of the unit may include, defines the name of an enumerator.
#undef MAP_TYPE
#include <onnx/checker.h>
#include <onnx/onnx_pb.h>
#include <onnx/shape_inference/implementation.h>

#include <filesystem>
#include <map>
#include <set>

#include "src/system/files.h"
#include "tests/support/message_of.h"
#include "tests/support/runs.h"
#include "tests/support/saved_net.h"

namespace owt::onnx_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Throws;

onnx::ModelProto exported(const Settings& settings, const OnnxOptions& options = {}) {
  const SavedNet net(settings);
  export_onnx(settings, net.weights(), options, net.file("net.onnx"));
  onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(read_file(net.file("net.onnx"))));
  return model;
}

std::map<std::string, std::string> metadata(const onnx::ModelProto& model) {
  std::map<std::string, std::string> found;
  for (const auto& entry : model.metadata_props()) found[entry.key()] = entry.value();
  return found;
}

std::vector<std::string> operators(const onnx::ModelProto& model) {
  std::vector<std::string> types;
  for (const auto& node : model.graph().node()) types.push_back(node.op_type());
  return types;
}

std::string dims(const onnx::ValueInfoProto& value) {
  std::string text;
  for (const auto& dim : value.type().tensor_type().shape().dim())
    text += (text.empty() ? "" : " x ") + (dim.has_dim_param() ? dim.dim_param() : std::to_string(dim.dim_value()));
  return text;
}

TEST(Onnx, EveryLayerBecomesItsOperatorAndDropoutIsLeftOut) {
  EXPECT_THAT(operators(exported(small_settings(kSmallRecipe))),
              ElementsAre("Conv", "Relu", "LRN", "MaxPool", "Conv", "Relu", "AveragePool", "Flatten", "Gemm", "Relu",
                          "Gemm", "Relu", "Gemm"));
}

std::vector<std::string> operators_of(const std::vector<std::string>& keys) {
  return operators(exported(settings_of_layers(keys, "[3, 8, 8]", 5)));
}

TEST(Onnx, ABatchNormalisationIsFoldedIntoTheLayerBeforeIt) {
  const std::string conv = "type='conv' out=4 kernel=3", dense = "type='dense' out=5", norm = "type='batch_norm'",
                    relu = "type='relu'";
  EXPECT_THAT(operators_of({conv, norm, relu, dense}), ElementsAre("Conv", "Relu", "Flatten", "Gemm"));
  EXPECT_THAT(operators_of({dense, norm, relu, dense}), ElementsAre("Flatten", "Gemm", "Relu", "Gemm"));
  EXPECT_THAT(operators_of({conv, relu, norm, dense}),
              ElementsAre("Conv", "Relu", "BatchNormalization", "Flatten", "Gemm"));
}

TEST(Onnx, ABatchNormalisationBehindAMaxPoolIsFoldedUnlessAFactorIsNegative) {
  std::set<bool> seen;
  for (const std::string name : {"a", "b", "c", "d", "e", "f"}) {
    const std::vector<std::string> keys{"type='conv' out=1 kernel=3", "type='max_pool' kernel=2",
                                        "type='batch_norm' name='" + name + "'", "type='dense' out=5"};
    const bool negative = SavedNet(settings_of_layers(keys, "[3, 8, 8]", 5)).weight(name + ".weight")[0] < 0;
    seen.insert(negative);
    if (negative) {
      EXPECT_THAT(operators_of(keys), ElementsAre("Conv", "MaxPool", "BatchNormalization", "Flatten", "Gemm")) << name;
    } else {
      EXPECT_THAT(operators_of(keys), ElementsAre("Conv", "MaxPool", "Flatten", "Gemm")) << name;
    }
  }
  EXPECT_EQ(seen.size(), 2u);
}

TEST(Onnx, AFoldedLayerHasTheNameOfTheBatchNormalisation) {
  const onnx::ModelProto model = exported(settings_of_layers(
      {"type='conv' out=4 kernel=3 name='conv'", "type='batch_norm' name='norm'", "type='dense' out=5"}, "[3, 8, 8]",
      5));
  EXPECT_EQ(model.graph().node(0).output(0), "norm");
  EXPECT_THAT(model.graph().node(0).input(), ElementsAre("images", "conv.weight", "norm.bias"));
}

// The shapes that ONNX infers from the operators equal the layers' shapes.
TEST(Onnx, TheModelIsValidUnderEveryOpset) {
  for (int opset = kFirstOpset; opset <= kLastOpset; ++opset) {
    SCOPED_TRACE(opset);
    onnx::ModelProto model =
        exported(small_settings(kSmallRecipe), {.batch = 4, .opset = opset, .probabilities = true});
    EXPECT_EQ(model.opset_import(0).version(), opset);
    EXPECT_NO_THROW(onnx::checker::check_model(model));
    model.mutable_graph()->mutable_output(0)->mutable_type()->mutable_tensor_type()->clear_shape();
    onnx::shape_inference::InferShapes(model, onnx::OpSchemaRegistry::Instance(), onnx::ShapeInferenceOptions(true, 1));
    EXPECT_EQ(dims(model.graph().output(0)), "4 x 10");
  }
}

// The small recipe's weights are smaller than a tensor that is worth a place outside, so one layer is widened.
TEST(Onnx, WeightsThatDoNotFitIntoTheFileAreBesideIt) {
  std::string recipe = kSmallRecipe;
  recipe.replace(recipe.find("classes = 10"), 12, "classes = 20000");
  recipe.replace(recipe.find("out = 10\n"), 9, "out = 20000\n");
  const Settings settings = small_settings(recipe);
  const SavedNet net(settings);
  const auto exported = [&](int64_t most_bytes) {
    export_onnx(settings, net.weights(), {.most_bytes = most_bytes}, net.file("net.onnx"));
    onnx::ModelProto model;
    EXPECT_TRUE(model.ParseFromString(read_file(net.file("net.onnx"))));
    return model;
  };
  const onnx::ModelProto inside = exported(1 << 30);
  EXPECT_FALSE(std::filesystem::exists(net.file("net.onnx.data")));
  onnx::ModelProto outside = exported(1 << 20);
  EXPECT_NO_THROW(onnx::checker::check_model(net.file("net.onnx")));
  EXPECT_LT(std::filesystem::file_size(net.file("net.onnx")), 1u << 20);
  const std::string data = read_file(net.file("net.onnx.data"));
  int moved = 0;
  for (onnx::TensorProto& tensor : *outside.mutable_graph()->mutable_initializer()) {
    if (tensor.data_location() != onnx::TensorProto::EXTERNAL) continue;
    std::map<std::string, std::string> place;
    for (const auto& entry : tensor.external_data()) place[entry.key()] = entry.value();
    EXPECT_EQ(place["location"], "net.onnx.data");
    EXPECT_EQ(std::stoull(place["offset"]) % 4096, 0u);
    tensor.set_raw_data(data.substr(std::stoull(place["offset"]), std::stoull(place["length"])));
    tensor.clear_external_data();
    tensor.clear_data_location();
    ++moved;
  }
  EXPECT_EQ(moved, 1);
  EXPECT_EQ(outside.SerializeAsString(), inside.SerializeAsString());
}

TEST(Onnx, ABatchIsAnyNumberOfImagesUnlessItIsSaid) {
  const onnx::ModelProto any = exported(small_settings(kSmallRecipe));
  EXPECT_EQ(dims(any.graph().input(0)), "N x 3 x 12 x 12");
  EXPECT_EQ(dims(any.graph().output(0)), "N x 10");
  const onnx::ModelProto fixed = exported(small_settings(kSmallRecipe), {.batch = 8});
  EXPECT_EQ(dims(fixed.graph().input(0)), "8 x 3 x 12 x 12");
  EXPECT_EQ(dims(fixed.graph().output(0)), "8 x 10");
  const onnx::ModelProto grey = exported(small_settings(kSmallRecipe, {{"model.input", "[1, 12, 12]"}}));
  EXPECT_EQ(dims(grey.graph().input(0)), "N x 1 x 12 x 12");
}

TEST(Onnx, TheMetadataSaysHowToNormalise) {
  const Overrides given = {{"data.augment", "{ crop = 12, mean = [123.7, 116.0, 104], std = [58.4, 57.1, 57.4] }"}};
  auto found = metadata(exported(small_settings(kSmallRecipe, given)));
  EXPECT_EQ(found["owt.mean"], "123.7 116 104");
  EXPECT_EQ(found["owt.std"], "58.4 57.1 57.4");
  EXPECT_EQ(found["owt.scale"], "1");
  EXPECT_EQ(found["owt.channels"], "RGB");
  found = metadata(exported(small_settings(kSmallRecipe)));
  EXPECT_THAT(found["owt.mean"], HasSubstr("each pixel"));
  found = metadata(exported(small_settings(kSmallRecipe), {.raw_pixels = true}));
  EXPECT_EQ(found["owt.input"], "pixels 0 to 255");
  EXPECT_EQ(found.count("owt.mean"), 0u);
  found = metadata(exported(small_settings(kSmallRecipe, {{"model.input", "[1, 12, 12]"}})));
  EXPECT_EQ(found["owt.channels"], "grey");
}

TEST(Onnx, LayersMayBeCalledLikeTheInputAndTheOutputs) {
  const Settings settings =
      settings_of_layers({"type='relu' name='logits'", "type='dense' out=5 name='images'"}, "[3, 4, 4]", 5);
  const onnx::ModelProto model = exported(settings);
  EXPECT_NO_THROW(onnx::checker::check_model(model));
  EXPECT_EQ(model.graph().input(0).name(), "images");
  EXPECT_EQ(model.graph().output(0).name(), "logits");
}

TEST(Onnx, WeightsOfAnotherModelAreRefused) {
  const SavedNet other(
      settings_of_layers({"type='conv' out=16 kernel=3 name='conv1'", "type='dense' out=9"}, "[1, 9, 9]", 9));
  EXPECT_THAT(
      message_of([&] { export_onnx(small_settings(kSmallRecipe), other.weights(), {}, other.file("net.onnx")); }),
      HasSubstr("'conv1.weight' is 16x1x3x3, the model wants 16x3x3x3"));
}

TEST(Onnx, AnEvenNormalisationWindowIsRefused) {
  const Settings settings = settings_of_layers({"type='lrn' size=4", "type='dense' out=5"}, "[8, 4, 4]", 5);
  EXPECT_THAT(message_of([&] { exported(settings); }), HasSubstr("layer 'layer0' normalises over 4 channels"));
}

TEST(Onnx, AFailedWriteLeavesTheOldFile) {
  const Settings settings = small_settings(kSmallRecipe);
  const SavedNet net(settings);
  write_bytes(net.file("net.onnx"), "old");
  const SmallDisk disk(4096);
  EXPECT_THAT([&] { export_onnx(settings, net.weights(), {}, net.file("net.onnx")); }, Throws<Error>());
  EXPECT_EQ(read_file(net.file("net.onnx")), "old");
}

// docs/Versioning.md of ONNX: the version of the format that came with an opset.
TEST(Onnx, TheFormatIsTheOldestThatKnowsTheOpset) {
  const std::map<int, int64_t> versions{{11, 6}, {12, 7}, {13, 7}, {14, 7}, {15, 8}, {16, 8}, {17, 8}};
  for (const auto& [opset, version] : versions)
    EXPECT_EQ(exported(small_settings(kSmallRecipe), {.opset = opset}).ir_version(), version) << opset;
}

}  // namespace
}  // namespace owt::onnx_test
