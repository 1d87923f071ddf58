// Every each to compute a convolution on a GPU, independent of its speed, against the definition.
#include "tests/simulated_gpu/device.h"

#include "layers/gpu/conv_plans.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "src/system/check.h"
#include "src/system/plan_cache.h"
#include "tests/support/check_layer.h"
#include "tests/support/harness.h"

namespace owt::conv_plans_gpu_test {
namespace {

constexpr int64_t kRows = 2;
const ConvGeometry kGeometry{9, 8, 3, 5, 4, 8, 3, 3, 2, 2, 1, 1, 1, 1, 1};

struct ConvCase {
  ConvPresentation presentation;
  bool fused, bias, relu;
  Precision precision;
};

std::vector<ConvCase> cases_in(const std::vector<Precision>& precisions) {
  std::vector<ConvCase> cases;
  for (const auto presentation : {ConvPresentation::kPlain, ConvPresentation::kFourChannels,
                                  ConvPresentation::kEightChannels, ConvPresentation::kBlocks})
    for (const bool fused : {false, true})
      for (const bool bias : {false, true})
        for (const bool relu : {false, true})
          for (const auto precision : precisions)
            if (bias || !fused) cases.push_back({presentation, fused, bias, relu, precision});
  return cases;
}

Tensor to_gpu(const std::vector<float>& values, const Shape& shape, DType dtype) {
  if (dtype == DType::kF32) return upload(values, shape, Device::kCuda);
  Tensor host(shape, dtype);
  for (size_t i = 0; i < values.size(); ++i) static_cast<__nv_bfloat16*>(host.raw())[i] = __float2bfloat16(values[i]);
  return host.to(Device::kCuda);
}

std::vector<double> from_gpu(const Tensor& tensor) {
  const Tensor host = tensor.to(Device::kCpu);
  std::vector<double> values;
  for (int64_t i = 0; i < host.elements(); ++i)
    values.push_back(static_cast<double>(host.dtype() == DType::kF32
                                             ? static_cast<const float*>(host.raw())[i]
                                             : __bfloat162float(static_cast<const __nv_bfloat16*>(host.raw())[i])));
  return values;
}

// Multiples of 1/8 that are exact in bf16.
std::vector<float> values(int64_t count, int seed) {
  std::vector<float> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(static_cast<float>((i * 31 + seed * 17) % 23 - 11) / 8);
  return all;
}

class ConvPresentations : public testing::TestWithParam<ConvCase> {
 protected:
  ConvPresentations() : dtype_(activation_type(GetParam().precision)), cuda_{GetParam().precision} {
    weight_.full_shape = weight_.file_shape = w_shape();
    bias_.full_shape = bias_.file_shape = {kGeometry.out_c};
    for (Param* param : {&weight_, &bias_}) {
      param->part = {0, kGeometry.out_c};
      param->allocate(Compute(Device::kCuda, GetParam().precision));
      param->set_value(upload(values(param->shape().elements(), 3), param->shape(), Device::kCpu));
      fill(param->grad, std::numeric_limits<float>::quiet_NaN());
    }
    op_ = bind();
    pass_.stream = &stream_;
    pass_.scratch = scratch_for(*op_, Device::kCuda);
  }

  std::unique_ptr<Op> bind() {
    std::optional<ConvPlans> plans =
        conv_plans_as(cuda_, kGeometry, kRows, {.bias = GetParam().bias, .relu = GetParam().relu},
                      GetParam().presentation, GetParam().fused);
    OWT_CHECK(plans.has_value());
    return bind_conv_with(std::move(*plans), cuda_, kGeometry, kRows, weight_, GetParam().bias ? &bias_ : nullptr,
                          GetParam().relu);
  }

  static Shape x_shape() { return {kRows, kGeometry.in_h, kGeometry.in_w, kGeometry.in_c}; }
  static Shape w_shape() { return {kGeometry.out_c, kGeometry.kernel_h, kGeometry.kernel_w, kGeometry.in_c}; }
  static Shape y_shape() { return {kRows, kGeometry.out_h, kGeometry.out_w, kGeometry.out_c}; }

  // function(y, x, w) for the indexes of every product.
  template <class Function>
  static void products(const Function& function) {
    const ConvGeometry& g = kGeometry;
    for (int64_t n = 0; n < kRows; ++n)
      for (int64_t y = 0; y < g.out_h * g.out_w * g.out_c; ++y)
        for (int64_t tap = 0; tap < g.kernel_h * g.kernel_w * g.in_c; ++tap) {
          const int64_t o = y % g.out_c, c = tap % g.in_c;
          const int64_t h = y / g.out_c / g.out_w * g.stride_h - g.top + tap / g.in_c / g.kernel_w;
          const int64_t w = y / g.out_c % g.out_w * g.stride_w - g.left + tap / g.in_c % g.kernel_w;
          if (h < 0 || h >= g.in_h || w < 0 || w >= g.in_w) continue;
          function(static_cast<size_t>(n * g.out_h * g.out_w * g.out_c + y),
                   static_cast<size_t>(((n * g.in_h + h) * g.in_w + w) * g.in_c + c),
                   static_cast<size_t>(o * g.kernel_h * g.kernel_w * g.in_c + tap));
        }
  }

