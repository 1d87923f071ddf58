#include "src/net/net.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "layers/loss/softmax_loss.h"
#include "src/core/memory.h"
#include "src/core/philox.h"
#include "src/core/poison.h"
#include "src/system/check.h"
#include "tests/support/harness.h"
#include "tests/support/nets.h"

namespace owt::net_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsNan;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// y = 2 x; counts its calls.
class Doubling : public Layer {
 public:
  struct Calls {
    int bind = 0, forward = 0, backward = 0, weights = 0;
  };

  Doubling(const std::string& name, bool in_place, Calls& calls)
      : Layer(name, "doubling"), in_place_(in_place), calls_(calls) {}
  Shape out_shape(const Shape& in) const override { return in; }
  std::optional<Content> in_place() const override {
    return in_place_ ? std::optional(Content::kNothing) : std::nullopt;
  }

  std::unique_ptr<Op> bind(const Shape&, const Compute&) override {
    ++calls_.bind;
    return std::make_unique<DoublingOp>(calls_);
  }

 private:
  class DoublingOp : public Op {
   public:
    explicit DoublingOp(Calls& calls) : calls_(calls) {}
    void forward(const Pass&, const Tensor& x, Tensor& y) override {
      ++calls_.forward;
      twice(x, y);
    }
    void backward_data(const Pass&, const Tensor&, const Tensor&, const Tensor& dy, Tensor* dx) override {
      ++calls_.backward;
      if (dx) twice(dy, *dx);
    }
    void backward_weights(const Pass&, const Tensor&, const Tensor&) override { ++calls_.weights; }

   private:
    static void twice(const Tensor& from, Tensor& to) {
      for (int64_t i = 0; i < from.elements(); ++i) to.data()[i] = 2 * from.data()[i];
    }
    Calls& calls_;
  };

  bool in_place_;
  Calls& calls_;
};

Net doublings(const std::vector<bool>& in_place, Doubling::Calls& calls) {
  std::vector<std::unique_ptr<Layer>> layers;
  for (size_t i = 0; i < in_place.size(); ++i)
    layers.push_back(std::make_unique<Doubling>("double" + std::to_string(i), in_place[i], calls));
  return Net(std::move(layers), {2});
}

Tensor random_tensor(const Shape& shape, std::string_view name) {
  const Philox random(1, RandomStream::kTest, 0, name);
  Tensor tensor(shape);
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.data()[i] = random.normal(static_cast<uint64_t>(i));
  return tensor;
}

class TapeTest : public ::testing::Test {
 protected:
  TapeTest() { pass_.stream = &stream_; }
  Stream stream_;
  Pass pass_;
};

const std::vector<std::string> kEveryKindOfLayer = {"name='conv1' type='conv' out=4 kernel=3 pad=1",
                                                    "name='relu1' type='relu'",
                                                    "name='pool1' type='max_pool' kernel=2 stride=2",
                                                    "name='norm1' type='lrn' size=3 alpha=0.5",
                                                    "name='fc1' type='dense' out=6",
                                                    "name='relu2' type='relu'",
                                                    "name='fc2' type='dense' out=3"};

// |a - b| / |b|
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) difference += (a[i] - b[i]) * (a[i] - b[i]), size += b[i] * b[i];
  return std::sqrt(difference / size);
}

