#include "src/net/residual.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "layers/branch_sums.h"
#include "src/core/memory.h"
#include "src/net/layer_types.h"
#include "src/net/net.h"
#include "src/system/check.h"
#include "tests/support/check_layer.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"
#include "tests/support/using_conv_algorithm.h"

namespace owt::residual_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::unique_ptr<Layer> block_from(const std::string& keys, const Shape& in) {
  const std::string toml = "name = 'block'\ntype = 'residual'\n" + keys;
  return make_layer(Config::text(toml, "block.toml"), in.row(), {}, {}, net_layer_types());
}

void check_block(const std::string& keys, const Shape& in, Device device, LayerCheck options = {}) {
  SCOPED_TRACE(keys);
  options.rounds_once = false;
  // A race for the fastest may end either way on a busy machine; ConvTest holds every algorithm to the contract.
  const UsingConvAlgorithm direct(ConvAlgorithm::kDirect);
  check_layer([&](std::optional<Slice>) { return block_from(keys, in); }, in, device, options);
}

class ResidualTest : public DeviceTest {
 protected:
  Harness harness(const std::string& keys, const Shape& in) const { return {block_from(keys, in), in, device()}; }
};
INSTANTIATE_TEST_SUITE_P(Devices, ResidualTest, ::testing::ValuesIn(devices()), device_name);

constexpr const char* kPlain = R"(
body = [{ name = "conv1", type = "conv", out = 6, kernel = 3, pad = 1 }]
relu = false
)";
constexpr const char* kTwice = "body = [{ name = 'pool', type = 'avg_pool', kernel = 1 }]\n";
constexpr const char* kBasic = R"(
body = [
  { name = "conv1", type = "conv", out = 5, kernel = 3, pad = 1, bias = false },
  { name = "bn1", type = "batch_norm" },
  { name = "relu", type = "relu" },
  { name = "conv2", type = "conv", out = 5, kernel = 3, pad = 1, bias = false },
  { name = "bn2", type = "batch_norm" },
]
)";
constexpr const char* kBottleneck = R"(
body = [
  { name = "conv1", type = "conv", out = 3, kernel = 1, bias = false },
  { name = "bn1", type = "batch_norm" },
  { name = "relu1", type = "relu" },
  { name = "conv2", type = "conv", out = 3, kernel = 3, pad = 1, stride = 2, bias = false },
  { name = "bn2", type = "batch_norm" },
  { name = "relu2", type = "relu" },
  { name = "conv3", type = "conv", out = 8, kernel = 1, bias = false },
  { name = "bn3", type = "batch_norm" },
]
shortcut = [
  { name = "downsample.0", type = "conv", out = 8, kernel = 1, stride = 2, bias = false },
  { name = "downsample.1", type = "batch_norm" },
]
)";
// Pre-activation (He et al. 2016b): the body begins with an in-place layer, and x also goes to the shortcut.
constexpr const char* kInPlaceFirst = R"(
body = [
  { name = "relu", type = "relu" },
  { name = "conv", type = "conv", out = 4, kernel = 3, pad = 1 },
]
relu = false
)";
// On a GPU the ends of both branches run as one op, which overwrites the gradient that it gets.
constexpr const char* kFusedEnds = R"(
body = [
  { name = "conv1", type = "conv", out = 8, kernel = 3, pad = 1 },
  { name = "relu1", type = "relu" },
]
shortcut = [
  { name = "conv2", type = "conv", out = 8, kernel = 1 },
  { name = "relu2", type = "relu" },
]
)";
constexpr const char* kFusedShortcut = R"(
body = [{ name = "conv1", type = "conv", out = 8, kernel = 3, pad = 1 }]
shortcut = [
  { name = "conv2", type = "conv", out = 8, kernel = 1 },
  { name = "relu2", type = "relu" },
]
)";
constexpr const char* kNested = R"(
body = [
  { name = "in", type = "residual", body = [{ name = "conv", type = "conv", out = 4, kernel = 3, pad = 1 }] },
  { name = "norm", type = "batch_norm" },
]
)";

