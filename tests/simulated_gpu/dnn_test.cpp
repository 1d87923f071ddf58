#include "tests/simulated_gpu/device.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "tests/simulated_gpu/dnn_test.h"

using testing::DoubleNear;
using testing::ElementsAre;
using testing::Pointwise;

namespace simulated_gpu::dnn_test {
namespace {

TEST_F(Dnn, ConvolvesForward) {
  for (const int64_t groups : {1, 2})
    for (const bool bf16 : {false, true})
      for (const bool channels_last : {false, true}) {
        const Conv conv(groups);
        const TestTensor x(1, conv.x, bf16, channels_last), w(2, conv.w, bf16, channels_last),
            y(3, conv.y(), bf16, channels_last);
        const Doubles of_x = x.fill(stream_, 1), of_w = w.fill(stream_, 2);
        operations_.clear();
        forward(conv, x, w, y);
        run_exactly({&x, &w, &y});
        Doubles wanted(static_cast<size_t>(elements(conv.y())));
        conv.each([&](size_t i, size_t j, size_t k) { wanted[k] += of_x[i] * of_w[j]; });
        EXPECT_THAT(y.read(stream_), Pointwise(DoubleNear(bf16 ? 0.02 : 1e-5), wanted));
      }
}

TEST_F(Dnn, ConvolvesBackwardToTheData) {
  for (const int64_t groups : {1, 2}) {
    const Conv conv(groups);
    const TestTensor dx(1, conv.x), w(2, conv.w), dy(3, conv.y());
    const Doubles of_w = w.fill(stream_, 1), of_dy = dy.fill(stream_, 2);
    operations_.clear();
    data_gradient(conv, dx, w, dy);
    run_exactly({&dx, &w, &dy});
    Doubles wanted(static_cast<size_t>(elements(conv.x)));
    conv.each([&](size_t i, size_t j, size_t k) { wanted[i] += of_w[j] * of_dy[k]; });
    EXPECT_THAT(dx.read(stream_), Pointwise(DoubleNear(1e-5), wanted));
  }
}

TEST_F(Dnn, ConvolvesBackwardToTheFilterAndAddsToIt) {
  for (const int64_t groups : {1, 2}) {
    const Conv conv(groups);
    const TestTensor x(1, conv.x), dw(2, conv.w), dy(3, conv.y());
    const Doubles of_x = x.fill(stream_, 1), before = dw.fill(stream_, 2), of_dy = dy.fill(stream_, 3);
    Object settings(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    conv.describe(&settings);
    operations_.clear();
    Object& operation = add(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, x.descriptor);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, dw.descriptor);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, dy.descriptor);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, settings);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_TYPE_FLOAT, std::vector{2.0f});
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_TYPE_FLOAT, std::vector{0.5f});
    ASSERT_EQ(operation.finalize(), CUDNN_STATUS_SUCCESS);
    run_exactly({&x, &dw, &dy});
    Doubles wanted(before.size());
    conv.each([&](size_t i, size_t j, size_t k) { wanted[j] += 2 * of_x[i] * of_dy[k]; });
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] += 0.5 * before[i];
    EXPECT_THAT(dw.read(stream_), Pointwise(DoubleNear(1e-5), wanted));
  }
}

TEST_F(Dnn, FusesBiasAndReluIntoAConvolution) {
  const Conv conv;
  const TestTensor x(1, conv.x), w(2, conv.w), sums(3, conv.y(), false, true, true), bias(4, {1, 6, 1, 1}),
      biased(5, conv.y(), false, true, true), y(6, conv.y());
  const Doubles of_x = x.fill(stream_, 1), of_w = w.fill(stream_, 2), of_bias = bias.fill(stream_, 3);
  // In any order.
  apply(CUDNN_POINTWISE_RELU_FWD,
        {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &biased}, {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &y}});
  apply(CUDNN_POINTWISE_ADD, {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &sums},
                              {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &bias},
                              {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &biased}});
  forward(conv, x, w, sums);
  run_exactly({&x, &w, &bias, &y});
  Doubles wanted(static_cast<size_t>(elements(conv.y())));
  conv.each([&](size_t i, size_t j, size_t k) { wanted[k] += of_x[i] * of_w[j]; });
  const auto pixels = static_cast<size_t>(conv.y()[2] * conv.y()[3]);
  for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = std::max(0.0, wanted[i] + of_bias[i / pixels % 6]);
  EXPECT_THAT(y.read(stream_), Pointwise(DoubleNear(1e-5), wanted));
}

