#include "src/onnx/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

#include <filesystem>

#include "src/files/safetensors.h"
#include "src/system/files.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_folder.h"

namespace owt::onnx_import_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A graph under construction with the input "x", N x 4 x 6 x 6.
class Graph {
 public:
  Graph() {
    graph().set_name("net");
    add_input("x", {0, 4, 6, 6});
  }

  onnx::GraphProto& graph() { return *model_.mutable_graph(); }

  void add_input(const std::string& name, const std::vector<int64_t>& dims) {
    onnx::ValueInfoProto& input = *graph().add_input();
    input.set_name(name);
    onnx::TensorShapeProto& shape = *input.mutable_type()->mutable_tensor_type()->mutable_shape();
    for (const int64_t dim : dims) {
      onnx::TensorShapeProto::Dimension& made = *shape.add_dim();
      if (dim > 0) made.set_dim_value(dim);
    }
  }

  // Adds a node whose output has its name; returns the name.
  std::string add(const std::string& op, const std::string& name, const std::vector<std::string>& inputs,
                  const std::map<std::string, std::vector<int64_t>>& lists = {},
                  const std::map<std::string, int64_t>& numbers = {}, const std::map<std::string, float>& floats = {}) {
    onnx::NodeProto& node = *graph().add_node();
    node.set_op_type(op);
    node.set_name(name);
    node.add_output(name);
    for (const std::string& input : inputs) node.add_input(input);
    const auto attribute = [&](const std::string& key, onnx::AttributeProto::AttributeType type) {
      onnx::AttributeProto* made = node.add_attribute();
      made->set_name(key);
      made->set_type(type);
      return made;
    };
    for (const auto& [key, values] : lists) {
      onnx::AttributeProto* made = attribute(key, onnx::AttributeProto::INTS);
      for (const int64_t value : values) made->add_ints(value);
    }
    for (const auto& [key, value] : numbers) attribute(key, onnx::AttributeProto::INT)->set_i(value);
    for (const auto& [key, value] : floats) attribute(key, onnx::AttributeProto::FLOAT)->set_f(value);
    return name;
  }

  // A parameter with the numbers 0, 1, 2 and so on, times `step`.
  std::string param(const std::string& name, const std::vector<int64_t>& dims, float step = 1) {
    onnx::TensorProto& tensor = *graph().add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(onnx::TensorProto::FLOAT);
    int64_t elements = 1;
    for (const int64_t dim : dims) {
      tensor.add_dims(dim);
      elements *= dim;
    }
    for (int64_t i = 0; i < elements; ++i) tensor.add_float_data(step * static_cast<float>(i));
    return name;
  }
  std::string number(const std::string& name, float value) {
    onnx::TensorProto& tensor = *graph().add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(onnx::TensorProto::FLOAT);
    tensor.add_float_data(value);
    return name;
  }

  // A convolution of kernel 1 that keeps the channels.
  std::string conv(const std::string& name, const std::string& x, int64_t channels = 4) {
    return add("Conv", name, {x, param(name + ".w", {channels, channels, 1, 1})});
  }
  // The mean over the image, and a dense layer.
  void classify(const std::string& x, int64_t channels = 4) {
    const std::string means = add("GlobalAveragePool", "means", {x});
    add("Gemm", "logits", {add("Flatten", "rows", {means}), param("fc.w", {3, channels})}, {}, {{"transB", 1}});
    graph().add_output()->set_name("logits");
  }
  std::string bytes() const { return model_.SerializeAsString(); }

 private:
  onnx::ModelProto model_;
};

struct Imported {
  TempFolder folder{};
  std::string text{};
  ImportOutcome outcome{};

  std::string weights() const { return folder.file("net.safetensors"); }
  std::vector<float> weight(const std::string& name) const {
    const Tensor values = SafetensorsReader(weights()).read(name);
    return {values.data(), values.data() + values.elements()};
  }
};

