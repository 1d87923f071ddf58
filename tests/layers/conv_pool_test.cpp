// Layers that a net runs as one op (a convolution or dense layer and its successors), compared with separate layers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "src/system/check.h"
#include "tests/support/check_layer.h"
#include "tests/support/harness.h"
#include "tests/support/nets.h"

namespace owt::conv_pool_test {
namespace {

using testing::ElementsAre;
using testing::IsNan;

using Values = std::vector<float>;
using Keys = std::vector<std::string>;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// What a net does without any fusion: an op, an output and a gradient for every layer.
class OneByOne {
 public:
  OneByOne(Net& net, int64_t rows, const Compute& on) {
    Shape shape = net.in().batch_of(rows);
    for (int64_t i = 0; i < net.size(); ++i) {
      ops_.push_back(net.layer(i).bind(shape, on));
      scratch_.push_back(scratch_for(*ops_.back(), on.device));
      shape = net.layer(i).out_shape(shape);
      y_.emplace_back(shape, activation_type(on.precision), on.device);
    }
  }

  const Tensor& forward(Pass pass, const Tensor& x) {
    for (size_t i = 0; i < ops_.size(); ++i) {
      pass.scratch = scratch_[i];
      ops_[i]->forward(pass, i > 0 ? y_[i - 1] : x, y_[i]);
    }
    return y_.back();
  }
  void backward(Pass pass, const Tensor& x, const Tensor& dy, Tensor* dx) {
    Tensor gradient = dy;
    for (size_t i = ops_.size(); i-- > 0;) {
      const Tensor& in = i > 0 ? y_[i - 1] : x;
      Tensor below(in.shape(), in.dtype(), in.device());
      pass.scratch = scratch_[i];
      run_backward(*ops_[i], pass, in, y_[i], gradient, i > 0 ? &below : dx);
      below_.push_back(below);  // queued work uses it
      gradient = below;
    }
  }

 private:
  std::vector<std::unique_ptr<Op>> ops_;
  std::vector<Tensor> scratch_, y_, below_;
};

// Integers from -range to range. Sums of their products are exact in f32, and in bf16 if they are few and small.
Values whole_numbers(int64_t count, int range, uint64_t seed) {
  Values values = distinct_values(count, 1, seed);
  for (float& value : values) value = std::round(value * static_cast<float>(range));
  return values;
}

struct Case {
  Device device;
  Precision precision;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases{{Device::kCpu, Precision::kFp32}};
  for (const Device device : gpu_devices())
    for (const Precision precision : {Precision::kFp32, Precision::kTf32, Precision::kBf16})
      cases.push_back({device, precision});
  return cases;
}

class ConvPoolTest : public testing::TestWithParam<Case> {
 protected:
  struct Data {
    Values x, dy;
    std::vector<Values> params;
  };
  // The results of two steps that add to the same gradients; the second one needs no dx.
  struct Results {
    Values y, dx;
    std::vector<Values> grads;
  };

  Compute on() const { return {GetParam().device, GetParam().precision}; }

  Data whole_data(const Keys& keys, const Shape& in) const {
    const Net net = net_of(keys, in.row(), on());
    Data data{.x = whole_numbers(in.elements(), 2, 1),
              .dy = whole_numbers(net.out().batch_of(in.rows()).elements(), 3, 2),
              .params = {}};
    for (const Param* param : net.params())
      data.params.push_back(whole_numbers(param->shape().elements(), 1, 3 + data.params.size()));
    return data;
  }

  Results as_a_net(const Keys& keys, const Shape& in, const Data& data) const {
    Net net = net_of(keys, in.row(), on());
    Tape tape(net, in.rows(), on(), nullptr);
    return steps(tape, net, in, data);
  }
  Results one_by_one(const Keys& keys, const Shape& in, const Data& data) const {
    Net net = net_of(keys, in.row(), on());
    OneByOne ops(net, in.rows(), on());
    return steps(ops, net, in, data);
  }

  void expect_the_same(const Keys& keys, const Shape& in) const {
    SCOPED_TRACE(concat(keys[0], ", ", keys[2], ", ", in));
    const Data data = whole_data(keys, in);
    const Results whole = as_a_net(keys, in, data), wanted = one_by_one(keys, in, data);
    EXPECT_EQ(whole.y, wanted.y);
    EXPECT_EQ(whole.dx, wanted.dx);
    EXPECT_EQ(whole.grads, wanted.grads);
  }

