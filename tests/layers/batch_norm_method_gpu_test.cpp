// All GPU methods of normalisation, independent of their speed, against the CPU.
#include "tests/simulated_gpu/device.h"

#include "layers/batch_norm_method.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "layers/relu.h"
#include "src/core/cuda.h"
#include "src/system/check.h"
#include "src/system/plan_cache.h"
#include "tests/simulated_gpu/runtime.h"
#include "tests/support/harness.h"

namespace owt::batch_norm_method_gpu_test {
namespace {

struct Case {
  NormMethod method;
  Precision precision;
  Shape in;
  int64_t rows = 0;  // rows of a group
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto method : {NormMethod::kOwnKernels, NormMethod::kCudnn})
    for (const auto precision : {Precision::kFp32, Precision::kBf16})
      for (const Shape& in : {Shape{3, 4, 5, 8}, Shape{6, 5}, Shape{40, 6, 6, 3}})
        all.push_back({method, precision, in});
  // 40 rows are 5 groups of 8, groups of 17 and 23, or one group, since 8 are less than half of 32; 7 are 3 and 4.
  for (const auto precision : {Precision::kFp32, Precision::kBf16}) {
    for (const auto method : {NormMethod::kOwnKernels, NormMethod::kOwnKernelsByTwos}) {
      for (const int64_t rows : {8, 17, 32}) all.push_back({method, precision, {40, 6, 6, 8}, rows});
      all.push_back({method, precision, {7, 5}, 3});
    }
  }
  return all;
}

// Activations of either type on either device from and to f32 values.
Tensor activation(const std::vector<float>& values, const Shape& shape, DType dtype, Device device) {
  Tensor host(shape, dtype);
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32)
      static_cast<float*>(host.raw())[i] = values[i];
    else
      static_cast<__nv_bfloat16*>(host.raw())[i] = __float2bfloat16(values[i]);
  }
  return host.to(device);
}

std::vector<float> values_of(const Tensor& tensor) {
  const Tensor host = tensor.to(Device::kCpu);
  std::vector<float> values;
  for (int64_t i = 0; i < host.elements(); ++i)
    values.push_back(host.dtype() == DType::kF32 ? static_cast<const float*>(host.raw())[i]
                                                 : __bfloat162float(static_cast<const __nv_bfloat16*>(host.raw())[i]));
  return values;
}

// Multiples of 1/8 that are exact in bf16.
std::vector<float> numbers(int64_t count, int seed) {
  std::vector<float> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(static_cast<float>((i * i + i * 7 + seed * 17) % 29 - 9) / 8);
  return all;
}

struct Results {
  std::vector<float> y, dx, evaluated;
  std::array<std::vector<float>, 4> grads;

  bool operator==(const Results&) const = default;
};

using Bind = std::function<std::unique_ptr<Op>(const BatchNormParams& params)>;

// The parameters change between forward and backward, as in some pipeline schedules.
Results run(const Shape& in, const Compute& on, const Bind& bind) {
  const int64_t channels = in[in.rank() - 1];
  std::array<Param, 4> params;
  for (size_t i = 0; i < params.size(); ++i) {
    params[i].full_shape = params[i].file_shape = {channels};
    params[i].part = {0, channels};
    params[i].allocate(on);
    std::vector<float> value = numbers(channels, static_cast<int>(i));
    if (i == 3)
      for (float& variance : value) variance = std::abs(variance) + 1;
    params[i].set_value(upload(value, {channels}, Device::kCpu));
    fill(params[i].grad, std::numeric_limits<float>::quiet_NaN());
  }
  const std::unique_ptr<Op> op = bind(BatchNormParams{params[0], params[1], params[2], params[3]});
  const DType dtype = on.device == Device::kCpu ? DType::kF32 : activation_type(on.precision);
  const Tensor x = activation(numbers(in.elements(), 5), in, dtype, on.device);
  const Tensor dy = activation(numbers(in.elements(), 6), in, dtype, on.device);
  Tensor y(in, dtype, on.device), dx(in, dtype, on.device), evaluated(in, dtype, on.device);
  const Stream stream(on.device);
  Pass pass;
  pass.stream = &stream;
  pass.scratch = scratch_for(*op, on.device);
  pass.step_rows = 2 * in.rows();
  pass.mode = Mode::kEval;
  op->forward(pass, x, evaluated);
  pass.mode = Mode::kTrain;
  op->forward(pass, x, y);
  stream.synchronize();
  for (const size_t i : {0, 1}) params[i].set_value(upload(numbers(channels, 7), {channels}, Device::kCpu));
  run_backward(*op, pass, x, y, dy, nullptr);
  run_backward(*op, pass, x, y, dy, &dx);
  stream.synchronize();
  Results results{values_of(y), values_of(dx), values_of(evaluated), {}};
  for (size_t i = 0; i < params.size(); ++i) results.grads[i] = values_of(params[i].grad);
  return results;
}

class BatchNormMethods : public testing::TestWithParam<Case> {
 protected:
  static void expect_near(const std::vector<float>& found, const std::vector<float>& wanted, double tolerance) {
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(found[i], wanted[i], tolerance * std::max(1.0, std::abs(static_cast<double>(wanted[i])))) << i;
  }
};