void import_into(Imported& to, const std::string& bytes, ImportOptions options = {}) {
  write_bytes(to.folder.file("net.onnx"), bytes);
  options.onnx = to.folder.file("net.onnx");
  options.model = to.folder.file("net.toml");
  options.weights = to.weights();
  to.outcome = import_onnx(options);
  to.text = read_file(options.model);
}

// The text of the model's layers up to the mean that classify() adds.
std::string layers_of(Graph& graph) {
  Imported to;
  import_into(to, graph.bytes());
  const size_t begin = to.text.find("layer = [\n") + 10, pool = to.text.rfind("type = \"global_avg_pool\"");
  return to.text.substr(begin, to.text.rfind("  {", pool) - begin);
}

std::string refusal_of(Graph& graph, const ImportOptions& options = {}) {
  Imported to;
  const std::string message = message_of([&] { import_into(to, graph.bytes(), options); });
  EXPECT_FALSE(std::filesystem::exists(to.weights())) << "a failed import leaves no files";
  EXPECT_FALSE(std::filesystem::exists(to.folder.file("net.toml")));
  return message;
}

TEST(OnnxImport, AConvolutionGetsItsWindowsAndItsWeights) {
  Graph graph;
  const std::string w = graph.param("w", {2, 2, 3, 5});
  graph.classify(graph.add("Conv", "conv", {"x", w},
                           {{"pads", {1, 2, 1, 2}}, {"strides", {2, 1}}, {"kernel_shape", {3, 5}}}, {{"group", 2}}),
                 2);
  Imported to;
  import_into(to, graph.bytes());
  EXPECT_THAT(to.text,
              HasSubstr("{ name = \"conv1\", type = \"conv\", out = 2, kernel = [3, 5], stride = [2, 1], pad = "
                        "[1, 2], groups = 2, bias = false },\n"));
  EXPECT_THAT(to.text, AllOf(HasSubstr("input = [4, 6, 6]"), HasSubstr("classes = 3")));
  EXPECT_EQ(to.weight("conv1.weight")[31], 31);
  EXPECT_EQ(to.weight("fc1.weight")[5], 5);
  EXPECT_EQ(to.outcome.layers, 3);
  EXPECT_EQ(to.outcome.values, 60 + 6);
}

TEST(OnnxImport, ValuesThatMeetInASumAreAResidualBlock) {
  Graph graph;
  const std::string first = graph.conv("a", "x"), body = graph.conv("b", first);
  graph.classify(graph.add("Relu", "y", {graph.add("Add", "sum", {body, first})}));
  EXPECT_EQ(layers_of(graph),
            "  { name = \"conv1\", type = \"conv\", out = 4, kernel = 1, bias = false },\n"
            "  { name = \"block1\", type = \"residual\", body = [\n"
            "      { name = \"conv2\", type = \"conv\", out = 4, kernel = 1, bias = false },\n"
            "    ] },\n");
}

TEST(OnnxImport, TheLongerOfTwoBranchesIsTheBody) {
  Graph graph;
  const std::string shortcut = graph.conv("s", "x"), body = graph.conv("b", graph.add("Relu", "r", {"x"}));
  graph.classify(graph.add("Add", "sum", {shortcut, body}));
  const std::string text = layers_of(graph);
  EXPECT_THAT(text, HasSubstr("type = \"residual\", relu = false, body = [\n      { name = \"relu1\""));
  EXPECT_THAT(text, HasSubstr("], shortcut = [\n      { name = \"conv1\""));
}

// DenseNet's second block gets x, a and b. It is a concatenation of [x, a] and b.
TEST(OnnxImport, ConcatenationsThatGrowAreBlocksInARow) {
  Graph graph;
  const std::string a = graph.conv("a", "x"), first = graph.add("Concat", "xa", {"x", a}, {}, {{"axis", 1}});
  const std::string b = graph.conv("b", first, 8);
  graph.classify(graph.add("Concat", "xab", {"x", a, b}, {}, {{"axis", 1}}), 16);
  const std::string text = layers_of(graph);
  EXPECT_THAT(text, AllOf(HasSubstr("  { name = \"mixed1\", type = \"branches\""),
                          HasSubstr("\n  { name = \"mixed2\", type = \"branches\"")));
}