// The layers are smooth, because differences across a kink are no gradients.
TEST_F(TapeTest, TheGradientOfAWholeNetIsThatOfCentralDifferences) {
  std::vector<std::string> layers = kEveryKindOfLayer;
  for (std::string& layer : layers) {
    if (const size_t at = layer.find("'relu'"); at != std::string::npos)
      layer.replace(at, 6, "'activation' kind='gelu'");
    if (const size_t at = layer.find("'max_pool'"); at != std::string::npos) layer.replace(at, 10, "'avg_pool'");
  }
  Net net = net_of(layers, {6, 6, 2});
  constexpr int64_t kRows = 3;
  Tape tape(net, kRows, Device::kCpu, nullptr);
  Tensor x = random_tensor(net.in().batch_of(kRows), "x");
  const Tensor dy = random_tensor(net.out().batch_of(kRows), "dy");
  const auto value = [&] {
    const Tensor& y = tape.forward(pass_, x);
    double sum = 0;
    for (int64_t i = 0; i < y.elements(); ++i)
      sum += static_cast<double>(y.data()[i]) * static_cast<double>(dy.data()[i]);
    return sum;
  };
  const auto differences = [&](Tensor& varied, const std::function<void()>& changed) {
    std::vector<double> slopes;
    constexpr float kStep = 4e-3f;
    for (int64_t i = 0; i < varied.elements(); ++i) {
      const float before = varied.data()[i];
      varied.data()[i] = before + kStep, changed();
      const double above = value();
      varied.data()[i] = before - kStep, changed();
      const double below = value();
      varied.data()[i] = before, changed();
      slopes.push_back((above - below) / (2 * static_cast<double>(kStep)));
    }
    return slopes;
  };
  const auto as_doubles = [](const Tensor& t) { return std::vector<double>(t.data(), t.data() + t.elements()); };

  value();
  Tensor dx(x.shape());
  fill(dx, kNaN);
  tape.backward(pass_, x, dy, &dx);
  EXPECT_NEAR(distance(differences(x, [] {}), as_doubles(dx)), 0, 0.02);
  ASSERT_EQ(net.params().size(), 6u);
  for (Param* param : net.params())
    EXPECT_NEAR(distance(differences(param->value, [&] { ++param->version; }), as_doubles(param->grad)), 0, 0.02)
        << param->name;
}

TEST_F(TapeTest, RunsLayersInOrderForwardAndBackward) {
  Doubling::Calls calls;
  Net net = doublings({false, true, false}, calls);
  Tape tape(net, 2, Device::kCpu, nullptr);
  const Tensor x = upload({1, 2, 3, 4}, {2, 2}, Device::kCpu), dy = upload({1, 1, 1, 5}, {2, 2}, Device::kCpu);
  EXPECT_THAT(download(tape.forward(pass_, x)), ElementsAre(8, 16, 24, 32));
  EXPECT_THAT(download(tape.activation(1)), ElementsAre(4, 8, 12, 16));
  Tensor dx({2, 2});
  tape.backward(pass_, x, dy, &dx);
  EXPECT_THAT(download(dx), ElementsAre(8, 8, 8, 40));
  EXPECT_EQ(calls.forward, 3);
  EXPECT_EQ(calls.backward, 3);
}

TEST_F(TapeTest, ChangesNeitherItsInputNorTheGradientItIsGiven) {
  Doubling::Calls calls;
  Net net = doublings({true, true, true}, calls);
  Tape tape(net, 1, Device::kCpu, nullptr);
  const Tensor x = upload({1, 2}, {1, 2}, Device::kCpu), dy = upload({3, 4}, {1, 2}, Device::kCpu);
  Tensor dx({1, 2});
  tape.forward(pass_, x);
  tape.backward(pass_, x, dy, &dx);
  EXPECT_THAT(download(dx), ElementsAre(24, 32));
  EXPECT_THAT(download(x), ElementsAre(1, 2));
  EXPECT_THAT(download(dy), ElementsAre(3, 4));
}

TEST_F(TapeTest, WithPoisonForgetsActivationsAfterBackwardButTheOutput) {
  const WithPoison with(true);
  Doubling::Calls calls;
  Net net = doublings({false, true, false}, calls);
  Tape tape(net, 1, Device::kCpu, nullptr);
  const Tensor x = upload({1, 2}, {1, 2}, Device::kCpu), dy = upload({1, 3}, {1, 2}, Device::kCpu);
  for (int step = 0; step < 2; ++step) {
    tape.forward(pass_, x);
    EXPECT_THAT(download(tape.activation(1)), ElementsAre(4, 8));
    Tensor dx({1, 2});
    tape.backward(pass_, x, dy, &dx);
    EXPECT_THAT(download(dx), ElementsAre(8, 24));
    EXPECT_THAT(download(dy), ElementsAre(1, 3));
    EXPECT_THAT(download(tape.output()), ElementsAre(8, 16));
    EXPECT_THAT(download(tape.activation(1)), Each(IsNan()));
  }
}

