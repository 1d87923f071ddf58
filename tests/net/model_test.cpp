#include "src/net/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/system/check.h"
#include "tests/support/message_of.h"

namespace owt::model_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Seven lines before the first layer.
const std::string kHead = R"(name = "net"
input = [3, 8, 6]
classes = 10

# layers


)";
const std::string kConv = "[[layer]]\nname = \"conv1\"\ntype = \"conv\"\nout = 4\nkernel = 3\n";
const std::string kFc = "[[layer]]\nname = \"fc1\"\ntype = \"dense\"\nout = 10\n";

Model model_from(const std::string& toml) {
  Config config = Config::text(toml, "net.toml");
  return read_model(config);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(ReadModel, MuonTakesNoBiasAsAMatrix) {
  Model model = model_from(kHead + "[[layer]]\nname = \"local1\"\ntype = \"local\"\nout = 4\nkernel = 3\n" + kFc);
  model.muon_except.emplace();
  std::map<std::string, bool> is_matrix;
  for (const auto& layer : whole_layers(model))
    for (const Param* param : layer->params()) is_matrix[param->name] = param->is_matrix;
  EXPECT_EQ(is_matrix,
            (std::map<std::string, bool>{
                {"local1.weight", true}, {"local1.bias", false}, {"fc1.weight", true}, {"fc1.bias", false}}));
}

std::string error_of(const std::string& toml) {
  return message_of([&] { model_from(toml); });
}

TEST(Model, IsReadWithItsInputAsHeightWidthChannels) {
  const Model model = model_from(kHead + kConv + kFc);
  EXPECT_EQ(model.name, "net");
  EXPECT_EQ(model.input, (Shape{8, 6, 3}));
  EXPECT_EQ(model.classes, 10);
  EXPECT_EQ(model.layers.size(), 2u);
}

TEST(Model, BuildsItsLayersWithoutWeights) {
  const auto layers = whole_layers(model_from(kHead + kConv + kFc));
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0]->name(), "conv1");
  EXPECT_EQ(layers[1]->type(), "dense");
  EXPECT_EQ(layers[0]->out_shape({5, 8, 6, 3}), (Shape{5, 6, 4, 4}));
  EXPECT_EQ(layers[1]->params()[0]->full_shape, (Shape{10, 6, 4, 4}));
  EXPECT_FALSE(layers[1]->params()[0]->value.defined());
}

TEST(Model, MayEndInAnyLayerWithAnOutputPerClass) {
  const std::string pool = "[[layer]]\nname = \"pool\"\ntype = \"global_avg_pool\"\n";
  EXPECT_EQ(model_from(replaced(kHead, "classes = 10", "classes = 4") + kConv + pool).classes, 4);
}

TEST(ModelErrors, OutputsThatAreNotTheClasses) {
  EXPECT_EQ(error_of(replaced(kHead, "classes = 10", "classes = 100") + kConv + kFc),
            "net.toml:3: the last layer 'fc1' has 10 outputs, but 'classes' is 100");
}

TEST(ModelErrors, TwoLayersOfOneName) {
  EXPECT_EQ(error_of(kHead + kConv + kConv + kFc), "net.toml:14: [[layer]]: there are two layers called 'conv1'");
}

TEST(ModelErrors, ALayerCalledLikeOneInsideAnother) {
  const std::string residual =
      "[[layer]]\nname = \"r\"\ntype = \"residual\"\nbody = [{ name = \"c\", type = \"conv\", out = 4, kernel = 3, "
      "pad = 1 }]\nshortcut = [{ name = \"s\", type = \"conv\", out = 4, kernel = 1 }]\n";
  const std::string same = replaced(kConv, "conv1", "r.c");
  EXPECT_THAT(error_of(kHead + residual + same + kFc),
              AllOf(StartsWith("net.toml:14: "), HasSubstr("'r.c' is there twice")));
  EXPECT_THAT(error_of(kHead + same + residual + kFc),
              AllOf(StartsWith("net.toml:14: "), HasSubstr("'r.c' is there twice")));
  EXPECT_EQ(model_from(kHead + residual + replaced(kConv, "conv1", "c") + kFc).layers.size(), 3u);
}

TEST(ModelErrors, ALayerInsideALayerIsNamedByItsPlace) {
  const std::string residual = "[[layer]]\nname = \"r\"\ntype = \"residual\"\nbody = [{ type = \"relu\" }]\n";
  EXPECT_THAT(error_of(kHead + residual), AllOf(StartsWith("net.toml:11: [[layer]] r, body: "), HasSubstr("'name'")));
}

TEST(ModelErrors, NoLayers) { EXPECT_THAT(error_of(kHead), HasSubstr("has no [[layer]]")); }

TEST(ModelErrors, AnInputThatIsNoImage) {
  const std::string layers = kConv + kFc;
  EXPECT_EQ(error_of(replaced(kHead, "[3, 8, 6]", "[3, 8]") + layers),
            "net.toml:2: 'input' must be [channels, height, width]");
  EXPECT_EQ(error_of(replaced(kHead, "[3, 8, 6]", "[3, 0, 6]") + layers), "net.toml:2: 'input' has an extent of 0");
  EXPECT_THAT(error_of(replaced(kHead, "[3, 8, 6]", "'big'") + layers), StartsWith("net.toml:2: 'input'"));
  EXPECT_THAT(error_of(replaced(kHead, "input =", "inputs =") + layers), HasSubstr("'input'"));
}

