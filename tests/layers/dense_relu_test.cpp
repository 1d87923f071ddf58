// A dense layer and its relu as one op, and dense layers in bf16: results on a GPU against the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "layers/dense.h"
#include "src/core/bf16.h"
#include "src/system/check.h"
#include "tests/support/check_layer.h"
#include "tests/support/harness.h"

namespace owt::dense_relu_test {
namespace {

using testing::ElementsAre;
using testing::FloatNear;
using testing::IsEmpty;
using testing::IsNan;
using testing::Pointwise;

using Values = std::vector<float>;

// Runs a list of layers like a net: the first layer with the successors that it takes into its op, then the rest.
class InARow : public Layer {
 public:
  explicit InARow(std::vector<std::unique_ptr<Layer>> layers)
      : Layer(layers.front()->name(), "dense"), layers_(std::move(layers)) {}

  Shape out_shape(const Shape& in) const override {
    Shape out = in;
    for (const auto& layer : layers_) out = layer->out_shape(out);
    return out;
  }
  std::vector<Param*> params() override { return layers_.front()->params(); }

  std::unique_ptr<Op> bind(const Shape& in, const Compute& on) override {
    const auto followers = std::span<const std::unique_ptr<Layer>>(layers_).subspan(1);
    BoundOp run = layers_.front()->bind_run(followers, in, on);
    fused_ = run.layers;
    if (run.layers == static_cast<int64_t>(layers_.size())) return std::move(run.op);
    OWT_CHECK_EQ(layers_.size(), 2u, "the rest is one layer that works in place");
    return std::make_unique<TwoOps>(std::move(run.op), layers_.back()->bind(layers_.front()->out_shape(in), on));
  }

  int64_t fused() const { return fused_; }  // layers of the last op

 private:
  class TwoOps : public Op {
   public:
    TwoOps(std::unique_ptr<Op> first, std::unique_ptr<Op> second)
        : first_(std::move(first)), second_(std::move(second)) {}
    void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
      first_->forward(pass, x, y);
      second_->forward(pass, y, y);
    }
    void backward_data(const Pass& pass, const Tensor& x, const Tensor& y, const Tensor& dy, Tensor* dx) override {
      Tensor gradient = dy;
      run_backward(*second_, pass, y, y, dy, &gradient);
      first_->backward_data(pass, x, y, gradient, dx);
    }
    void backward_weights(const Pass& pass, const Tensor& x, const Tensor& dy) override {
      first_->backward_weights(pass, x, dy);
    }

   private:
    std::unique_ptr<Op> first_, second_;
  };

  std::vector<std::unique_ptr<Layer>> layers_;
  int64_t fused_ = 0;
};

std::unique_ptr<InARow> dense_and(const std::string& follower, const std::string& keys, const Shape& in,
                                  std::optional<Slice> part = {}) {
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(layer_from("type='dense' " + keys, in, part));
  layers.push_back(layer_from(follower, layers.front()->out_shape(in)));
  return std::make_unique<InARow>(std::move(layers));
}

using DenseReluTest = DeviceTest;
INSTANTIATE_TEST_SUITE_P(Devices, DenseReluTest, testing::ValuesIn(devices()), device_name);

TEST_P(DenseReluTest, NegativeOutputsAreZeroAndPassNoGradient) {
  const Shape in{2, 1};
  Harness layers(dense_and("type='relu'", "out=2", in), in, device());
  layers.set_param("weight", {1, -1});
  layers.set_param("bias", {10, 20});
  EXPECT_THAT(layers.forward({5, 30}), ElementsAre(15, 15, 40, 0));
  EXPECT_THAT(layers.backward({1, 2, 3, 4}), ElementsAre(1 - 2, 3));
  EXPECT_THAT(layers.grad("weight"), ElementsAre(5 * 1 + 30 * 3, 5 * 2));
  EXPECT_THAT(layers.grad("bias"), ElementsAre(1 + 3, 2));
}

TEST_P(DenseReluTest, GradientsAddUpUntilTheyAreCleared) {
  const Shape in{1, 1};
  Harness layers(dense_and("type='relu'", "out=1", in), in, device());
  layers.set_param("weight", {1});
  layers.forward({3});
  layers.backward({1});
  layers.backward_without_dx({1});
  EXPECT_THAT(layers.grad("weight"), ElementsAre(6));
  EXPECT_THAT(layers.grad("bias"), ElementsAre(2));
  layers.clear_grads();
  layers.backward({1});
  EXPECT_THAT(layers.grad("bias"), ElementsAre(1));
}

TEST_P(DenseReluTest, NaNStaysNaN) {
  const Shape in{2, 2};
  Harness layers(dense_and("type='relu'", "out=2", in), in, device());
  layers.set_param("weight", {1, 1, 1, 1});
  EXPECT_THAT(layers.forward({NAN, 1, 1, 1}), ElementsAre(IsNan(), IsNan(), 2, 2));
}

TEST_P(DenseReluTest, WorksWithoutABias) {
  const Shape in{1, 2};
  Harness layers(dense_and("type='relu'", "out=2 bias=false", in), in, device());
  layers.set_param("weight", {1, 2, -3, -4});
  EXPECT_THAT(layers.forward({1, 1}), ElementsAre(3, 0));
  EXPECT_THAT(layers.backward({5, 7}), ElementsAre(5, 10));
  EXPECT_THAT(layers.grad("weight"), ElementsAre(5, 5, 0, 0));
}

TEST_P(DenseReluTest, AnEmptyPartHasAZeroGradient) {
  const Shape in{2, 3};
  Harness layers(dense_and("type='relu'", "out=3", in, Slice{1, 1}), in, device());
  EXPECT_THAT(layers.forward({1, 2, 3, 4, 5, 6}), IsEmpty());
  EXPECT_THAT(layers.backward({}), ElementsAre(0, 0, 0, 0, 0, 0));
}

TEST_P(DenseReluTest, OnlyAReluIsFusedIntoTheOpAndOnlyOnAGpu) {
  const Shape in{2, 3};
  const auto with_relu = dense_and("type='relu'", "out=2", in),
             with_dropout = dense_and("type='dropout' rate=0.5", "out=2", in);
  for (Layer* layers : {static_cast<Layer*>(with_relu.get()), static_cast<Layer*>(with_dropout.get())}) {
    for (Param* param : layers->params()) param->allocate(device());
    layers->bind(in, device());
  }
  EXPECT_EQ(with_relu->fused(), device() == Device::kCpu ? 1 : 2);
  EXPECT_EQ(with_dropout->fused(), 1);
}

struct Case {
  Device device;
  Precision precision;
  bool relu;
};

std::vector<Case> gpu_cases() {
  std::vector<Case> cases;
  for (const Device device : gpu_devices())
    for (const Precision precision : {Precision::kFp32, Precision::kTf32, Precision::kBf16})
      for (const bool relu : {false, true}) cases.push_back({device, precision, relu});
  return cases;
}

class DenseOnGpuTest : public testing::TestWithParam<Case> {
 protected:
  // Everything a step computes, for inputs that bf16 holds exactly.
  struct Results {
    Values y, dx, dw, db;
  };