// y = x, and backward reads what forward wrote to scratch memory, which other ops may have overwritten.
TEST_F(TapeTest, WithPoisonShowsWhoReadsScratchMemoryThatIsOthers) {
  class Late : public Layer {
   public:
    using Layer::Layer;
    Shape out_shape(const Shape& in) const override { return in; }
    std::unique_ptr<Op> bind(const Shape&, const Compute&) override { return std::make_unique<LateOp>(); }

   private:
    class LateOp : public Op {
     public:
      int64_t scratch_bytes(Phase) const override { return sizeof(float); }
      void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
        y.copy_from(x, *pass.stream);
        *pass.scratch_at(0, {1}, DType::kF32).data() = 1;
      }
      void backward_data(const Pass& pass, const Tensor&, const Tensor&, const Tensor& dy, Tensor* dx) override {
        dx->data()[0] = dy.data()[0] * *pass.scratch_at(0, {1}, DType::kF32).data();
      }
    };
  };
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(std::make_unique<Late>("late", "late"));
  Net net(std::move(layers), {1});
  for (const bool poisons : {false, true}) {
    const WithPoison with(poisons);
    Tape tape(net, 1, Device::kCpu, nullptr);
    const Tensor x = upload({2}, {1, 1}, Device::kCpu);
    tape.forward(pass_, x);
    Tensor dx({1, 1});
    tape.backward(pass_, x, x, &dx);
    EXPECT_EQ(std::isnan(dx.data()[0]), poisons);
  }
}

// y = 2 x. Its op leaves its weight's gradient as factors.
class Leaving : public Layer {
 public:
  explicit Leaving(const std::string& name) : Layer(name, "leaving") { weight_.part = {0, 0}; }
  Shape out_shape(const Shape& in) const override { return in; }
  std::vector<Param*> params() override { return {&weight_}; }
  std::unique_ptr<Op> bind(const Shape& in, const Compute& on) override {
    return std::make_unique<LeavingOp>(doubling_.bind(in, on), weight_);
  }

 private:
  class LeavingOp : public Op {
   public:
    LeavingOp(std::unique_ptr<Op> doubling, Param& weight) : doubling_(std::move(doubling)), weight_(weight) {}
    void forward(const Pass& pass, const Tensor& x, Tensor& y) override { doubling_->forward(pass, x, y); }
    void backward_data(const Pass& pass, const Tensor& x, const Tensor& y, const Tensor& dy, Tensor* dx) override {
      doubling_->backward_data(pass, x, y, dy, dx);
    }
    void backward_weights(const Pass&, const Tensor& x, const Tensor& dy) override { weight_.factors = {dy, x}; }
    bool leaves_factors() const override { return true; }

   private:
    std::unique_ptr<Op> doubling_;
    Param& weight_;
  };

  Param weight_;
  Doubling::Calls calls_;
  Doubling doubling_{"doubling", false, calls_};
};