// Exporters merge a concatenation inside another one.
TEST(OnnxImport, BranchesThatShareTheirBeginningAreABlockInside) {
  Graph graph;
  const std::string a = graph.conv("a", "x"), shared = graph.conv("s", "x");
  const std::string b = graph.conv("b", shared), c = graph.conv("c", shared);
  graph.classify(graph.add("Concat", "all", {a, b, c}, {}, {{"axis", 1}}), 12);
  EXPECT_THAT(layers_of(graph), HasSubstr("        { name = \"conv2\", type = \"conv\", out = 4, kernel = 1, bias = "
                                          "false },\n        { name = \"mixed2\", type = \"branches\", branches = ["));
}

TEST(OnnxImport, GatesAreActivations) {
  Graph graph;
  std::string x = graph.add("Mul", "silu", {"x", graph.add("Sigmoid", "s", {"x"})});
  x = graph.add("Mul", "square", {x, x});
  const std::string third = graph.number("third", 3), sixth = graph.number("sixth", 6), none = graph.number("none", 0);
  const std::string sum = graph.add("Clip", "clip", {graph.add("Add", "plus3", {x, third}), none, sixth});
  x = graph.add("Div", "hard_swish", {graph.add("Mul", "by", {x, sum}), sixth});
  x = graph.add("Mul", "hard", {x, graph.add("HardSigmoid", "gate", {x}, {}, {}, {{"alpha", 1.0f / 6}})});
  graph.classify(x);
  const std::string text = layers_of(graph);
  EXPECT_EQ(text,
            "  { name = \"act1\", type = \"activation\", kind = \"silu\" },\n"
            "  { name = \"act2\", type = \"activation\", kind = \"square\" },\n"
            "  { name = \"act3\", type = \"activation\", kind = \"hard_swish\" },\n"
            "  { name = \"act4\", type = \"activation\", kind = \"hard_swish\" },\n");
}

// Both orders of the half in x * (1 + erf(x / sqrt(2))) / 2.
TEST(OnnxImport, TheErrorFunctionIsPartOfGelu) {
  Graph graph;
  const std::string root = graph.number("root", std::sqrt(2.0f)), one = graph.number("one", 1),
                    half = graph.number("half", 0.5f);
  const auto normal = [&](const std::string& of, const std::string& x) {
    return graph.add("Add", of + "sum", {graph.add("Erf", of + "erf", {graph.add("Div", of + "div", {x, root})}), one});
  };
  std::string x = graph.add("Mul", "y1", {graph.add("Mul", "p1", {"x", normal("a", "x")}), half});
  x = graph.add("Mul", "y2", {graph.add("Mul", "h2", {x, half}), normal("b", x)});
  x = graph.add("Gelu", "y3", {x});
  graph.classify(x);
  EXPECT_EQ(layers_of(graph),
            "  { name = \"act1\", type = \"activation\", kind = \"gelu\" },\n"
            "  { name = \"act2\", type = \"activation\", kind = \"gelu\" },\n"
            "  { name = \"act3\", type = \"activation\", kind = \"gelu\" },\n");
}

TEST(OnnxImport, AFactorForEachChannelIsASqueezeAndExcitation) {
  Graph graph;
  const std::string means = graph.add("GlobalAveragePool", "squeeze", {"x"});
  const std::string gate = graph.add("Sigmoid", "gate", {graph.conv("excite", means)});
  graph.classify(graph.add("Mul", "y", {gate, "x"}));
  EXPECT_THAT(layers_of(graph), AllOf(HasSubstr("{ name = \"scale1\", type = \"scale\", body = ["),
                                      HasSubstr("{ name = \"fc1\", type = \"dense\", out = 4, bias = false },")));
}