 private:
  template <class Passes>
  Results steps(Passes& passes, Net& net, const Shape& in, const Data& data) const {
    const DType dtype = activation_type(GetParam().precision);
    const std::vector<Param*> params = net.params();
    for (size_t i = 0; i < params.size(); ++i) {
      params[i]->set_value(upload(data.params[i], params[i]->shape(), Device::kCpu));
      fill(params[i]->grad, kNaN);
      params[i]->grad_is_zero = true;
    }
    DevicePass device_pass(GetParam().device, in.rows());
    const Pass& pass = device_pass.pass();
    const Tensor x = upload(data.x, in, GetParam().device, dtype);
    Tensor dx(in, dtype, GetParam().device);
    Results results;
    for (const bool wants_dx : {true, false}) {
      const Tensor& y = passes.forward(pass, x);
      const Tensor dy = upload(data.dy, net.out().batch_of(in.rows()), GetParam().device, dtype);
      fill(dx, kNaN);
      passes.backward(pass, x, dy, wants_dx ? &dx : nullptr);
      pass.stream->synchronize();
      results.y = download(y);
      if (wants_dx) results.dx = download(dx);
    }
    for (const Param* param : params) results.grads.push_back(download(param->grad));
    return results;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, ConvPoolTest, testing::ValuesIn(all_cases()), [](const auto& info) {
  return concat(name_of(info.param.device), "_", name_of(info.param.precision));
});

TEST_P(ConvPoolTest, OnlyAPositiveMaximumPassesItsGradient) {
  const Keys keys{"type='conv' out=1 kernel=1", "type='relu'", "type='max_pool' kernel=2"};
  const Results results = as_a_net(keys, {1, 2, 4, 1},
                                   {.x = {-1, -2, 3, 1,  //
                                          -3, -4, 5, -5},
                                    .dy = {10, 20},
                                    .params = {{1}, {-1}}});
  EXPECT_THAT(results.y, ElementsAre(0, 4));
  EXPECT_THAT(results.dx, ElementsAre(0, 0, 0, 0,  //
                                      0, 0, 20, 0));
  EXPECT_THAT(results.grads[0], ElementsAre(2 * 5 * 20));
  EXPECT_THAT(results.grads[1], ElementsAre(2 * 20));
}

TEST_P(ConvPoolTest, OverlappingWindowsAddTheirGradients) {
  const Keys keys{"type='conv' out=1 kernel=1", "type='relu'", "type='max_pool' kernel=3 stride=2"};
  const Results results = as_a_net(keys, {1, 3, 5, 1},
                                   {.x = {1, 1, 1, 1, 1,  //
                                          1, 1, 7, 1, 1,  //
                                          1, 1, 1, 1, 1},
                                    .dy = {10, 20},
                                    .params = {{2}, {0}}});
  EXPECT_THAT(results.y, ElementsAre(14, 14));
  EXPECT_THAT(results.dx, ElementsAre(0, 0, 0, 0, 0,   //
                                      0, 0, 60, 0, 0,  //
                                      0, 0, 0, 0, 0));
  EXPECT_THAT(results.grads[1], ElementsAre(2 * (10 + 20)));
}

TEST_P(ConvPoolTest, NaNShowsAndPassesNoGradient) {
  const Keys keys{"type='conv' out=1 kernel=1", "type='relu'", "type='max_pool' kernel=2"};
  const Results results = as_a_net(keys, {1, 2, 4, 1},
                                   {.x = {kNaN, 1, 2, 3,  //
                                          1, 1, 4, 5},
                                    .dy = {10, 20},
                                    .params = {{1}, {0}}});
  EXPECT_THAT(results.y, ElementsAre(IsNan(), 5));
  EXPECT_THAT(results.dx, ElementsAre(0, 0, 0, 0,  //
                                      0, 0, 0, 20));
  EXPECT_THAT(results.grads[0], ElementsAre(IsNan()));  // NaN times a gradient of 0
  EXPECT_THAT(results.grads[1], ElementsAre(2 * 20));
}

TEST_P(ConvPoolTest, ComputesWhatTheLayersComputeOneByOne) {
  const std::string relu = "type='relu'";
  expect_the_same({"type='conv' out=8 kernel=3 pad=1", relu, "type='max_pool' kernel=3 stride=2"}, {3, 9, 7, 4});
  expect_the_same({"type='conv' out=5 kernel=3 stride=2", relu, "type='max_pool' kernel=2 round='up'"}, {2, 12, 13, 3});
  expect_the_same({"type='conv' out=16 kernel=2 bias=false", relu, "type='max_pool' kernel=3 stride=2 pad=1"},
                  {2, 8, 9, 2});
  expect_the_same({"type='conv' out=6 kernel=[1,3] groups=2", relu, "type='max_pool' kernel=5 stride=3"},
                  {2, 11, 13, 4});
  expect_the_same({"type='conv' out=3 kernel=1", relu, "type='max_pool' kernel=17 stride=2"}, {1, 20, 19, 2});
}

TEST_P(ConvPoolTest, TheReluMayFollowThePool) {
  const std::string relu = "type='relu'";
  expect_the_same({"type='conv' out=8 kernel=3 pad=1", "type='max_pool' kernel=3 stride=2 round='up'", relu},
                  {3, 9, 8, 4});
  expect_the_same({"type='conv' out=6 kernel=1 bias=false", "type='max_pool' kernel=4 stride=3", relu}, {2, 9, 10, 3});
  const Results results = as_a_net({"type='conv' out=1 kernel=1", "type='max_pool' kernel=2", relu}, {1, 2, 6, 1},
                                   {.x = {kNaN, 1, 2, 3, -7, -5,  //
                                          1, 1, 4, 5, -6, -8},
                                    .dy = {10, 20, 30},
                                    .params = {{1}, {0}}});
  EXPECT_THAT(results.y, ElementsAre(IsNan(), 5, 0));
  EXPECT_THAT(results.dx, ElementsAre(0, 0, 0, 0, 0, 0,  //
                                      0, 0, 0, 20, 0, 0));
}

// Windows of 16, 8 or 4 pixels each, so that sums are exact here too, in any order.
TEST_P(ConvPoolTest, AveragesOfWhatAReluGaveComputeWhatTheLayersComputeOneByOne) {
  const std::string relu = "type='relu'";
  expect_the_same({"type='conv' out=8 kernel=3 pad=1", relu, "type='avg_pool' kernel=4 stride=3 round='up'"},
                  {3, 8, 11, 4});
  expect_the_same({"type='conv' out=5 kernel=2 bias=false", relu, "type='avg_pool' kernel=2 pad=1"}, {2, 8, 9, 3});
  expect_the_same({"type='conv' out=96 kernel=1", relu, "type='avg_pool' kernel=1 stride=2"}, {4, 23, 26, 2});
}

TEST_P(ConvPoolTest, WhatAnAveragePoolIsGivenIsKeptAndCounted) {
  Net net = net_of({"type='conv' out=8 kernel=3", "type='relu'", "type='avg_pool' kernel=2"}, {8, 8, 3}, on());
  const Tape tape(net, 2, on(), nullptr, Tape::Scratch::kOfPass);
  EXPECT_EQ(tape.bytes(), 2 * (6 * 6 + 3 * 3) * 8 * size_of(activation_type(GetParam().precision)));
}

// A byte holds the places of windows up to 11 x 11, and that a maximum is not positive.
TEST_P(ConvPoolTest, LargeWindowsKnowWhereTheirMaximaAre) {
  for (const int kernel : {11, 12})
    expect_the_same({"type='conv' out=4 kernel=1", "type='relu'", concat("type='max_pool' stride=3 kernel=", kernel)},
                    {1, 16, 15, 2});
}

TEST_P(ConvPoolTest, PixelsThatNoWindowHoldsGetNoGradient) {
  expect_the_same({"type='conv' out=8 kernel=1", "type='relu'", "type='max_pool' kernel=1 stride=2"}, {2, 5, 6, 3});
}

// So many that their sums are taken in several blocks.
TEST_P(ConvPoolTest, AddsUpTheBiasGradientOfManyPositions) {
  expect_the_same({"type='conv' out=8 kernel=1", "type='relu'", "type='max_pool' kernel=2 stride=1"}, {4, 48, 64, 2});
}

// Channels that fill blocks of threads, that leave some lanes of the last block without work, or all blocks with fewer.
TEST_P(ConvPoolTest, AddsUpTheBiasGradientOfManyChannels) {
  for (const int out : {64, 96, 72, 40, 33})
    for (const char* pool : {"type='max_pool' kernel=2", "type='max_pool' kernel=3 stride=2"})
      expect_the_same({concat("type='conv' kernel=1 out=", out), "type='relu'", pool}, {3, 22, 26, 2});
}

TEST_P(ConvPoolTest, ADenseLayerTakesAReluAndADropoutWithIt) {
  const std::string relu = "type='relu'";
  for (const int out : {64, 100, 13})
    for (const char* rate : {"0.5", "0.25", "0"})
      expect_the_same({concat("type='dense' out=", out), relu, concat("type='dropout' rate=", rate)}, {200, 4});
  expect_the_same({"type='dense' out=24", relu, "type='dropout' rate=0.5", "type='dense' out=16 bias=false", relu,
                   "type='dropout' rate=0.75", "type='dense' out=3"},
                  {9, 2, 3, 5});
}

TEST_P(ConvPoolTest, ADroppedNaNDoesNotShowAndAKeptOneDoes) {
  const Keys keys{"type='dense' out=1", "type='relu'", "type='dropout' rate=0.5"};
  Values x(64, kNaN);
  const Results results = as_a_net(keys, {64, 1}, {.x = x, .dy = Values(64, 1), .params = {{1}, {0}}});
  EXPECT_THAT(results.y, testing::Contains(0));
  EXPECT_THAT(results.y, testing::Contains(IsNan()));
  EXPECT_THAT(results.dx, testing::Each(0));
}

TEST_P(ConvPoolTest, WorksInARowAndWithADropoutInPlaceAfterIt) {
  expect_the_same(
      {"type='conv' out=8 kernel=3 pad=1", "type='relu'", "type='max_pool' kernel=3 stride=2",
       "type='dropout' rate=0.5", "type='conv' out=16 kernel=2 bias=false", "type='relu'", "type='max_pool' kernel=2"},
      {3, 15, 14, 1});
}

TEST_P(ConvPoolTest, AGpuDoesNotKeepTheImagesBeforeThePool) {
  Net net = net_of({"type='conv' out=8 kernel=3", "type='relu'", "type='max_pool' kernel=2"}, {8, 8, 3}, on());
  const Tape tape(net, 2, on(), nullptr);
  const bool gpu = GetParam().device == Device::kCuda;
  EXPECT_EQ(tape.activation(0).defined(), !gpu);
  EXPECT_EQ(tape.activation(1).defined(), !gpu);
  EXPECT_EQ(tape.activation(2).shape(), (Shape{2, 3, 3, 8}));
}

// How many layers become one op.
int64_t run_of(const Keys& keys, const Compute& on, const Shape& in = {2, 8, 8, 3}) {
  const Net net = net_of(keys, in.row(), on);
  return net.layer(0).bind_run(net.layers_from(1), in, on).layers;
}

TEST_P(ConvPoolTest, OnlyAReluAndAPoolAreFusedIntoTheOpAndOnlyOnAGpu) {
  const std::string conv = "type='conv' out=8 kernel=3", relu = "type='relu'", max_pool = "type='max_pool' kernel=2";
  const bool gpu = GetParam().device == Device::kCuda;
  EXPECT_EQ(run_of({conv, relu, max_pool}, on()), gpu ? 3 : 1);
  EXPECT_EQ(run_of({conv, relu, max_pool, relu}, on()), gpu ? 3 : 1);
  EXPECT_EQ(run_of({conv, relu, "type='avg_pool' kernel=2"}, on()), gpu ? 3 : 1);
  EXPECT_EQ(run_of({conv, "type='avg_pool' kernel=2", relu}, on()), 1);
  EXPECT_EQ(run_of({conv, relu, "type='global_avg_pool'"}, on()), gpu ? 2 : 1);
  EXPECT_EQ(run_of({conv, relu}, on()), gpu ? 2 : 1);
  EXPECT_EQ(run_of({conv, max_pool, relu}, on()), gpu ? 3 : 1);
  EXPECT_EQ(run_of({conv, max_pool}, on()), 1);
  EXPECT_EQ(run_of({conv, max_pool, "type='dropout' rate=0.5"}, on()), 1);
}

TEST_P(ConvPoolTest, OnlyADropoutAfterAReluIsFusedIntoADenseLayersOp) {
  const std::string dense = "type='dense' out=4", relu = "type='relu'", dropout = "type='dropout' rate=0.5";
  const bool gpu = GetParam().device == Device::kCuda;
  EXPECT_EQ(run_of({dense, relu, dropout}, on()), gpu ? 3 : 1);
  EXPECT_EQ(run_of({dense, relu, dropout, dropout}, on()), gpu ? 3 : 1);
  EXPECT_EQ(run_of({dense, relu, dense}, on()), gpu ? 2 : 1);
  EXPECT_EQ(run_of({dense, dropout, relu}, on()), 1);
}

// In evaluation dropout has no effect.
TEST_P(ConvPoolTest, EvaluationKnowsTheReluOnly) {
  Net net = net_of({"type='dense' out=2", "type='relu'", "type='dropout' rate=0.9"}, {1}, on());
  net.params()[0]->set_value(upload({1, -1}, {2, 1}, Device::kCpu));
  Tape tape(net, 2, on(), nullptr);
  DevicePass pass(GetParam().device, 2);
  pass.pass().mode = Mode::kEval;
  const Tensor x = upload({3, -5}, {2, 1}, GetParam().device, activation_type(GetParam().precision));
  const Tensor& y = tape.forward(pass.pass(), x);
  pass.stream().synchronize();
  EXPECT_THAT(download(y), ElementsAre(3, 0, 0, 5));
}

}  // namespace
}  // namespace owt::conv_pool_test