// The third layer works in place. The gradients of the others alternate between two memories.
TEST_F(TapeTest, FactorsThatAreLeftToTheUpdateKeepTheirValues) {
  for (const bool poisons : {false, true}) {
    const WithPoison with(poisons);
    Doubling::Calls calls;
    std::vector<std::unique_ptr<Layer>> layers;
    for (const char kind : {'l', 'l', 'i', 'l', 'd', 'd', 'l'}) {
      const std::string name = concat(kind, layers.size());
      if (kind == 'l')
        layers.push_back(std::make_unique<Leaving>(name));
      else
        layers.push_back(std::make_unique<Doubling>(name, kind == 'i', calls));
    }
    Net net(std::move(layers), {2});
    const Tape larger(net, 2, Device::kCpu, nullptr);
    Tape tape(net, 1, Device::kCpu, nullptr, Tape::Scratch::kOwn, true, &larger);
    EXPECT_EQ(tape.bytes(), (6 + 2 + 3) * 2 * 4) << "outputs, gradients, gradients for the update";
    const Tensor x = upload({1, -1}, {1, 2}, Device::kCpu), dy = upload({1, 3}, {1, 2}, Device::kCpu);
    Tensor dx({1, 2});
    tape.forward(pass_, x);
    tape.backward(pass_, x, dy, &dx);
    std::vector<std::vector<float>> found;
    for (const Param* weight : net.params())
      for (const Tensor& factor : {weight->factors->dy, weight->factors->x}) found.push_back(download(factor));
    EXPECT_THAT(found, ElementsAre(ElementsAre(64, 192), ElementsAre(1, -1), ElementsAre(32, 96), ElementsAre(2, -2),
                                   ElementsAre(8, 24), ElementsAre(8, -8), ElementsAre(1, 3), ElementsAre(64, -64)));
    EXPECT_THAT(download(dx), ElementsAre(128, 384));
  }
}

TEST_F(TapeTest, InPlaceLayersShareMemoryWithTheLayerBefore) {
  Doubling::Calls calls;
  Net net = doublings({true, true, false, true, true}, calls);
  const Tape tape(net, 4, Device::kCpu, nullptr);
  EXPECT_EQ(tape.activation(1).raw(), tape.activation(0).raw());
  EXPECT_NE(tape.activation(2).raw(), tape.activation(1).raw());
  EXPECT_EQ(tape.activation(3).raw(), tape.activation(2).raw());
  EXPECT_EQ(tape.activation(4).raw(), tape.activation(2).raw());
  // Two activations and two gradients of 4 rows of 2 numbers.
  EXPECT_EQ(tape.bytes(), (2 + 2) * 4 * 2 * 4);
}

// In turns, a whole forward and backward each.
TEST_F(TapeTest, OfFewerRowsComputesTheSameInTheMemoryOfItsLender) {
  Net net = net_of(kEveryKindOfLayer, {6, 6, 2});
  Tape large(net, 5, Device::kCpu, nullptr), own(net, 3, Device::kCpu, nullptr);
  const int64_t before = host_memory().in_use;
  Tape small(net, 3, Device::kCpu, nullptr, Tape::Scratch::kOwn, true, &large);
  EXPECT_LT(host_memory().in_use - before, own.bytes() / 4);
  for (int64_t layer = 0; layer < net.size(); ++layer)
    EXPECT_EQ(small.activation(layer).raw(), large.activation(layer).raw()) << layer;
  const Tensor many = random_tensor(net.in().batch_of(5), "many"), few = random_tensor(net.in().batch_of(3), "few");
  const auto gradient = [&](Tape& tape, const Tensor& x) {
    Tensor dx(x.shape());
    const Tensor y = tape.forward(pass_, x).clone();
    tape.backward(pass_, x, y, &dx);
    return download(dx);
  };
  const std::vector<float> of_few = gradient(own, few), of_many = gradient(large, many);
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(gradient(small, few), of_few);
    EXPECT_EQ(gradient(large, many), of_many);
  }
}