// ConvNeXt's block: channels-last products, and a trained factor for each channel.
TEST(OnnxImport, ProductsOfChannelsLastImagesAreConvolutions) {
  Graph graph;
  std::string x = graph.add("Transpose", "last", {"x"}, {{"perm", {0, 2, 3, 1}}});
  x = graph.add("LayerNormalization", "norm", {x, graph.param("g", {4}), graph.param("h", {4})}, {}, {{"axis", -1}},
                {{"epsilon", 1e-6f}});
  x = graph.add("Add", "biased",
                {graph.param("b", {2}, 0.5f), graph.add("MatMul", "product", {x, graph.param("m", {4, 2})})});
  x = graph.add("Transpose", "first", {x}, {{"perm", {0, 3, 1, 2}}});
  graph.classify(graph.add("Mul", "scaled", {x, graph.param("layer_scale", {2, 1, 1})}), 2);
  Imported to;
  import_into(to, graph.bytes());
  EXPECT_THAT(to.text, AllOf(HasSubstr("type = \"layer_norm\", eps = 1e-06"),
                             HasSubstr("{ name = \"conv1\", type = \"conv\", out = 2, kernel = 1 },"),
                             HasSubstr("{ name = \"conv2\", type = \"conv\", out = 2, kernel = 1, groups = 2, decay = "
                                       "0.0, bias = false },")));
  EXPECT_THAT(to.weight("conv1.weight"), ElementsAre(0, 2, 4, 6, 1, 3, 5, 7));
  EXPECT_THAT(to.weight("conv1.bias"), ElementsAre(0, 0.5f));
  EXPECT_THAT(to.weight("conv2.weight"), ElementsAre(0, 1));
}