// Some value is always near a relu's kink, where differences are meaningless. So blocks are checked by differences
// without their relus, and with relus against the same layers run one by one.
constexpr LayerCheck kKinks{.samples = 0};
constexpr LayerCheck kSmooth{.step = 2e-2, .tolerance = 5e-2};

std::string smooth(std::string keys) {
  for (size_t at; (at = keys.find("type = \"relu\"")) != std::string::npos;)
    keys.replace(at, 13, "type = \"avg_pool\", kernel = 1");
  return keys + "relu = false\n";
}

TEST_P(ResidualTest, KeepsTheLayerContractAsABareSum) { check_block(kPlain, {2, 5, 4, 6}, device()); }
TEST_P(ResidualTest, KeepsTheLayerContractWithAnIdentity) {
  check_block(kBasic, {3, 5, 4, 5}, device(), kKinks);
  check_block(smooth(kBasic), {3, 5, 4, 5}, device(), kSmooth);
}
TEST_P(ResidualTest, KeepsTheLayerContractWithAProjection) {
  check_block(kBottleneck, {3, 7, 6, 5}, device(), kKinks);
  check_block(smooth(kBottleneck), {3, 7, 6, 5}, device(), kSmooth);
}
TEST_P(ResidualTest, KeepsTheLayerContractWhenTheBodyBeginsInPlace) {
  // Inputs are not near 0, where this relu has its kink.
  check_block(kInPlaceFirst, {2, 5, 4, 4}, device());
}
TEST_P(ResidualTest, KeepsTheLayerContractWhereBranchesEndInFusedLayers) {
  check_block(kFusedEnds, {2, 6, 6, 8}, device(), kKinks);
  check_block(std::string(kFusedEnds) + "relu = false\n", {2, 6, 6, 8}, device(), kKinks);
  check_block(smooth(kFusedEnds), {2, 6, 6, 8}, device(), kSmooth);
}
TEST_P(ResidualTest, KeepsTheLayerContractWhereTheShortcutAloneEndsInAFusedLayer) {
  check_block(kFusedShortcut, {2, 6, 6, 8}, device(), kKinks);
  check_block(std::string(kFusedShortcut) + "relu = false\n", {2, 6, 6, 8}, device(), kKinks);
}
TEST_P(ResidualTest, KeepsTheLayerContractInsideAnother) { check_block(kNested, {3, 5, 4, 4}, device(), kKinks); }

// The layers of one branch as a separate net.
class Branch {
 public:
  Branch(Layer& block, const std::string& keys, const std::string& key, const Shape& in, const Compute& on)
      : net_(layers_of(keys, key, in), in.row()), tape_(net_, in.rows(), on, nullptr) {
    const std::vector<Param*> of_block = block.params();
    for (Param* param : net_.params()) {
      param->allocate(on);
      const auto same = [&](const Param* other) { return other->name == param->name; };
      const auto found = std::find_if(of_block.begin(), of_block.end(), same);
      OWT_CHECK(found != of_block.end(), param->name);
      param->set_value((*found)->value.to(Device::kCpu));
    }
  }
  Tape& tape() { return tape_; }
  Net& net() { return net_; }

 private:
  static std::vector<std::unique_ptr<Layer>> layers_of(const std::string& keys, const std::string& key,
                                                       const Shape& in) {
    Config config = Config::text(keys, "branch.toml");
    std::vector<std::unique_ptr<Layer>> layers;
    Shape batch = in;
    for (Config& table : config.tables(key)) {
      layers.push_back(make_layer({"block." + table.string("name"), table, batch.row()}, net_layer_types()));
      batch = layers.back()->out_shape(batch);
    }
    return layers;
  }

  Net net_;
  Tape tape_;
};