// conv1 and the layers between it and fc1, which is trained.
TEST_F(TapeTest, OfLayersBeforeAllThatLearnKeepsTheLastOutput) {
  Net net = net_of(kEveryKindOfLayer, {6, 6, 2});
  for (Param* param : net.layer(0).params()) param->freeze();
  Tape all(net, 3, Device::kCpu, nullptr), last(net, 3, Device::kCpu, nullptr, Tape::Scratch::kOwn, false);
  EXPECT_EQ(all.bytes() - last.bytes(), all.activation(1).bytes() + all.activation(2).bytes());
  for (int64_t layer = 0; layer < net.size(); ++layer) EXPECT_EQ(last.activation(layer).defined(), layer > 2) << layer;
  std::vector<int32_t> watched;
  for (const Watched& one : last.watched(10)) watched.push_back(one.layer);
  EXPECT_THAT(watched, ElementsAre(13, 14, 16));

  const Tensor x = random_tensor(net.in().batch_of(3), "x"), dy = random_tensor(net.out().batch_of(3), "dy");
  std::vector<std::vector<float>> results[2];
  for (Tape* tape : {&all, &last}) {
    auto& result = results[tape == &last];
    result.push_back(download(tape->forward(pass_, x)));
    tape->backward(pass_, x, dy, nullptr);
    for (const int64_t layer : {4, 6})
      for (Param* param : net.layer(layer).params()) {
        result.push_back(download(param->grad));
        param->grad_is_zero = true;
      }
  }
  EXPECT_EQ(results[0], results[1]);

  EXPECT_FALSE(last.find_bad_layer(pass_).has_value());
  net.layer(0).params()[0]->value.data()[0] = kNaN;
  ++net.layer(0).params()[0]->version;
  EXPECT_EQ(last.find_bad_layer(pass_), 0);
  EXPECT_FALSE(all.find_bad_layer(pass_).has_value());  // it keeps all
}

TEST_F(TapeTest, RunsBackwardLayerByLayer) {
  Doubling::Calls calls;
  Net net = doublings({false, true, false}, calls);
  Tape tape(net, 1, Device::kCpu, nullptr);
  const Tensor x = upload({1, 2}, {1, 2}, Device::kCpu);
  tape.forward(pass_, x);
  Tensor dx({1, 2});
  tape.begin_backward(x, x, &dx);
  std::vector<int> backward_calls;
  for (const int64_t layer : {2, 1, 0}) {
    tape.backward_data(pass_, layer);
    backward_calls.push_back(calls.backward);
    tape.backward_weights(pass_, layer);
  }
  EXPECT_THAT(backward_calls, ElementsAre(1, 2, 3));
}

// A net without weights does nothing in backward if dx is not wanted.
TEST_F(TapeTest, RunsNothingBackwardWhereNothingLearns) {
  Doubling::Calls calls;
  Net net = doublings({false, true, false}, calls);
  Tape tape(net, 1, Device::kCpu, nullptr);
  const Tensor x = upload({1, 2}, {1, 2}, Device::kCpu);
  tape.forward(pass_, x);
  tape.backward(pass_, x, x, nullptr);
  EXPECT_EQ(calls.backward, 0);
}

TEST_F(TapeTest, WithNoRowsRunsNothing) {
  Doubling::Calls calls;
  Net net = doublings({false, true}, calls);
  Tape tape(net, 0, Device::kCpu, nullptr);
  const Tensor x({0, 2});
  EXPECT_EQ(tape.forward(pass_, x).shape(), (Shape{0, 2}));
  Tensor dx({0, 2});
  tape.backward(pass_, x, x, &dx);
  EXPECT_EQ(calls.bind + calls.forward + calls.backward, 0);
}

// The first layer computes gradients of weights after dx (dense), or has none (relu).
TEST_F(TapeTest, DxIsCompleteBeforeTheFirstLayersGradientsOfWeights) {
  const std::vector<std::vector<std::string>> nets{{"name='fc1' type='dense' out=4", "name='relu1' type='relu'"},
                                                   {"name='relu1' type='relu'", "name='fc1' type='dense' out=4"}};
  for (const auto& layers : nets)
    for (const int64_t rows : {0, 1, 3}) {
      SCOPED_TRACE(concat(layers[0], ", ", rows, " rows"));
      Net net = net_of(layers, {5});
      Tape tape(net, rows, Device::kCpu, nullptr);
      const Tensor x = random_tensor({rows, 5}, "x"), dy = random_tensor(net.out().batch_of(rows), "dy");
      Tensor wanted(x.shape()), dx(x.shape());
      tape.forward(pass_, x);
      tape.backward(pass_, x, dy, &wanted);
      fill(dx, 99);
      tape.forward(pass_, x);
      tape.begin_backward(x, dy, &dx);
      tape.backward_data(pass_, 1);
      tape.backward_weights(pass_, 1);
      tape.backward_data(pass_, 0);
      EXPECT_EQ(download(dx), download(wanted));
    }
}