  void expect_near(const std::vector<double>& found, const std::vector<double>& wanted) const {
    const double tolerance = GetParam().precision == Precision::kBf16 ? 1.0 / 128 : 1e-5;
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(found[i], wanted[i], tolerance * std::max(1.0, std::abs(wanted[i]))) << "element " << i;
  }

  DType dtype_;
  Cuda cuda_;
  Param weight_, bias_;
  std::unique_ptr<Op> op_;
  Stream stream_{Device::kCuda};
  Pass pass_;
};

std::string case_name(const testing::TestParamInfo<ConvCase>& info) {
  const ConvCase& each = info.param;
  return concat("presentation_", static_cast<int>(each.presentation), each.fused ? "_fused" : "_apart",
                each.bias ? "_bias" : "", each.relu ? "_relu" : "", "_", each.precision);
}
INSTANTIATE_TEST_SUITE_P(All, ConvPresentations, testing::ValuesIn(cases_in({Precision::kFp32, Precision::kBf16})),
                         case_name);

class ConvPresentationsInBf16 : public ConvPresentations {};
INSTANTIATE_TEST_SUITE_P(All, ConvPresentationsInBf16, testing::ValuesIn(cases_in({Precision::kBf16})), case_name);

TEST_P(ConvPresentations, ComputesTheDefinition) {
  const std::vector<float> x = values(x_shape().elements(), 1), w = values(w_shape().elements(), 3);
  const std::vector<float> dy = values(y_shape().elements(), 2), b = values(kGeometry.out_c, 3);
  std::vector<double> y(dy.size()), dz(dy.size()), dx(x.size()), dw(w.size()), db(b.size());
  for (size_t i = 0; i < y.size(); ++i) y[i] = GetParam().bias ? static_cast<double>(b[i % b.size()]) : 0;
  products([&](size_t o, size_t i, size_t k) { y[o] += static_cast<double>(x[i]) * static_cast<double>(w[k]); });
  for (size_t i = 0; i < y.size(); ++i) {
    if (GetParam().relu) y[i] = std::max(y[i], 0.0);
    dz[i] = !GetParam().relu || y[i] > 0 ? static_cast<double>(dy[i]) : 0;
    db[i % b.size()] += dz[i];
  }
  products([&](size_t o, size_t i, size_t k) {
    dx[i] += dz[o] * static_cast<double>(w[k]);
    dw[k] += dz[o] * static_cast<double>(x[i]);
  });

  const Tensor x_gpu = to_gpu(x, x_shape(), dtype_);
  Tensor y_gpu(y_shape(), dtype_, Device::kCuda), dx_gpu(x_shape(), dtype_, Device::kCuda);
  op_->forward(pass_, x_gpu, y_gpu);
  run_backward(*op_, pass_, x_gpu, y_gpu, to_gpu(dy, y_shape(), dtype_), &dx_gpu);
  stream_.synchronize();
  expect_near(from_gpu(y_gpu), y);
  expect_near(from_gpu(dx_gpu), dx);
  expect_near(from_gpu(weight_.grad), dw);
  if (GetParam().bias) expect_near(from_gpu(bias_.grad), db);

  run_backward(*op_, pass_, x_gpu, y_gpu, to_gpu(dy, y_shape(), dtype_), nullptr);
  stream_.synchronize();
  for (double& value : dw) value *= 2;
  for (double& value : db) value *= 2;
  expect_near(from_gpu(weight_.grad), dw);
  if (GetParam().bias) expect_near(from_gpu(bias_.grad), db);
}

// cuDNN's result is in bf16 anyway.
TEST_P(ConvPresentationsInBf16, TheGradientOfTheWeightsMayBeBf16Too) {
  const Tensor x = to_gpu(values(x_shape().elements(), 1), x_shape(), dtype_);
  Tensor y(y_shape(), dtype_, Device::kCuda);
  const auto gradient = [&] {
    op_->forward(pass_, x, y);
    run_backward(*op_, pass_, x, y, to_gpu(values(y_shape().elements(), 2), y_shape(), dtype_), nullptr);
    stream_.synchronize();
    return from_gpu(weight_.grad);
  };
  const std::vector<double> f32 = gradient();
  weight_.grad_type = DType::kBF16;
  weight_.grad = Tensor(w_shape(), DType::kBF16, Device::kCuda);
  weight_.grad_is_zero = true;
  op_ = bind();
  EXPECT_EQ(gradient(), f32);
}

TEST_P(ConvPresentations, TakesImagesAsItWantsThemToo) {
  const std::optional<ImageLayout> layout = op_->wanted_images();
  ASSERT_EQ(layout.has_value(), GetParam().presentation != ConvPresentation::kPlain);
  if (!layout) return;
  const std::vector<float> x = values(x_shape().elements(), 4), dy = values(y_shape().elements(), 2);
  Tensor y(y_shape(), dtype_, Device::kCuda), same_y(y_shape(), dtype_, Device::kCuda);
  op_->forward(pass_, to_gpu(x, x_shape(), dtype_), y);
  run_backward(*op_, pass_, to_gpu(x, x_shape(), dtype_), y, to_gpu(dy, y_shape(), dtype_), nullptr);
  stream_.synchronize();
  std::vector<double> dw = from_gpu(weight_.grad);

  Tensor other_y(y_shape(), dtype_, Device::kCuda);
  op_->forward(pass_, to_gpu(values(x_shape().elements(), 5), x_shape(), dtype_), other_y);
  const Tensor packed = laid_out(upload(x, x_shape(), Device::kCpu), *layout);
  const Tensor wanted = to_gpu({packed.data(), packed.data() + packed.elements()}, layout->batch_of(kRows), dtype_);
  op_->forward(pass_, wanted, same_y);
  run_backward(*op_, pass_, wanted, same_y, to_gpu(dy, y_shape(), dtype_), nullptr);
  stream_.synchronize();
  EXPECT_EQ(from_gpu(same_y), from_gpu(y));
  for (double& value : dw) value *= 2;  // it was added, and twice a number is exact
  EXPECT_EQ(from_gpu(weight_.grad), dw);
}

TEST_P(ConvPresentations, NaNIsSeenInTheOutput) {
  std::vector<float> x = values(x_shape().elements(), 1);
  x[0] = std::numeric_limits<float>::quiet_NaN();
  Tensor y_gpu(y_shape(), dtype_, Device::kCuda);
  op_->forward(pass_, to_gpu(x, x_shape(), dtype_), y_gpu);
  stream_.synchronize();
  const std::vector<double> y = from_gpu(y_gpu);
  for (size_t channel = 0; channel < 8; ++channel) EXPECT_TRUE(std::isnan(y[channel])) << channel;
}

// The data gradient that is masked and summed, and memory for its tensors.
class MaskedDataGradient : public testing::Test {
 protected:
  static constexpr DType kType = DType::kBF16;
  const ConvGeometry geometry_{5, 6, 8, 3, 3, 8, 3, 3, 2, 2, 1, 1, 1, 1, 1};
  const Shape x_{kRows, 5, 6, 8}, w_{8, 3, 3, 8}, y_{kRows, 3, 3, 8};
  std::map<CudnnGraph::Id, Tensor> tensors_{{kConvX, Tensor(x_, kType, Device::kCuda)},
                                            {kConvW, Tensor(w_, kType, Device::kCuda)},
                                            {kConvY, Tensor(y_, kType, Device::kCuda)},
                                            {kConvBias, Tensor({8}, DType::kF32, Device::kCuda)},
                                            {kConvSeen, Tensor(x_, kType, Device::kCuda)}};
  Stream stream_{Device::kCuda};