void expect_what_its_layers_compute(const std::string& keys, const Shape& in, const Compute& on = {}) {
  SCOPED_TRACE(concat(name_of(on.precision), keys));
  Harness block(block_from(keys, in), in, on);
  Branch body(block.layer(), keys, "body", in, on), shortcut(block.layer(), keys, "shortcut", in, on);
  const DType type = activation_type(on.precision);
  const std::vector<float> x = distinct_values(in.elements(), 2, 11);
  const std::vector<float> dy = distinct_values(block.out_shape().elements(), 1, 12);
  const Tensor input = upload(x, in, on.device, type);
  const auto values = [&](const Tensor& of) {
    block.pass().stream->synchronize();
    return download(of);
  };
  const auto sum = [&](std::vector<float> a, const std::vector<float>& b) {
    for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return download(upload(a, {std::ssize(a)}, Device::kCpu, type));
  };
  std::vector<float> y =
      sum(values(body.tape().forward(block.pass(), input)), values(shortcut.tape().forward(block.pass(), input)));
  std::vector<float> gated = dy;
  for (size_t i = 0; i < y.size(); ++i)
    if (!(y[i] > 0)) y[i] = gated[i] = 0;
  EXPECT_EQ(block.forward(x), y);

  const auto gradient = [&] { return upload(gated, block.out_shape(), on.device, type); };
  Tensor dx(in, type, on.device), shortcut_dx(in, type, on.device);
  body.tape().backward(block.pass(), input, gradient(), &dx);
  shortcut.tape().backward(block.pass(), input, gradient(), &shortcut_dx);
  EXPECT_EQ(block.backward(dy), sum(values(dx), values(shortcut_dx)));
  for (Branch* branch : {&body, &shortcut})
    for (const Param* param : branch->net().params())
      EXPECT_EQ(block.grad(param->name.substr(6)), download(param->grad)) << param->name;
}

TEST(Residual, ComputesWhatItsLayersCompute) {
  expect_what_its_layers_compute(kBasic, {3, 5, 4, 5});
  expect_what_its_layers_compute(kBottleneck, {3, 7, 6, 5});
  expect_what_its_layers_compute(kFusedEnds, {2, 6, 6, 8});
}

// Normalisation over groups of rows, for which a GPU always uses the same kernels.
TEST_P(ResidualTest, ComputesWhatItsLayersComputeToTheBit) {
  const auto in_groups = [](std::string keys) {
    const std::string norm = "type = \"batch_norm\"";
    for (size_t at = 0; (at = keys.find(norm, at)) != std::string::npos; at += norm.size())
      keys.insert(at + norm.size(), ", rows = 2");
    return keys;
  };
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const Compute on(device(), precision);
    expect_what_its_layers_compute(in_groups(kBasic), {5, 5, 4, 5}, on);
    expect_what_its_layers_compute(in_groups(kBottleneck), {5, 7, 6, 8}, on);
    expect_what_its_layers_compute(kFusedEnds, {2, 6, 6, 8}, on);
  }
}

TEST_P(ResidualTest, AddsTheBranchesAndTheirGradients) {
  Harness twice = harness(kTwice, {1, 1, 3, 1});
  EXPECT_THAT(twice.forward({1, -2, 3}), ElementsAre(2, 0, 6));
  EXPECT_THAT(twice.backward({1, 1, 0.5f}), ElementsAre(2, 0, 1));
}

TEST_P(ResidualTest, LetsNegativeSumsThroughWithoutRelu) {
  Harness twice = harness(std::string(kTwice) + "relu = false\n", {1, 1, 3, 1});
  EXPECT_THAT(twice.forward({1, -2, 3}), ElementsAre(2, -4, 6));
  EXPECT_THAT(twice.backward({1, 1, 0.5f}), ElementsAre(2, 2, 1));
}

TEST_P(ResidualTest, NaNIsNotHidden) {
  Harness twice = harness(kTwice, {1, 1, 2, 1});
  EXPECT_TRUE(std::isnan(twice.forward({std::nanf(""), 1})[0]));
}

