#include "src/net/branches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/core/columns.h"
#include "src/net/layer_types.h"
#include "src/net/net.h"
#include "src/system/check.h"
#include "tests/support/check_layer.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"
#include "tests/support/using_conv_algorithm.h"

namespace owt::branches_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<Layer> mixed_from(const std::string& branches, const Shape& in) {
  const std::string toml = "name = 'mixed'\ntype = 'branches'\nbranches = [" + branches + "]\n";
  return make_layer(Config::text(toml, "mixed.toml"), in.row(), {}, {}, net_layer_types());
}

class BranchesTest : public DeviceTest {
 protected:
  Harness harness(const std::string& branches, const Shape& in) const {
    return {mixed_from(branches, in), in, device()};
  }
  void check(const std::string& branches, const Shape& in, LayerCheck options = {}) const {
    SCOPED_TRACE(branches);
    options.rounds_once = false;
    const UsingConvAlgorithm direct(ConvAlgorithm::kDirect);
    check_layer([&](std::optional<Slice>) { return mixed_from(branches, in); }, in, device(), options);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, BranchesTest, ::testing::ValuesIn(devices()), device_name);

// An Inception module without its relus.
constexpr const char* kInception = R"(
  { name = "branch1", layers = [{ name = "conv", type = "conv", out = 3, kernel = 1 }] },
  { name = "branch2", layers = [
    { name = "0.conv", type = "conv", out = 2, kernel = 1 },
    { name = "1.conv", type = "conv", out = 5, kernel = 3, pad = 1 } ] },
  { name = "branch4", layers = [
    { name = "pool", type = "avg_pool", kernel = 3, stride = 1, pad = 1 },
    { name = "1.conv", type = "conv", out = 2, kernel = 1 } ] })";
// On a GPU convolution and relu are one op, which overwrites the gradient that it gets.
constexpr const char* kFusedEnds = R"(
  { layers = [{ name = "a", type = "conv", out = 8, kernel = 1 }, { name = "a.relu", type = "relu" }] },
  { layers = [{ name = "b", type = "conv", out = 8, kernel = 3, pad = 1 }, { name = "b.relu", type = "relu" }] })";
// Like a layer of DenseNet, whose second branch begins in place; x must not be overwritten.
constexpr const char* kIdentityAndInPlace = R"(
  { layers = [] },
  { layers = [{ name = "relu", type = "relu" }, { name = "conv", type = "conv", out = 3, kernel = 3, pad = 1 }] })";
constexpr const char* kNested = R"(
  { layers = [{ name = "in", type = "branches", branches = [
    { layers = [{ name = "a", type = "conv", out = 2, kernel = 1 }] }, {} ] }] },
  { layers = [{ name = "block", type = "residual", relu = false, body = [
    { name = "b", type = "conv", out = 4, kernel = 3, pad = 1 } ] }] })";
constexpr const char* kDense = R"(
  { layers = [{ name = "fc1", type = "dense", out = 3 }] },
  { layers = [{ name = "pool", type = "global_avg_pool" }, { name = "fc2", type = "dense", out = 2 }] })";

TEST_P(BranchesTest, KeepTheLayerContract) {
  check(kInception, {2, 5, 4, 6});
  check(kIdentityAndInPlace, {2, 5, 4, 4});
  check(kNested, {2, 4, 3, 4});
  check(kDense, {3, 3, 2, 4});
  check("{ layers = [{ name = 'a', type = 'dense', out = 2 }] }, {}", {3, 5});
  check(kFusedEnds, {2, 6, 6, 8}, {.samples = 0});  // differences are meaningless near a kink
}