TEST_F(TapeTest, OfAnEmptyNetIsTheIdentity) {
  Net net({}, {2});
  EXPECT_EQ(net.out(), (Shape{2}));
  EXPECT_TRUE(net.params().empty());
  Tape tape(net, 2, Device::kCpu, nullptr);
  const Tensor x = upload({1, 2, 3, 4}, {2, 2}, Device::kCpu), dy = upload({5, 6, 7, 8}, {2, 2}, Device::kCpu);
  EXPECT_EQ(tape.forward(pass_, x).raw(), x.raw());
  Tensor dx({2, 2});
  fill(dx, kNaN);
  tape.backward(pass_, x, dy, &dx);
  EXPECT_THAT(download(dx), ElementsAre(5, 6, 7, 8));
  EXPECT_NO_THROW(tape.backward(pass_, x, dy, nullptr));
}

TEST_F(TapeTest, ReportsEveryLayerToTheProfilerByNameAndPhase) {
  Doubling::Calls calls;
  Net net = doublings({false, true}, calls);
  Profiler profiler;
  profiler.enable(true);
  Tape tape(net, 1, Device::kCpu, &profiler);
  const Tensor x = upload({1, 2}, {1, 2}, Device::kCpu);
  profiler.begin_step();
  tape.forward(pass_, x);
  Tensor dx({1, 2});
  tape.backward(pass_, x, x, &dx);
  profiler.end_step();
  std::vector<std::string> rows;
  for (const Profiler::Row& row : profiler.rows()) rows.push_back(row.name + " " + name_of(row.phase));
  EXPECT_THAT(rows, ElementsAre("double0 forward", "double1 forward", "double1 backward", "double0 backward"));
}

// y = 2 x with a parameter; together with `more` successors one op, also with y = 2 x.
class Starter : public Doubling {
 public:
  Starter(const std::string& name, int64_t more, Calls& calls) : Doubling(name, false, calls), more_(more) {}

  BoundOp bind_run(std::span<const std::unique_ptr<Layer>> followers, const Shape& in, const Compute& on) override {
    EXPECT_GE(static_cast<int64_t>(followers.size()), more_);
    return {bind(in, on), 1 + more_};
  }
  std::vector<Param*> params() override { return {&param_}; }

 private:
  int64_t more_;
  Param param_;
};

class RunTest : public TapeTest {
 protected:
  // double0; then double1 and its two successors as one op; then double4 in place.
  RunTest() {
    std::vector<std::unique_ptr<Layer>> layers;
    layers.push_back(std::make_unique<Doubling>("double0", false, calls_));
    layers.push_back(std::make_unique<Starter>("double1", 2, calls_));
    layers.push_back(std::make_unique<Doubling>("double2", true, calls_));
    layers.push_back(std::make_unique<Doubling>("double3", false, calls_));
    layers.push_back(std::make_unique<Doubling>("double4", true, calls_));
    net_.emplace(std::move(layers), Shape{2});
  }

  Doubling::Calls calls_;
  std::optional<Net> net_;
  Tensor x_ = upload({1, 2}, {1, 2}, Device::kCpu);
};

TEST_F(RunTest, OneOpStandsForAllItsLayers) {
  Tape tape(*net_, 1, Device::kCpu, nullptr);
  EXPECT_THAT(download(tape.forward(pass_, x_)), ElementsAre(8, 16));
  Tensor dx({1, 2});
  tape.backward(pass_, x_, upload({1, 3}, {1, 2}, Device::kCpu), &dx);
  EXPECT_THAT(download(dx), ElementsAre(8, 24));
  EXPECT_EQ(calls_.bind, 3);
  EXPECT_EQ(calls_.forward, 3);
  EXPECT_EQ(calls_.backward, 3);
}