constexpr const char* kNames[] = {"fastest", "own_kernels", "own_kernels_by_twos", "cudnn"};  // names of NormMethod
INSTANTIATE_TEST_SUITE_P(All, BatchNormMethods, testing::ValuesIn(cases()), [](const auto& info) {
  return concat(kNames[static_cast<int>(info.param.method)], "_", info.param.precision, "_", info.param.in, "_in_",
                info.param.rows, "s");
});

TEST_P(BatchNormMethods, ComputeWhatTheCpuComputes) {
  const Case& c = GetParam();
  const Shape& in = c.in;
  const double eps = 1e-5;
  const Results cpu = run(in, Device::kCpu, [&](const BatchNormParams& params) {
    return bind_batch_norm(Cpu{}, params, {eps, c.rows}, in);
  });
  const Results gpu = run(in, Compute(Device::kCuda, c.precision), [&](const BatchNormParams& params) {
    return bind_batch_norm_by(c.method, Cuda{c.precision}, params, {eps, c.rows}, in);
  });
  const double rounding = c.precision == Precision::kBf16 ? 1.0 / 128 : 1e-5;
  expect_near(gpu.y, cpu.y, rounding);
  expect_near(gpu.dx, cpu.dx, rounding);
  expect_near(gpu.evaluated, cpu.evaluated, rounding);
  for (size_t i = 0; i < cpu.grads.size(); ++i) expect_near(gpu.grads[i], cpu.grads[i], 1e-5);
}

// A normalisation, then a relu in place.
class NormThenRelu : public Op {
 public:
  NormThenRelu(std::unique_ptr<Op> norm, std::unique_ptr<Op> relu) : norm_(std::move(norm)), relu_(std::move(relu)) {}

  int64_t scratch_bytes(Phase phase) const override { return norm_->scratch_bytes(phase); }
  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    norm_->forward(pass, x, y);
    relu_->forward(pass, y, y);
  }
  void backward_data(const Pass& pass, const Tensor& x, const Tensor& y, const Tensor& dy, Tensor* dx) override {
    Tensor gradient(dy.shape(), dy.dtype(), dy.device());
    relu_->backward_data(pass, y, y, dy, &gradient);
    norm_->backward_data(pass, x, y, gradient, dx);
    pass.stream->synchronize();
  }

 private:
  std::unique_ptr<Op> norm_, relu_;
};

TEST_P(BatchNormMethods, WithAReluGiveTheBitsOfBothLayers) {
  const Case& c = GetParam();
  const Cuda cuda{c.precision};
  const auto run_with = [&](bool fused) {
    return run(c.in, Compute(Device::kCuda, c.precision), [&](const BatchNormParams& params) -> std::unique_ptr<Op> {
      auto norm = bind_batch_norm_by(c.method, cuda, params, {1e-5, c.rows, fused}, c.in);
      if (fused) return norm;
      return std::make_unique<NormThenRelu>(std::move(norm), bind_relu(cuda));
    });
  };
  const Results fused = run_with(true);
  EXPECT_EQ(fused, run_with(false));
  EXPECT_THAT(fused.y, testing::AllOf(testing::Contains(0.0f), testing::Contains(testing::Gt(0.0f)),
                                      testing::Each(testing::Ge(0.0f))));
}

// How many groups are taken at a time, for each direction: from what is remembered of the norm of the shape.
std::vector<std::string> remembered_parts(const Shape& in) {
  std::vector<std::string> parts;
  for (const auto& [key, text] : PlanCache::process().known()) {
    const std::string what = "groups of a norm at once, ", shape = concat(", ", in, " in groups of 2, ");
    const size_t at = key.find(what), end = key.find(shape);
    if (at == std::string::npos || end == std::string::npos) continue;
    parts.push_back(key.substr(at + what.size(), 1) + key.substr(end + shape.size()));
    EXPECT_THAT(text, testing::AnyOf("part", "all"));
  }
  return parts;
}

// A group of the norm has 2 x 16 x 4 floats, 512 bytes; backward reads two tensors.
TEST(NormParts, AreAsManyGroupsAsHalfOfTheL2CacheHolds) {
  const Shape in{10, 4, 4, 4};
  const auto bind = [&](const BatchNormParams& params) {
    return bind_batch_norm_by(NormMethod::kFastest, Cuda{Precision::kFp32}, params, {1e-5, 2}, in);
  };
  const auto parts_with = [&](int64_t l2_bytes) {
    simulated_gpu::set_l2_cache(static_cast<size_t>(l2_bytes));
    run(in, Compute(Device::kCuda, Precision::kFp32), bind);
    return remembered_parts(in);
  };
  const auto usual = static_cast<size_t>(attribute_of_gpu(cudaDevAttrL2CacheSize));
  EXPECT_THAT(parts_with(1023), testing::IsEmpty()) << "half does not hold a group";
  EXPECT_THAT(parts_with(1 << 20), testing::IsEmpty()) << "half holds all groups of both tensors";
  EXPECT_THAT(parts_with(4096), testing::UnorderedElementsAre("f4", "b2"));
  simulated_gpu::set_l2_cache(usual);
}

}  // namespace
}  // namespace owt::batch_norm_method_gpu_test