  Results step(const Compute& on, const Shape& in, int64_t out) {
    const std::string keys = concat("out=", out);
    std::unique_ptr<Layer> layer;
    if (GetParam().relu)
      layer = dense_and("type='relu'", keys, in);
    else
      layer = layer_from("type='dense' " + keys, in);
    Harness harness(std::move(layer), in, on);
    harness.set_param("weight", exact(out * in.row_elements(), 0.5, 1));
    harness.set_param("bias", exact(out, 0.5, 2));
    Results results;
    results.y = harness.forward(exact(in.elements(), 1, 3));
    const Values dy = exact(in.rows() * out, 1, 4);
    harness.backward(dy);
    results.dx = harness.backward(dy);  // the second one adds to dw and db
    results.dw = harness.grad("weight");
    results.db = harness.grad("bias");
    return results;
  }

 private:
  static Values exact(int64_t count, double range, uint64_t seed) {
    Values values = distinct_values(count, range, seed);
    for (float& value : values) value = from_bf16(to_bf16(value));
    return values;
  }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DenseOnGpuTest);
INSTANTIATE_TEST_SUITE_P(Gpu, DenseOnGpuTest, testing::ValuesIn(gpu_cases()), [](const auto& info) {
  const Case& c = info.param;
  return concat(name_of(c.device), "_", name_of(c.precision), c.relu ? "_relu" : "");
});

void expect_close(const Values& found, const Values& wanted, double relative, const char* what) {
  double largest = 0;
  for (const float value : wanted) largest = std::max(largest, std::abs(static_cast<double>(value)));
  EXPECT_THAT(found, Pointwise(FloatNear(static_cast<float>(relative * largest)), wanted)) << what;
}

TEST_P(DenseOnGpuTest, AStepComputesWhatTheCpuComputes) {
  const double relative = GetParam().precision == Precision::kFp32 ? 1e-5 : 1e-2;
  const std::pair<Shape, int64_t> sizes[] = {{{9, 22}, 10}, {{16, 64}, 32}, {{70, 2, 3, 5}, 136}, {{300, 8}, 64}};
  for (const auto& [in, out] : sizes) {
    SCOPED_TRACE(concat(in, " to ", out));
    const Results cpu = step(Device::kCpu, in, out), gpu = step({GetParam().device, GetParam().precision}, in, out);
    expect_close(gpu.y, cpu.y, relative, "y");
    expect_close(gpu.dx, cpu.dx, relative, "dx");
    expect_close(gpu.dw, cpu.dw, relative, "dw");
    expect_close(gpu.db, cpu.db, relative, "db");
  }
}

}  // namespace
}  // namespace owt::dense_relu_test