// The outputs of the branches are concatenated, and the gradients from their columns of dy are summed. Both must be
// bit-identical, because only copies and one sum of two values are added.
TEST_P(BranchesTest, ComputeWhatTheirLayersCompute) {
  const Shape in{2, 6, 6, 8};
  Harness mixed = harness(kFusedEnds, in);
  const std::vector<float> x = distinct_values(in.elements(), 2, 11);
  const std::vector<float> dy = distinct_values(2 * 6 * 6 * 16, 1, 12);
  const std::vector<float> y = mixed.forward(x), dx = mixed.backward(dy);
  std::vector<float> sum(x.size(), 0.0f);
  for (int b = 0; b < 2; ++b) {
    const char* const name = b == 0 ? "a" : "b";
    std::vector<std::unique_ptr<Layer>> layers;
    layers.push_back(make_layer(Config::text(concat("name = 'mixed.", name, "'\ntype = 'conv'\nout = 8\n",
                                                    b == 0 ? "kernel = 1" : "kernel = 3\npad = 1"),
                                             "conv"),
                                in.row(), {}, {}, net_layer_types()));
    layers.push_back(
        make_layer(Config::text("name = 'r'\ntype = 'relu'", "relu"), Shape{6, 6, 8}, {}, {}, net_layer_types()));
    Net net(std::move(layers), in.row());
    for (Param* param : net.params()) {
      param->allocate(device());
      param->set_value(mixed.param(param->name.substr(6)).value);
    }
    Tape tape(net, 2, device(), nullptr);
    DevicePass pass(device(), 2);
    const Tensor input = upload(x, in, device());
    const auto columns = [&](const Tensor& whole) {
      Tensor part({2 * 36, 8}, DType::kF32, device());
      copy_columns(whole.reshaped({2 * 36, 16}), b * 8, part, 0, 8, pass.stream());
      pass.stream().synchronize();
      return part;
    };
    const Tensor out = tape.forward(pass.pass(), input);
    pass.stream().synchronize();
    EXPECT_EQ(download(out), download(columns(upload(y, {2, 6, 6, 16}, device())))) << name;
    const Tensor gradient = columns(upload(dy, {2, 6, 6, 16}, device())).reshaped({2, 6, 6, 8});
    Tensor of_branch(in, DType::kF32, device());
    tape.backward(pass.pass(), input, gradient, &of_branch);
    pass.stream().synchronize();
    const std::vector<float> values = download(of_branch);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
    for (const Param* param : net.params())
      EXPECT_EQ(mixed.grad(param->name.substr(6)), download(param->grad)) << param->name;
  }
  EXPECT_EQ(dx, sum);
}

TEST_P(BranchesTest, LieSideBySideInTheirOrder) {
  Harness twice = harness("{}, { layers = [{ name = 'pool', type = 'avg_pool', kernel = 1 }] }, {}", {1, 1, 2, 1});
  EXPECT_THAT(twice.forward({1, -2}), ElementsAre(1, 1, 1, -2, -2, -2));
  EXPECT_THAT(twice.backward({1, 2, 4, 8, 16, 32}), ElementsAre(7, 56));
}

TEST_P(BranchesTest, EvaluateAsTheyTrainThoughNothingIsKept) {
  const Shape in{2, 6, 6, 8};
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(mixed_from(kFusedEnds, in));
  Net net(std::move(layers), in.row());
  for (Param* param : net.params()) {
    param->allocate(device());
    param->initialize(1);
  }
  Tape tape(net, 2, device(), nullptr);
  tape.forget_in_evaluation();
  DevicePass pass(device(), 2);
  const Tensor x = upload(distinct_values(in.elements(), 2, 11), in, device());
  const auto outputs = [&](Mode mode) {
    Pass this_one = pass.pass();
    this_one.mode = mode;
    const Tensor y = tape.forward(this_one, x);
    pass.stream().synchronize();
    return download(y);
  };
  const std::vector<float> trained = outputs(Mode::kTrain);
  EXPECT_EQ(outputs(Mode::kEval), trained);
}

TEST(Branches, NameParametersByLayerBranchAndLayer) {
  const auto mixed = mixed_from(kInception, {1, 5, 4, 6});
  std::vector<std::string> names;
  for (const Param* param : mixed->params()) names.push_back(param->name);
  EXPECT_THAT(names,
              ElementsAre("mixed.branch1.conv.weight", "mixed.branch1.conv.bias", "mixed.branch2.0.conv.weight",
                          "mixed.branch2.0.conv.bias", "mixed.branch2.1.conv.weight", "mixed.branch2.1.conv.bias",
                          "mixed.branch4.1.conv.weight", "mixed.branch4.1.conv.bias"));
}

TEST(Branches, SayWhatIsWrong) {
  const auto error = [](const std::string& branches) {
    return message_of([&] { mixed_from(branches, {1, 4, 4, 3}); });
  };
  EXPECT_THAT(error("{}"), HasSubstr("wanted two branches at least"));
  EXPECT_THAT(error("{}, { layers = [{ name = 'pool', type = 'max_pool', kernel = 2 }] }"),
              HasSubstr("images want one height and width"));
  EXPECT_THAT(error("{}, { layers = [{ name = 'pool', type = 'global_avg_pool' }] }"),
              HasSubstr("they are to lie side by side"));
  const std::string conv = "{ layers = [{ name = 'conv', type = 'conv', out = 1, kernel = 1 }] }";
  EXPECT_THAT(error(conv + "," + conv), HasSubstr("there are two layers called 'mixed.conv'"));
  EXPECT_THAT(error("{}, { layer = [] }"), HasSubstr("'layer'"));
}

}  // namespace
}  // namespace owt::branches_test