TEST_F(RunTest, LayerByLayerItsOpRunsForwardAtTheFirstOfThemAndBackwardFromTheLastToTheFirst) {
  Tape tape(*net_, 1, Device::kCpu, nullptr);
  tape.begin_forward(x_);
  std::vector<int> forward, data, weights;
  for (int64_t i = 0; i < 5; ++i) {
    tape.forward(pass_, i);
    forward.push_back(calls_.forward);
  }
  EXPECT_THAT(forward, ElementsAre(1, 2, 2, 2, 3));
  EXPECT_THAT(download(tape.output()), ElementsAre(8, 16));
  Tensor dx({1, 2});
  tape.begin_backward(x_, upload({1, 3}, {1, 2}, Device::kCpu), &dx);
  for (int64_t i = 5; i-- > 0;) {
    tape.backward_data(pass_, i);
    data.push_back(calls_.backward);
    tape.backward_weights(pass_, i);
    weights.push_back(calls_.weights);
  }
  EXPECT_THAT(data, ElementsAre(1, 2, 2, 2, 3));
  EXPECT_THAT(weights, ElementsAre(0, 0, 0, 1, 1));  // the others have no parameters
  EXPECT_THAT(download(dx), ElementsAre(8, 24));
}

TEST_F(RunTest, KeepsOnlyTheOutputOfTheLastLayer) {
  const Tape tape(*net_, 1, Device::kCpu, nullptr);
  EXPECT_TRUE(tape.activation(0).defined());
  EXPECT_FALSE(tape.activation(1).defined());
  EXPECT_FALSE(tape.activation(2).defined());
  EXPECT_TRUE(tape.activation(3).defined());
  EXPECT_EQ(tape.activation(4).raw(), tape.activation(3).raw());
  EXPECT_EQ(tape.bytes(), (2 + 2) * 2 * 4);  // two activations and two gradients of 2 numbers
}

TEST_F(RunTest, RunsBackwardAtItsLastLayer) {
  Tape tape(*net_, 1, Device::kCpu, nullptr);
  tape.forward(pass_, x_);
  Tensor dx({1, 2});
  tape.begin_backward(x_, x_, &dx);
  std::vector<int> backward_calls;
  for (int64_t layer = 5; layer-- > 0;) {
    tape.backward_data(pass_, layer);
    backward_calls.push_back(calls_.backward);
    tape.backward_weights(pass_, layer);
  }
  EXPECT_THAT(backward_calls, ElementsAre(1, 2, 2, 2, 3));
}

TEST_F(RunTest, IsReportedUnderTheNamesOfItsLayers) {
  Profiler profiler;
  profiler.enable(true);
  Tape tape(*net_, 1, Device::kCpu, &profiler);
  profiler.begin_step();
  tape.forward(pass_, x_);
  profiler.end_step();
  std::vector<std::string> rows;
  for (const Profiler::Row& row : profiler.rows()) rows.push_back(row.name);
  EXPECT_THAT(rows, ElementsAre("double0", "double1+double2+double3", "double4"));
}

TEST_F(RunTest, BothPassesOfItsBackwardAreOneRowOfTheProfiler) {
  Profiler profiler;
  profiler.enable(true);
  profiler.keep_spans(true);
  Tape tape(*net_, 1, Device::kCpu, &profiler);
  tape.forward(pass_, x_);
  profiler.begin_step();
  Tensor dx({1, 2});
  tape.backward(pass_, x_, x_, &dx);
  profiler.end_step();
  ASSERT_EQ(profiler.rows().size(), 3u);
  EXPECT_EQ(profiler.rows()[1].name, "double1+double2+double3");
  std::vector<size_t> spans;
  for (const Profiler::Span& span : profiler.spans()) spans.push_back(span.row);
  EXPECT_THAT(spans, ElementsAre(0, 1, 1, 2));
  const double both = profiler.spans()[1].end_ms - profiler.spans()[1].begin_ms + profiler.spans()[2].end_ms -
                      profiler.spans()[2].begin_ms;
  ASSERT_EQ(profiler.rows()[1].ms.size(), 1u);
  EXPECT_NEAR(profiler.rows()[1].ms[0], both, 1e-6);
}