TEST_P(ResidualTest, EvaluatesWithRunningAverages) {
  Harness block = harness("body = [{ name = 'norm', type = 'batch_norm' }]\nrelu = false\n", {2, 1, 1, 1});
  block.set_param("norm.running_mean", {10});
  block.set_param("norm.running_var", {4});
  EXPECT_NEAR(block.evaluate({12, 14})[0], 12 + 1, 1e-4);
}

std::vector<std::string> names_of(const std::vector<Param*>& params) {
  std::vector<std::string> names;
  for (const Param* param : params) names.push_back(param->name);
  return names;
}

TEST(Residual, NamesParametersByBlockAndLayer) {
  const auto block = block_from(kBottleneck, {1, 7, 6, 5});
  const std::vector<std::string> names = names_of(block->params());
  EXPECT_THAT(names, ::testing::IsSupersetOf({"block.conv1.weight", "block.bn3.running_var",
                                              "block.downsample.0.weight", "block.downsample.1.bias"}));
  EXPECT_EQ(names.size(), 3 + 3 * 4 + 1 + 4u);
}

TEST(Residual, CountsTheWorkOfItsLayersAndTheSum) {
  const auto block = block_from(kPlain, {1, 5, 4, 6});
  EXPECT_EQ(block->flops({2, 5, 4, 6}), 2 * (2.0 * 20 * 6 * 54 + 20 * 6));
}

// The outputs of a block's branches, layer by layer, each in separate memory.
std::vector<Tensor> ends_of_branches(Layer& block, const Tensor& x, Pass pass) {
  std::vector<Tensor> ends;
  for (const Layer::Inner& each : block.inner(x.shape())) {
    if (each.first) ends.push_back(x);
    Tensor y(each.layer->out_shape(each.in));
    const auto op = each.layer->bind(each.in, Device::kCpu);
    pass.scratch = Tensor({op->scratch_bytes(Phase::kForward) + 1}, DType::kU8);
    op->forward(pass, ends.back(), y);
    ends.back() = y;
  }
  if (ends.size() == 1) ends.push_back(x);
  return ends;
}

TEST(Residual, ItsEvaluationIsThatOfItsLayersThoughNoneOfTheirOutputsIsKept) {
  const std::pair<const char*, int64_t> blocks[] = {
      {kPlain, 6}, {kTwice, 6}, {kBasic, 5}, {kBottleneck, 6}, {kInPlaceFirst, 4}};
  for (const auto& [keys, channels] : blocks) {
    SCOPED_TRACE(keys);
    const Shape in{2, 5, 4, channels};
    std::vector<std::unique_ptr<Layer>> layers;
    layers.push_back(block_from(keys, in));
    Net net(std::move(layers), in.row());
    for (Param* param : net.params()) param->initialize(1);
    DevicePass pass(Device::kCpu, 2);
    Pass evaluation = pass.pass();
    evaluation.mode = Mode::kEval;
    const Tensor x = upload(distinct_values(in.elements(), 2, 11), in, Device::kCpu);
    const std::vector<Tensor> ends = ends_of_branches(net.layer(0), x, evaluation);
    Tensor wanted(ends[0].shape());
    const bool relu = std::string(keys).find("relu = false") == std::string::npos;
    add_branches(Cpu{}, ends[0], ends[1], relu, wanted, Stream());
    Tape tape(net, 2, Device::kCpu, nullptr);
    tape.forget_in_evaluation();
    EXPECT_EQ(download(tape.forward(evaluation, x)), download(wanted));
  }
}