  MaskedDataGradient() {
    for (auto& [id, tensor] : tensors_) fill(tensor, 0.0115f);
  }
  CudnnGraph graph(bool deterministic) const {
    return conv_masked_data_gradient_graph(geometry_, kRows, kType, deterministic);
  }
  PlanCheck check(bool deterministic) const {
    return masked_data_gradient_check(geometry_, kRows, kType, deterministic, stream_);
  }
  std::vector<double> read(CudnnGraph::Id id) { return from_gpu(tensors_.at(id)); }

  // Whether the check accepts a plan that fills dx with a weight, and the sums with wrong(right sum, sum before). The
  // right sum is NaN if and only if the weight is.
  template <class Wrong>
  bool accepts(bool deterministic, const Wrong& wrong, bool hides_nan_in_dx = false) {
    return check(deterministic)([&](CudnnGraph::Id id) { return tensors_.at(id).raw(); },
                                [&] {
                                  stream_.synchronize();
                                  const auto weight = static_cast<float>(read(kConvW)[0]);
                                  const auto right = weight + static_cast<float>(read(kConvY)[1]);
                                  const auto before = static_cast<float>(read(kConvBias)[0]);
                                  fill(tensors_.at(kConvX), hides_nan_in_dx ? 0 : weight);
                                  fill(tensors_.at(kConvBias), wrong(right, before));
                                });
  }
};

TEST_F(MaskedDataGradient, IsThatOfTheSeparatePasses) {
  const std::vector<float> seen = values(x_.elements(), 1), w = values(w_.elements(), 3), dy = values(y_.elements(), 2);
  std::vector<double> dx(seen.size()), sums(8);
  const ConvGeometry& g = geometry_;
  for (int64_t n = 0; n < kRows; ++n)
    for (int64_t o = 0; o < g.out_h * g.out_w * g.out_c; ++o)
      for (int64_t tap = 0; tap < g.kernel_h * g.kernel_w * g.in_c; ++tap) {
        const int64_t h = o / g.out_c / g.out_w * 2 - 1 + tap / g.in_c / 3,
                      v = o / g.out_c % g.out_w * 2 - 1 + tap / g.in_c % 3;
        if (h < 0 || h >= g.in_h || v < 0 || v >= g.in_w) continue;
        dx[static_cast<size_t>(((n * g.in_h + h) * g.in_w + v) * g.in_c + tap % g.in_c)] +=
            static_cast<double>(dy[static_cast<size_t>(n * g.out_h * g.out_w * g.out_c + o)]) *
            static_cast<double>(w[static_cast<size_t>(o % g.out_c * g.kernel_h * g.kernel_w * g.in_c + tap)]);
      }
  std::vector<double> bounds(8);
  for (size_t i = 0; i < dx.size(); ++i) {
    if (!(seen[i] > 0)) dx[i] = 0;
    sums[i % 8] += dx[i];
    bounds[i % 8] += std::abs(dx[i]) * 0x1p-9;
  }
  for (const auto& [id, given] : {std::pair(kConvSeen, seen), {kConvW, w}, {kConvY, dy}})
    tensors_[id] = to_gpu(given, tensors_.at(id).shape(), kType);
  int plans = 0;
  for_each_plan(graph(true), {}, PlanTarget::this_gpu(stream_), [&](const CudnnPlan& plan) {
    fill(tensors_[kConvBias], std::numeric_limits<float>::quiet_NaN());
    std::vector<CudnnPlan::Binding> bindings;
    for (const auto& [id, tensor] : tensors_) bindings.push_back({id, tensor.raw()});
    plan.run(stream_, bindings, nullptr);
    stream_.synchronize();
    const std::vector<double> found = read(kConvX), found_sums = read(kConvBias);
    for (size_t i = 0; i < dx.size(); ++i)
      EXPECT_EQ(found[i], static_cast<double>(__bfloat162float(__float2bfloat16(static_cast<float>(dx[i]))))) << i;
    for (size_t c = 0; c < sums.size(); ++c) EXPECT_NEAR(found_sums[c], sums[c], bounds[c]) << c;
    ++plans;
    return PlanVerdict::kTaken;
  });
  EXPECT_GT(plans, 0);
}

TEST_F(MaskedDataGradient, HasToShowNaNsAndToOverwriteItsSums) {
  for (const bool deterministic : {false, true}) {
    EXPECT_TRUE(accepts(deterministic, [](float right, float) { return right; }));
    EXPECT_FALSE(accepts(
        deterministic, [](float right, float) { return right; }, true));
    EXPECT_FALSE(accepts(deterministic, [](float right, float) { return std::isnan(right) ? 0 : right; }));
    EXPECT_FALSE(accepts(deterministic, [](float right, float before) { return right + before; }));
  }
}

TEST_F(MaskedDataGradient, HasEqualSumsInEveryRunIfItHasToBeDeterministic) {
  int runs = 0;
  const auto varying = [&](float right, float) { return ++runs % 3 == 0 ? std::nextafter(right, 9.0f) : right; };
  EXPECT_FALSE(accepts(true, varying));
  EXPECT_TRUE(accepts(false, varying));
}

// The order of the simulated plans' sums varies unless cuDNN is asked for a fixed one.
TEST_F(MaskedDataGradient, AsksCudnnForAFixedOrderOfSums) {
  const auto plan = [&](bool asks, bool wants) {
    PlanRules rules;
    rules.deterministic = wants;
    return choose_plan(graph(asks), rules, stream_, check(wants));
  };
  EXPECT_TRUE(plan(true, true));
  EXPECT_FALSE(plan(false, true));
  EXPECT_TRUE(plan(false, false));
}

// The check is part of the key under which the choice of a plan is stored.
TEST_F(MaskedDataGradient, IsChosenWithACheck) {
  choose_masked_data_gradient({Precision::kBf16, true}, geometry_, kRows + 1);
  const std::string text = conv_masked_data_gradient_graph(geometry_, kRows + 1, kType, true).text();
  int checked = 0;
  for (const auto& [key, plan] : PlanCache::process().known())
    checked += key.ends_with(" checked 1\n" + text) && !plan.empty();
  EXPECT_EQ(checked, 1);
}

}  // namespace
}  // namespace owt::conv_plans_gpu_test