TEST_F(RunTest, ABadValueIsThatOfItsFirstLayer) {
  Tape tape(*net_, 1, Device::kCpu, nullptr);
  tape.forward(pass_, x_);
  Tensor inside = tape.activation(3);
  inside.data()[0] = kNaN;
  EXPECT_EQ(first_bad_layer(tape.watched(20), 100), 21);
}

using TapeOnGpu = DeviceTest;
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TapeOnGpu);
INSTANTIATE_TEST_SUITE_P(Gpus, TapeOnGpu, ::testing::ValuesIn(gpu_devices()), device_name);

struct Results {
  std::vector<float> y, dx;
  std::vector<std::vector<float>> gradients;
};

// The results of a net of every kind of layer and a dropout, which uses random numbers.
Results results_on(const Compute& on) {
  std::vector<std::string> layers = kEveryKindOfLayer;
  layers.push_back("name='drop' type='dropout' rate=0.4");
  Net net = net_of(layers, {6, 6, 2}, on);
  constexpr int64_t kRows = 3;
  DevicePass pass(on.device, kRows);
  Tape tape(net, kRows, on, nullptr);
  const DType type = activation_type(on.precision);
  const auto draw = [&](const Shape& shape, std::string_view name) {
    return upload(download(random_tensor(shape, name)), shape, on.device, type);
  };
  const Tensor x = draw(net.in().batch_of(kRows), "x"), dy = draw(net.out().batch_of(kRows), "dy");
  Tensor dx(x.shape(), type, on.device);
  fill(dx, kNaN);
  Results results;
  const Tensor y = tape.forward(pass.pass(), x);
  tape.backward(pass.pass(), x, dy, &dx);
  pass.stream().synchronize();
  results.y = download(y), results.dx = download(dx);
  for (const Param* param : net.params()) results.gradients.push_back(download(param->grad));
  return results;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  return distance(std::vector<double>(a.begin(), a.end()), std::vector<double>(b.begin(), b.end()));
}

TEST_P(TapeOnGpu, ComputesWhatTheCpuDoes) {
  const Results cpu = results_on(Device::kCpu);
  for (const auto& [precision, tolerance] : {std::pair(Precision::kFp32, 1e-4), {Precision::kBf16, 0.15}}) {
    SCOPED_TRACE(name_of(precision));
    const Results gpu = results_on({device(), precision});
    EXPECT_NEAR(distance(gpu.y, cpu.y), 0, tolerance);
    EXPECT_NEAR(distance(gpu.dx, cpu.dx), 0, tolerance);
    ASSERT_EQ(gpu.gradients.size(), cpu.gradients.size());
    for (size_t i = 0; i < cpu.gradients.size(); ++i)
      EXPECT_NEAR(distance(gpu.gradients[i], cpu.gradients[i]), 0, tolerance) << i;
  }
}

TEST(Net, ListsItsParametersInLayerOrder) {
  Net net = net_of({"name='fc1' type='dense' out=3", "name='relu1' type='relu'", "name='fc2' type='dense' out=2"}, {4});
  std::vector<std::string> names;
  for (const Param* param : net.params()) names.push_back(param->name);
  EXPECT_THAT(names, ElementsAre("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"));
  EXPECT_EQ(net.out(), (Shape{2}));
  EXPECT_EQ(net.size(), 3);
}

}  // namespace
}  // namespace owt::net_test