TEST(OnnxImport, NumbersOfTheProgramAreNotTrained) {
  Graph graph;
  const std::string number = graph.add("Constant", "number", {}, {}, {}, {{"value_float", 2}});
  graph.classify(
      graph.add("Sub", "centred", {graph.add("Mul", "twice", {"x", number}), graph.param("offsets", {1, 4, 1, 1})}));
  Imported to;
  import_into(to, graph.bytes());
  EXPECT_THAT(to.text, HasSubstr("kernel = 1, groups = 4, lr = 0.0, decay = 0.0, bias = { decay = 0.0 } }"));
  EXPECT_THAT(to.weight("conv1.weight"), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(to.weight("conv1.bias"), ElementsAre(0, -1, -2, -3));
}

TEST(OnnxImport, ABatchNormalisationStaysTrainable) {
  Graph graph;
  graph.classify(graph.add(
      "BatchNormalization", "bn",
      {"x", graph.param("w", {4}), graph.param("b", {4}, 2), graph.param("m", {4}, 3), graph.param("v", {4}, 4)}, {},
      {}, {{"momentum", 0.99f}, {"epsilon", 1e-3f}}));
  Imported to;
  import_into(to, graph.bytes());
  EXPECT_THAT(to.text, HasSubstr("type = \"batch_norm\", eps = 0.001, momentum = 0.01, weight = { decay = 0.0 }"));
  EXPECT_EQ(to.weight("norm1.weight")[3], 3);
  EXPECT_EQ(to.weight("norm1.bias")[3], 6);
  EXPECT_EQ(to.weight("norm1.running_mean")[3], 9);
  EXPECT_EQ(to.weight("norm1.running_var")[3], 12);
}

// timm's ConvNeXt reshapes its factors in the graph.
TEST(OnnxImport, ConstantsMayBeReshaped) {
  Graph graph;
  onnx::TensorProto& shape = *graph.graph().add_initializer();
  shape.set_name("shape");
  shape.set_data_type(onnx::TensorProto::INT64);
  shape.add_dims(4);
  for (const int64_t dim : {1, -1, 1, 1}) shape.add_int64_data(dim);
  const std::string factors = graph.add("Reshape", "factors", {graph.param("gamma", {4}), "shape"});
  graph.classify(graph.add("Mul", "scaled", {"x", factors}));
  Imported to;
  import_into(to, graph.bytes());
  EXPECT_THAT(to.weight("conv1.weight"), ElementsAre(0, 1, 2, 3));
  shape.set_int64_data(1, 5);
  EXPECT_THAT(refusal_of(graph), HasSubstr("'factors', Reshape, makes a shape of other numbers of elements"));
}

TEST(OnnxImport, PadsOfOneSideBecomeWindowsRoundedUp) {
  Graph graph;
  const std::string w = graph.param("w", {4, 4, 3, 3});
  const std::string y = graph.add("Conv", "conv", {"x", w}, {{"pads", {0, 0, 1, 1}}, {"strides", {2, 2}}});
  graph.classify(
      graph.add("MaxPool", "pool", {y}, {{"kernel_shape", {2, 2}}, {"strides", {2, 2}}}, {{"ceil_mode", 1}}));
  EXPECT_EQ(layers_of(graph),
            "  { name = \"conv1\", type = \"conv\", out = 4, kernel = 3, stride = 2, round = \"up\", bias = false },\n"
            "  { name = \"pool1\", type = \"max_pool\", kernel = 2, stride = 2, round = \"up\" },\n");
}

// One dimension needs the windows rounded up, the other rounded down.
TEST(OnnxImport, PadsOfOneSideOfOneDimensionAreRefused) {
  for (const char* op : {"Conv", "MaxPool"}) {
    Graph graph;
    std::vector<std::string> inputs{"x"};
    std::map<std::string, std::vector<int64_t>> lists{{"pads", {0, 0, 1, 0}}, {"strides", {2, 2}}};
    if (op == std::string("Conv"))
      inputs.push_back(graph.param("w", {4, 4, 3, 3}));
    else
      lists["kernel_shape"] = {3, 3};
    graph.classify(graph.add(op, "window", inputs, lists));
    EXPECT_THAT(refusal_of(graph), HasSubstr("no layer has as many windows")) << op;
  }
}

TEST(OnnxImport, AMeanMayLeavePaddingOut) {
  Graph graph;
  const std::map<std::string, std::vector<int64_t>> windows{{"kernel_shape", {3, 3}}, {"pads", {1, 1, 1, 1}}};
  const std::string y = graph.add("AveragePool", "without", {"x"}, windows);
  graph.classify(graph.add("AveragePool", "with", {y}, windows, {{"count_include_pad", 1}}));
  EXPECT_EQ(layers_of(graph),
            "  { name = \"pool1\", type = \"avg_pool\", kernel = 3, stride = 1, pad = 1, count_pad = false },\n"
            "  { name = \"pool2\", type = \"avg_pool\", kernel = 3, stride = 1, pad = 1 },\n");
}

// x, relu(x) and a constant for each channel: the last is a convolution of kernel 1 in one of two sums.
TEST(OnnxImport, ConstantsOfSumsAreAddedOrRefused) {
  Graph graph;
  graph.classify(graph.add("Sum", "sum", {"x", graph.param("c", {4, 1, 1})}));
  EXPECT_THAT(layers_of(graph), HasSubstr("type = \"conv\", out = 4, kernel = 1, groups = 4"));
  for (const char* op : {"Sum", "Concat"}) {
    Graph more;
    more.classify(more.add(op, "all", {"x", more.add("Relu", "y", {"x"}), more.param("c", {1, 4, 6, 6})}));
    EXPECT_THAT(refusal_of(more), HasSubstr("'all', " + std::string(op) + ", combines several values and a constant"));
  }
}

TEST(OnnxImport, OnlyAConstantForEachChannelIsABias) {
  const auto sum = [](Graph& graph, const std::vector<int64_t>& dims) {
    graph.classify(graph.add("Add", "sum", {graph.conv("conv", "x"), graph.param("term", dims)}));
  };
  Graph graph;
  sum(graph, {1, 4, 1, 1});
  EXPECT_EQ(layers_of(graph), "  { name = \"conv1\", type = \"conv\", out = 4, kernel = 1 },\n");
  for (const std::vector<int64_t>& dims : {std::vector<int64_t>{4}, {1, 1, 2, 2}, {1, 1, 1, 4}}) {
    Graph other;
    sum(other, dims);
    EXPECT_THAT(refusal_of(other), HasSubstr("a constant that is not a number for each channel"));
  }
  Graph slopes;
  slopes.classify(slopes.add("PRelu", "act", {"x", slopes.param("slope", {4})}));
  EXPECT_THAT(refusal_of(slopes), HasSubstr("has other slopes than one for each channel"));
}

TEST(OnnxImport, WhatNoLayerComputesIsNamedWithItsNode) {
  const auto refused = [](const auto& build) {
    Graph graph;
    graph.classify(build(graph));
    return refusal_of(graph);
  };
  EXPECT_THAT(refused([](Graph& g) {
                return g.add("InstanceNormalization", "in1", {"x", g.param("a", {4})});
              }),
              HasSubstr("net.onnx: node 'in1', InstanceNormalization, which no layer computes"));
  EXPECT_THAT(refused([](Graph& g) {
                return g.add("MatMul", "attention", {"x", g.conv("a", "x")});
              }),
              HasSubstr("'attention', MatMul, combines several values"));
  EXPECT_THAT(refused([](Graph& g) {
                return g.add("Mul", "product", {g.conv("a", "x"), g.conv("b", "x")});
              }),
              HasSubstr("'product', Mul, multiplies two values"));
  EXPECT_THAT(refused([](Graph& g) {
                return g.add("Conv", "conv", {"x", g.param("w", {4, 3, 1, 1})});
              }),
              HasSubstr("takes 3 channels in each of 1 groups; its input has 4 channels"));
  EXPECT_THAT(refused([](Graph& g) {
                return g.add("AveragePool", "pool", {"x"}, {{"kernel_shape", {3, 1}}});
              }),
              HasSubstr("'pool', AveragePool, has windows that are not square"));
  EXPECT_THAT(refused([](Graph& g) {
                return g.add("Transpose", "turn", {"x"}, {{"perm", {0, 1, 3, 2}}});
              }),
              HasSubstr("'turn', Transpose, changes the order"));
  EXPECT_THAT(refused([](Graph& g) {
                return g.add("Clip", "clip", {"x", g.number("low", -1), g.number("high", 1)});
              }),
              HasSubstr("'clip', Clip, has bounds other than"));
  EXPECT_THAT(refused([](Graph& g) {
                return g.add("LRN", "norm", {"x"}, {}, {{"size", 4}});
              }),
              HasSubstr("'norm', LRN, has an even size"));
  EXPECT_THAT(refused([](Graph& g) {
                return g.add("AveragePool", "mean", {"x"},
                             {{"kernel_shape", {3, 3}}, {"strides", {2, 2}}, {"pads", {0, 0, 1, 1}}},
                             {{"count_include_pad", 1}});
              }),
              HasSubstr("'mean', AveragePool, counts positions after the image"));
  EXPECT_THAT(refused([](Graph& g) {
                return g.add("BatchNormalization", "norm",
                             {"x", g.param("a", {4}), g.param("b", {4}), g.param("c", {4}), g.param("d", {4})}, {}, {},
                             {{"epsilon", 0.0f}});
              }),
              AllOf(HasSubstr("net.onnx: owt has no such network: its model file:"), HasSubstr("'eps'")));
}

TEST(OnnxImport, BranchesThatCrossAreRefused) {
  Graph graph;
  const std::string a = graph.conv("a", "x"), b = graph.conv("b", "x");
  const std::string one = graph.add("Add", "one", {a, b}), two = graph.add("Add", "two", {a, graph.conv("c", b)});
  graph.classify(graph.add("Concat", "both", {one, two}, {}, {{"axis", 1}}), 8);
  EXPECT_THAT(refusal_of(graph), HasSubstr("is part of two branches that do not meet in one block"));
}

TEST(OnnxImport, TheFileMustSayWhatItsImagesAre) {
  Graph open;
  open.graph().clear_input();
  open.add_input("x", {0, 4, 0, 0});
  open.classify(open.conv("a", "x"));
  EXPECT_THAT(refusal_of(open), HasSubstr("add --size HxW"));
  ImportOptions options;
  options.height = 10, options.width = 12;
  Imported to;
  import_into(to, open.bytes(), options);
  EXPECT_THAT(to.text, HasSubstr("input = [4, 10, 12]"));
  open.add_input("mask", {0, 1});
  EXPECT_THAT(refusal_of(open, options), HasSubstr("has the inputs 'x' and 'mask'"));
}

TEST(OnnxImport, AnOutputMayBeNamed) {
  Graph graph;
  graph.classify(graph.conv("a", "x"));
  ImportOptions options;
  options.output = "means";
  Imported to;
  import_into(to, graph.bytes(), options);
  EXPECT_THAT(to.text, AllOf(HasSubstr("classes = 4"), Not(HasSubstr("dense"))));
  options.output = "nowhere";
  EXPECT_THAT(refusal_of(graph, options), HasSubstr("no node computes the value 'nowhere'"));
  Graph images;
  images.conv("maps", "x");
  options.output = images.add("Flatten", "rows", {"maps"});
  EXPECT_THAT(refusal_of(images, options), HasSubstr("the output has 36 values for each of its 4 channels"));
}

TEST(OnnxImport, DamagedFilesAreRefused) {
  Graph graph;
  graph.classify(graph.conv("a", "x"));
  const std::string bytes = graph.bytes();
  Imported to;
  EXPECT_THAT(message_of([&] { import_into(to, bytes.substr(0, bytes.size() / 2)); }), HasSubstr("is no ONNX model"));
  EXPECT_THAT(message_of([&] { import_into(to, ""); }), HasSubstr("is no ONNX model"));
  graph.graph().mutable_initializer(0)->set_dims(0, int64_t{1} << 62);
  EXPECT_THAT(refusal_of(graph), HasSubstr("the shape of 'a.w' is damaged"));
  graph.graph().mutable_initializer(0)->set_dims(0, 5);
  EXPECT_THAT(refusal_of(graph), HasSubstr("'a.w' has 16 values, wanted 20"));
  graph.graph().mutable_node(0)->set_input(0, "logits");
  EXPECT_THAT(refusal_of(graph), HasSubstr("uses the value 'logits' before a node computes it"));
}

TEST(OnnxImport, TensorsMayBeInAFileBesideButNotElsewhere) {
  Graph graph;
  graph.classify(graph.conv("a", "x"));
  onnx::TensorProto& tensor = *graph.graph().mutable_initializer(0);
  std::vector<float> values(tensor.float_data().begin(), tensor.float_data().end());
  tensor.clear_float_data();
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  const auto place = [&](const std::string& location, int64_t offset) {
    tensor.clear_external_data();
    for (const auto& [key, value] : {std::pair{"location", location}, {"offset", std::to_string(offset)}}) {
      onnx::StringStringEntryProto& entry = *tensor.add_external_data();
      entry.set_key(key);
      entry.set_value(value);
    }
  };
  Imported to;
  write_bytes(to.folder.file("net.data"), "four" + std::string(reinterpret_cast<const char*>(values.data()), 64));
  place("net.data", 4);
  import_into(to, graph.bytes());
  EXPECT_EQ(to.weight("conv1.weight"), values);
  place("net.data", 8);
  EXPECT_THAT(message_of([&] { import_into(to, graph.bytes()); }), HasSubstr("ends before the values of 'a.w'"));
  place("../net.data", 4);
  EXPECT_THAT(message_of([&] { import_into(to, graph.bytes()); }),
              HasSubstr("wanted a file in the folder of the model"));
}

}  // namespace
}  // namespace owt::onnx_import_test