TEST_P(ResidualTest, BlocksOfANetShareTheMemoryOfBackward) {
  const auto net = [&](const std::vector<std::string>& names = {"a", "b"}) {
    std::vector<std::unique_ptr<Layer>> layers;
    for (const std::string& name : names) {
      const std::string toml = std::string("name = '") + name + "'\ntype = 'residual'\n" + kBasic;
      layers.push_back(make_layer(Config::text(toml, name), Shape{5, 4, 5}, {}, {}, net_layer_types()));
    }
    return Net(std::move(layers), {5, 4, 5});
  };
  Net two = net();
  for (Param* param : two.params()) {
    param->allocate(device());
    param->initialize(1);
  }
  Tape tape(two, 3, device(), nullptr);
  const int64_t each = 3 * 5 * 4 * 5 * 4;
  // One more block adds an output and three activations: two are not in place, and the last norm writes the output. The
  // net then needs two gradients. On the CPU, where convolutions have separate memory, the body of a block needs one
  // and two more.
  Net one = net({"a"});
  const Tape of_one(one, 3, device(), nullptr);
  EXPECT_EQ(tape.bytes() - of_one.bytes(), each * (1 + 3 + 2));
  if (device() == Device::kCpu) {
    EXPECT_NEAR(static_cast<double>(of_one.bytes()), static_cast<double>(each * (1 + 3 + 3)), 3 * 64);
  }

  DevicePass pass(device(), 3);
  const std::vector<float> values = distinct_values(3 * 5 * 4 * 5, 2, 11);
  const Tensor x = upload(values, {3, 5, 4, 5}, device()), dy = upload(values, {3, 5, 4, 5}, device());
  Tensor dx(x.shape(), DType::kF32, device());
  tape.forward(pass.pass(), x);
  tape.backward(pass.pass(), x, dy, &dx);
  pass.stream().synchronize();

  // The same, block by block, each with separate memory.
  Net again = net();
  std::vector<float> at = values;
  std::vector<std::unique_ptr<Op>> ops;
  std::vector<Tensor> y{x};
  for (int64_t i = 0; i < 2; ++i) {
    for (Param* param : again.layer(i).params()) {
      param->allocate(device());
      param->initialize(1);
    }
    ops.push_back(again.layer(i).bind(x.shape(), device()));
    y.emplace_back(x.shape(), DType::kF32, device());
    pass.pass().scratch = scratch_for(*ops.back(), device());
    ops.back()->forward(pass.pass(), y[static_cast<size_t>(i)], y.back());
  }
  Tensor middle(x.shape(), DType::kF32, device()), first(x.shape(), DType::kF32, device());
  run_backward(*ops[1], pass.pass(), y[1], y[2], dy, &middle);
  run_backward(*ops[0], pass.pass(), y[0], y[1], middle, &first);
  pass.stream().synchronize();
  EXPECT_EQ(download(dx), download(first));
  const std::vector<Param*> of_two = two.params(), of_again = again.params();
  for (size_t i = 0; i < of_two.size(); ++i)
    EXPECT_EQ(download(of_two[i]->grad), download(of_again[i]->grad)) << of_two[i]->name;
}

TEST(Residual, OfFewerRowsHasItsBranchesInTheMemoryOfItsLender) {
  const UsingConvAlgorithm direct(ConvAlgorithm::kDirect);
  const Shape in{8, 5, 4, 6};
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(block_from(kBottleneck, in));
  Net net(std::move(layers), in.row());
  for (Param* param : net.params()) param->initialize(1);
  Tape large(net, 8, Device::kCpu, nullptr), own(net, 7, Device::kCpu, nullptr);
  const int64_t before = host_memory().in_use;
  Tape small(net, 7, Device::kCpu, nullptr, Tape::Scratch::kOwn, true, &large);
  EXPECT_LT(host_memory().in_use - before, own.bytes() / 4);
  const auto gradient_of = [](Tape& tape, int64_t rows) {
    DevicePass pass(Device::kCpu, rows);
    const Shape of{rows, 5, 4, 6};
    const Tensor x = upload(distinct_values(of.elements(), 2, 11), of, Device::kCpu);
    const Tensor y = tape.forward(pass.pass(), x).clone();
    Tensor dx(of);
    tape.backward(pass.pass(), x, y, &dx);
    return download(dx);
  };
  const std::vector<float> of_few = gradient_of(own, 7), of_many = gradient_of(large, 8);
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(gradient_of(small, 7), of_few);
    EXPECT_EQ(gradient_of(large, 8), of_many);
  }
}