TEST_F(Dnn, TakesTheGradientOfReluAndReducesIt) {
  const Dims dims{2, 3, 4, 5};
  const TestTensor y(1, dims), dy(2, dims), dx(3, dims), sums(4, {1, 3, 1, 1});
  const Doubles of_y = y.fill(stream_, 1), of_dy = dy.fill(stream_, 2);
  apply(CUDNN_POINTWISE_RELU_BWD, {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &y},
                                   {CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, &dy},
                                   {CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, &dx}});
  run_exactly({&y, &dy, &dx});
  Doubles wanted = of_dy, wanted_sums(3);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (of_y[i] <= 0) wanted[i] = 0;
    wanted_sums[i / 20 % 3] += wanted[i];
  }
  EXPECT_THAT(dx.read(stream_), Pointwise(DoubleNear(1e-6), wanted));
  operations_.clear();
  reduce(dx, sums);
  run_exactly({&dx, &sums});
  EXPECT_THAT(sums.read(stream_), Pointwise(DoubleNear(1e-5), wanted_sums));
}

TEST_F(Dnn, MasksADataGradientAndSumsIt) {
  Conv conv;
  conv.w[0] = 8;
  const TestTensor w(1, conv.w), dy(2, conv.y()), unmasked(3, conv.x, false, true, true), seen(4, conv.x),
      dx(5, conv.x), sums(6, {1, 4, 1, 1});
  const Doubles of_w = w.fill(stream_, 1), of_dy = dy.fill(stream_, 2), of_seen = seen.fill(stream_, 3);
  // In any order, also where an operation reads what another one writes to memory.
  reduce(dx, sums);
  apply(CUDNN_POINTWISE_RELU_BWD, {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &seen},
                                   {CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, &unmasked},
                                   {CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, &dx}});
  data_gradient(conv, unmasked, w, dy);
  // Once, because a second run would find the first one's dx in memory.
  ASSERT_EQ(run(*candidates()[0].plan, 0, {&w, &dy, &seen, &dx, &sums}), CUDNN_STATUS_SUCCESS);
  Doubles wanted(of_seen.size()), wanted_sums(4);
  conv.each([&](size_t i, size_t j, size_t k) { wanted[i] += of_w[j] * of_dy[k]; });
  const auto pixels = static_cast<size_t>(conv.x[2] * conv.x[3]);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (of_seen[i] <= 0) wanted[i] = 0;
    wanted_sums[i / pixels % 4] += wanted[i];
  }
  EXPECT_THAT(dx.read(stream_), Pointwise(DoubleNear(1e-5), wanted));
  EXPECT_THAT(sums.read(stream_), Pointwise(DoubleNear(1e-4), wanted_sums));
}

class DnnBatchNorm : public Dnn {
 protected:
  const Dims dims_{3, 2, 2, 4}, channels_{1, 2, 1, 1};
  TestTensor x_{1, dims_}, scale_{2, channels_}, bias_{3, channels_}, mean_{4, channels_}, inverse_{5, channels_},
      y_{6, dims_}, epsilon_{7, {1, 1, 1, 1}, false, true, false, true};
  float epsilon_value_ = 1e-3f;

  static size_t channel(size_t i) { return i / 8 % 2; }

  void forward() {
    Object& norm = add(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
    norm.set(CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, std::vector{CUDNN_BATCH_NORM});
    norm.set(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, std::vector{CUDNN_NORM_FWD_TRAINING});
    norm.set(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, x_.descriptor);
    norm.set(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, scale_.descriptor);
    norm.set(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, bias_.descriptor);
    norm.set(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, epsilon_.descriptor);
    norm.set(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, mean_.descriptor);
    norm.set(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, inverse_.descriptor);
    norm.set(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, y_.descriptor);
    ASSERT_EQ(norm.finalize(), CUDNN_STATUS_SUCCESS);
    run_exactly({&x_, &scale_, &bias_, &epsilon_, &mean_, &inverse_, &y_}, &epsilon_value_);
    operations_.clear();
  }
};

TEST_F(DnnBatchNorm, NormalisesWithTheMomentsOfTheBatch) {
  const Doubles x = x_.fill(stream_, 1), scale = scale_.fill(stream_, 2), bias = bias_.fill(stream_, 3);
  forward();
  Doubles mean(2), variance(2), wanted;
  for (size_t i = 0; i < x.size(); ++i) mean[channel(i)] += x[i] / 24;
  for (size_t i = 0; i < x.size(); ++i) variance[channel(i)] += std::pow(x[i] - mean[channel(i)], 2) / 24;
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t c = channel(i);
    wanted.push_back(scale[c] * (x[i] - mean[c]) / std::sqrt(variance[c] + 1e-3) + bias[c]);
  }
  EXPECT_THAT(y_.read(stream_), Pointwise(DoubleNear(1e-5), wanted));
  EXPECT_THAT(mean_.read(stream_), Pointwise(DoubleNear(1e-6), mean));
  EXPECT_THAT(inverse_.read(stream_), Pointwise(DoubleNear(1e-5), Doubles{1 / std::sqrt(variance[0] + 1e-3),
                                                                          1 / std::sqrt(variance[1] + 1e-3)}));
}