TEST(ModelErrors, TooFewClasses) {
  EXPECT_THAT(error_of(replaced(kHead, "classes = 10", "classes = 1") + kConv + kFc),
              StartsWith("net.toml:3: 'classes' is 1"));
}

TEST(ModelErrors, AnUnknownKey) {
  EXPECT_THAT(error_of("colour = 1\n" + kHead + kConv + kFc),
              AllOf(StartsWith("net.toml:1: no key 'colour'"), HasSubstr("keys of a model")));
}

TEST(ModelErrors, AMisspeltKeyOfALayer) {
  EXPECT_THAT(error_of(kHead + replaced(kConv, "kernel", "kernal") + kFc),
              AllOf(StartsWith("net.toml:12: [[layer]] conv1:"), HasSubstr("did you mean")));
}

TEST(ModelErrors, AMisspeltLayerType) {
  EXPECT_THAT(error_of(kHead + replaced(kConv, "\"conv\"", "\"cnov\"") + kFc),
              AllOf(StartsWith("net.toml:10: [[layer]] conv1:"), HasSubstr("did you mean 'conv'?")));
}

TEST(ModelErrors, ALayerWithoutAName) {
  EXPECT_THAT(error_of(kHead + "[[layer]]\ntype = \"relu\"\n" + kFc),
              AllOf(StartsWith("net.toml:8: [[layer]]"), HasSubstr("'name' is missing")));
}

TEST(ModelErrors, NamesThatControlATerminal) {
  EXPECT_THAT(error_of(replaced(kHead, "net", "n\\u001bet") + kConv + kFc),
              AllOf(StartsWith("net.toml:1:"), HasSubstr("no control characters")));
  EXPECT_THAT(error_of(kHead + replaced(kConv, "conv1", "conv\\n1") + kFc),
              AllOf(StartsWith("net.toml:9:"), HasSubstr("no control characters")));
}

TEST(ModelErrors, ImpossibleGeometryNamesTheLayerAndItsInput) {
  EXPECT_THAT(error_of(kHead + replaced(kConv, "kernel = 3", "kernel = 9") + kFc),
              AllOf(StartsWith("net.toml:12: [[layer]] conv1:"), HasSubstr("8x6")));
  const std::string pool = "[[layer]]\nname = \"pool1\"\ntype = \"max_pool\"\nkernel = 5\n";
  EXPECT_THAT(error_of(kHead + kConv + pool + kFc),
              AllOf(StartsWith("net.toml:"), HasSubstr("[[layer]] pool1:"), HasSubstr("6x4x4")));
  EXPECT_THAT(error_of(kHead + replaced(kFc, "fc1", "fc0") + kConv + kFc),
              AllOf(HasSubstr("[[layer]] conv1: cannot take input 10"), HasSubstr("before the first dense layer")));
}

TEST(ModelErrors, SizesWhoseProductsNoIntegerHolds) {
  const auto conv = [](const std::string& from, const std::string& to) {
    return error_of(kHead + replaced(kConv, from, to) + kFc);
  };
  EXPECT_THAT(conv("out = 4", "out = 9223372036854775807"), HasSubstr("'out' is 9223372036854775807"));
  EXPECT_THAT(conv("kernel = 3", "kernel = 3\npad = 9223372036854775807"), HasSubstr("'pad'"));
  EXPECT_THAT(conv("kernel = 3", "kernel = 3\nstride = [1, 9223372036854775807]\nround = 'up'"), HasSubstr("'stride'"));
  EXPECT_THAT(conv("kernel = 3", "kernel = 3\npad = 32768"),
              AllOf(HasSubstr("conv1"), HasSubstr("more than any memory holds")));
  EXPECT_THAT(error_of(kHead + replaced(kConv, "out = 4", "out = 16000000") + replaced(kFc, "out = 10", "out = 99999")),
              AllOf(HasSubstr("fc1"), HasSubstr("larger than any memory")));
  EXPECT_THAT(error_of(replaced(kHead, "[3, 8, 6]", "[65536, 65536, 65536]") + kConv + kFc),
              HasSubstr("'input' has 281474976710656 values"));
}

TEST(ModelErrors, FirstValuesThatAreForAnotherLayer) {
  const auto with = [](const std::string& layer, const std::string& init) {
    return replaced(layer, "out =", "init = { type = '" + init + "' }\nout =");
  };
  EXPECT_EQ(model_from(kHead + with(kConv, "whitening") + kFc).layers.size(), 2u);
  const std::string in_groups = with(replaced(kConv, "out = 4", "out = 6\ngroups = 3"), "whitening");
  for (const std::string& layers : {in_groups, kConv + with(replaced(kConv, "conv1", "conv2"), "whitening")})
    EXPECT_THAT(error_of(kHead + layers + kFc),
                HasSubstr("init type 'whitening' is for the first layer, a convolution without groups"));
  EXPECT_THAT(error_of(kHead + kConv + with(kFc, "dirac")),
              HasSubstr("'fc1.weight' is no weight of a convolution, which this 'init' is for"));
}

TEST(ModelErrors, ALossThatIsNotThere) {
  EXPECT_THAT(error_of("loss = \"hinge\"\n" + kHead + kConv + kFc),
              AllOf(StartsWith("net.toml:1: 'loss' is 'hinge'"), HasSubstr("softmax_cross_entropy")));
}

}  // namespace
}  // namespace owt::model_test
