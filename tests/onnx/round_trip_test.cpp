// What owt exports, it imports again.
#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

#include "src/onnx/export.h"
#include "src/onnx/import.h"
#include "src/system/files.h"
#include "tests/support/saved_net.h"

namespace owt::onnx_round_trip_test {
namespace {

// Exports a network, imports the file and exports the result: what owt has written, it reads.
onnx::ModelProto exported(const Settings& settings, const std::string& weights, const std::string& file) {
  export_onnx(settings, weights, {.opset = 17}, file);
  onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(read_file(file)));
  return model;
}

// Operators and weights, without names.
std::string content(const onnx::ModelProto& model) {
  std::string text;
  for (onnx::NodeProto node : model.graph().node()) {
    node.clear_name();
    node.clear_input();
    node.clear_output();
    text += node.SerializeAsString();
  }
  for (const onnx::TensorProto& tensor : model.graph().initializer()) text += tensor.raw_data();
  return text;
}

void expect_round_trip(const Settings& settings) {
  const SavedNet net(settings);
  const onnx::ModelProto first = exported(settings, net.weights(), net.file("net.onnx"));
  const std::string model = net.file("again.toml"), weights = net.file("again.safetensors");
  import_onnx({net.file("net.onnx"), model, weights});
  const onnx::ModelProto second = exported(read_settings(model), weights, net.file("again.onnx"));
  EXPECT_EQ(first.graph().node_size(), second.graph().node_size());
  EXPECT_TRUE(content(first) == content(second));
}

TEST(OnnxRoundTrip, KeepsTheLayersOfModels) {
  for (const char* name : {"cifar10_resnet20", "cifar10_94", "squeezenet", "mobilenet_v2"}) {
    SCOPED_TRACE(name);
    expect_round_trip(read_settings(concat(OWT_SOURCE_DIR, "/configs/models/", name, ".toml")));
  }
}

TEST(OnnxRoundTrip, KeepsEveryLayerThatIsAnOperator) {
  expect_round_trip(settings_of_layers(
      {"name='l1' type='conv' out=6 kernel=3 pad=[2,1] dilation=[2,1] stride=[1,2] groups=2",
       "name='l2' type='lrn' size=3 k=2.0", "name='l3' type='activation' kind='prelu'",
       "name='l4' type='activation' kind='leaky' slope=0.1", "name='l5' type='activation' kind='hard_swish'",
       "name='l6' type='activation' kind='hard_sigmoid'",
       "name='l7' type='scale' "
       "body=[{name='p',type='global_avg_pool'},{name='f',type='dense',out=6},{name='s',type='activation',"
       "kind='sigmoid'}]",
       "name='l8' type='avg_pool' kernel=3 stride=1 pad=1 count_pad=false",
       "name='l9' type='activation' kind='prelu' shared=true",
       "name='l10' type='residual' relu=false "
       "body=[{name='c',type='conv',out=6,kernel=1},{name='n',type='batch_norm',eps=0.001}]",
       "name='l11' type='branches' branches=[{},{layers=[{name='d',type='conv',out=2,kernel=3,pad=1}]}]",
       "name='l15' type='layer_norm' eps=0.01", "name='l12' type='dense' out=5", "name='l16' type='layer_norm'",
       "name='l13' type='activation' kind='silu'", "name='l14' type='dense' out=3 bias=false"},
      "[4, 8, 8]", 3));
}

}  // namespace
}  // namespace owt::onnx_round_trip_test