TEST_F(DnnBatchNorm, ItsGradientsAreThoseOfSmallChanges) {
  const TestTensor dy(8, dims_), dx(9, dims_), dscale(10, channels_), dbias(11, channels_);
  Doubles x = x_.fill(stream_, 1);
  scale_.fill(stream_, 2);
  bias_.fill(stream_, 3);
  const Doubles of_dy = dy.fill(stream_, 4);
  const auto loss = [&] {
    forward();
    const Doubles y = y_.read(stream_);
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * of_dy[i];
    return sum;
  };
  Doubles wanted;
  for (double& element : x) {
    element += 0.01;
    x_.write(x, stream_);
    const double above = loss();
    element -= 0.02;
    x_.write(x, stream_);
    wanted.push_back((above - loss()) / 0.02);
    element += 0.01;
  }
  x_.write(x, stream_);
  forward();
  Object& norm = add(CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR);
  norm.set(CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, std::vector{CUDNN_BATCH_NORM});
  norm.set(CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, x_.descriptor);
  norm.set(CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, dy.descriptor);
  norm.set(CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, scale_.descriptor);
  norm.set(CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, mean_.descriptor);
  norm.set(CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, inverse_.descriptor);
  norm.set(CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, dscale.descriptor);
  norm.set(CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, dbias.descriptor);
  norm.set(CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, dx.descriptor);
  ASSERT_EQ(norm.finalize(), CUDNN_STATUS_SUCCESS);
  run_exactly({&x_, &dy, &scale_, &mean_, &inverse_, &dscale, &dbias, &dx});
  EXPECT_THAT(dx.read(stream_), Pointwise(DoubleNear(2e-3), wanted));
  const Doubles mean = mean_.read(stream_), inverse = inverse_.read(stream_);
  Doubles of_scale(2), of_bias(2);
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t c = channel(i);
    of_scale[c] += of_dy[i] * (x[i] - mean[c]) * inverse[c];
    of_bias[c] += of_dy[i];
  }
  EXPECT_THAT(dscale.read(stream_), Pointwise(DoubleNear(1e-5), of_scale));
  EXPECT_THAT(dbias.read(stream_), Pointwise(DoubleNear(1e-5), of_bias));
}

TEST_F(Dnn, RefusesShapesThatDoNotFitAndGraphsItDoesNotKnow) {
  Conv conv;
  const TestTensor x(1, conv.x), w(2, conv.w), wrong(3, {2, 6, 9, 9}), half(4, conv.w, true), y(5, conv.y()),
      other(6, conv.x);
  Object settings(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  conv.describe(&settings);
  Object operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x.descriptor);
  operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w.descriptor);
  operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, settings);
  operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, std::vector{1.0f});
  operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, std::vector{0.0f});
  EXPECT_EQ(operation.finalize(), CUDNN_STATUS_BAD_PARAM);  // no Y
  operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, wrong.descriptor);
  EXPECT_EQ(operation.finalize(), CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
  apply(CUDNN_POINTWISE_TANH_FWD,
        {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &x}, {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &other}});
  EXPECT_EQ(CUDNN_STATUS_CATEGORY(heuristics(CUDNN_HEUR_MODE_A)->finalize()), CUDNN_STATUS_NOT_SUPPORTED);
}

TEST_F(Dnn, ReluOfNanIsNanOnlyWhereTheEngineSaysSo) {
  const TestTensor x(1, {1, 1, 1, 1}), y(2, {1, 1, 1, 1});
  x.write({std::nan("")}, stream_);
  apply(CUDNN_POINTWISE_RELU_FWD,
        {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &x}, {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &y}});
  run_exactly({&x, &y});
  EXPECT_THAT(y.read(stream_), ElementsAre(0));
  const auto strict = candidates(CUDNN_HEUR_MODE_FALLBACK);
  EXPECT_THAT(strict[0].notes, ElementsAre(CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP));
  ASSERT_EQ(run(*strict[0].plan, 0, {&x, &y}), CUDNN_STATUS_SUCCESS);
  EXPECT_TRUE(std::isnan(y.read(stream_)[0]));
}

}  // namespace
}  // namespace simulated_gpu::dnn_test