// The bottleneck block: three convolutions with a norm each, two of them with a relu, and one in the shortcut.
TEST(Residual, ThatLearnsNothingBeforeAllThatLearnKeepsTheLastOutputsOfItsBranches) {
  const UsingConvAlgorithm direct(ConvAlgorithm::kDirect);
  const Shape in{2, 5, 4, 6};
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(block_from(kBottleneck, in));
  const Shape out = layers[0]->out_shape(in);
  layers.push_back(make_layer(Config::text("name = 'fc'\ntype = 'dense'\nout = 3", "fc"), out.row()));
  Net net(std::move(layers), in.row());
  for (Param* param : net.params()) param->initialize(1);
  for (Param* param : net.layer(0).params()) param->freeze();
  Tape all(net, 2, Device::kCpu, nullptr), last(net, 2, Device::kCpu, nullptr, Tape::Scratch::kOwn, false);
  int64_t inside = 0;
  for (const Layer::Inner& each : net.layer(0).inner(in))
    if (!each.in_place) inside += each.layer->out_shape(each.in).elements() * 4;
  EXPECT_EQ(all.bytes() - last.bytes(), inside - 2 * out.elements() * 4);

  DevicePass pass(Device::kCpu, 2);
  const Tensor x = upload(distinct_values(in.elements(), 2, 11), in, Device::kCpu);
  const Tensor dy = upload({1, 2, 3, 4, 5, 6}, {2, 3}, Device::kCpu);
  std::vector<std::vector<float>> results[2];
  for (Tape* tape : {&all, &last}) {
    auto& result = results[tape == &last];
    result.push_back(download(tape->forward(pass.pass(), x)));
    tape->backward(pass.pass(), x, dy, nullptr);
    for (Param* param : net.layer(1).params()) {
      result.push_back(download(param->grad));
      param->grad_is_zero = true;
    }
  }
  EXPECT_EQ(results[0], results[1]);
}

std::string error_of(const std::string& keys) {
  return message_of([&] { block_from(keys, {1, 5, 4, 6}); });
}

TEST(ResidualErrors, BranchesThatCannotBeAdded) {
  EXPECT_THAT(error_of("body = [{ name = 'c', type = 'conv', out = 7, kernel = 1 }]"),
              ::testing::AllOf(StartsWith("block.toml:"), HasSubstr("[[layer]] block: the body's output is 5x4x7"),
                               HasSubstr("the shortcut's 5x4x6")));
}
TEST(ResidualErrors, NoBody) { EXPECT_THAT(error_of(""), HasSubstr("'body' is empty")); }
TEST(ResidualErrors, TwoLayersOfOneName) {
  EXPECT_THAT(error_of("body = [{ name = 'r', type = 'relu' }]\nshortcut = [{ name = 'r', type = 'relu' }]"),
              HasSubstr("two layers called 'block.r'"));
}
TEST(ResidualErrors, AMisspeltKeyOrTypeOfAnInnerLayer) {
  EXPECT_THAT(error_of("body = [\n  { name = 'c', type = 'conv', out = 6, kernal = 1 }\n]"),
              ::testing::AllOf(StartsWith("block.toml:4: [[layer]] block.c:"), HasSubstr("did you mean")));
  EXPECT_THAT(error_of("body = [{ name = 'c', type = 'cnov' }]"), HasSubstr("did you mean 'conv'?"));
  EXPECT_THAT(error_of("body = [{ name = 'c', type = 'residul' }]"), HasSubstr("did you mean 'residual'?"));
}

}  // namespace
}  // namespace owt::residual_test
