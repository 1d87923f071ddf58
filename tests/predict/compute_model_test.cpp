#include "src/predict/compute_model.h"
#include "src/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/system/check.h"
#include "tests/support/alexnet.h"
#include "tests/support/fixed_compute.h"
#include "tests/support/models.h"

namespace owt::compute_model_test {
namespace {

using ::testing::HasSubstr;

ComputeSamples samples_of(std::vector<LayerSample> layer) { return {{std::move(layer)}, {}, 0, "test"}; }

TEST(MeasuredCompute, OneNumberOfRowsScalesInProportion) {
  const auto model = measured_compute(samples_of({{.rows = 10, .forward_s = 2, .backward_s = 4, .update_s = 1}}));
  EXPECT_DOUBLE_EQ(model->forward(0, 10, 1), 2);
  EXPECT_DOUBLE_EQ(model->forward(0, 30, 1), 6);
  EXPECT_DOUBLE_EQ(model->backward(0, 5, 1), 2);
  EXPECT_DOUBLE_EQ(model->backward(0, 5, 0.25), 0.5);
  EXPECT_DOUBLE_EQ(model->update(0, 0.5), 0.5);
  EXPECT_EQ(model->forward(0, 0, 1), 0);
}

TEST(MeasuredCompute, TwoNumbersOfRowsGiveTheConstantPart) {
  const auto model = measured_compute(samples_of({{.rows = 30, .forward_s = 5}, {.rows = 10, .forward_s = 3}}));
  EXPECT_DOUBLE_EQ(model->forward(0, 10, 1), 3);
  EXPECT_DOUBLE_EQ(model->forward(0, 20, 1), 4);
  EXPECT_DOUBLE_EQ(model->forward(0, 50, 1), 7);
  EXPECT_DOUBLE_EQ(model->forward(0, 5, 1), 2.5);  // 2 seconds whatever the rows
}

TEST(MeasuredCompute, NoiseMakesMoreRowsNeverCheaper) {
  const auto falling = measured_compute(samples_of({{.rows = 10, .forward_s = 3}, {.rows = 20, .forward_s = 2}}));
  EXPECT_DOUBLE_EQ(falling->forward(0, 100, 1), 3);
  // Steeper than in proportion: fewer rows are not negative.
  const auto steep = measured_compute(samples_of({{.rows = 10, .forward_s = 1}, {.rows = 20, .forward_s = 9}}));
  EXPECT_DOUBLE_EQ(steep->forward(0, 5, 1), 0.5);
}

TEST(MeasuredCompute, TimesOfAPartStandForTheWhole) {
  const auto model = measured_compute(samples_of({{.rows = 10, .part = 0.5, .forward_s = 2, .update_s = 3}}));
  EXPECT_DOUBLE_EQ(model->forward(0, 10, 1), 4);
  EXPECT_DOUBLE_EQ(model->update(0, 0.25), 1.5);
}

TEST(MeasuredCompute, SeveralTimesOfTheSameRowsAreAveraged) {
  const auto model = measured_compute(samples_of({{.rows = 10, .forward_s = 2}, {.rows = 10, .forward_s = 4}}));
  EXPECT_DOUBLE_EQ(model->forward(0, 10, 1), 3);
}

TEST(MeasuredCompute, EveryLayerNeedsASample) { EXPECT_THROW(measured_compute(samples_of({})), Error); }

Plan alexnet() { return make_plan(model_of(kAlexNet), {}); }

size_t index_of(const Plan& plan, const std::string& name) {
  for (size_t i = 0; i < plan.layers.size(); ++i)
    if (plan.layers[i].name == name) return i;
  fail("no layer ", name);
}

// Computed by hand at 790 TFLOP/s and 4.3 TB/s. A pool's backward reads no y, because its index shows where a maximum
// is positive.
TEST(DeviceCompute, FloorsOfAlexNetOnAnH200AreThoseWorkedOutByHand) {
  const Plan plan = alexnet();
  DeviceSpeed h200 = device_speed("H200");
  h200.multiprocessors = 0;
  h200.flop_share = h200.byte_share = 1;
  const auto model = device_compute(h200, model_of(kAlexNet), Precision::kBf16);
  const auto us = [&](double seconds) { return std::round(seconds * 1e6); };
  const auto forward = [&](const std::string& name) { return us(model->forward(index_of(plan, name), 1024, 1)); };
  const auto backward = [&](const std::string& name) { return us(model->backward(index_of(plan, name), 1024, 1)); };
  EXPECT_EQ(forward("pool1"), 126);
  EXPECT_EQ(backward("pool1"), 126);
  EXPECT_NEAR(forward("conv2"), 581, 1);
  EXPECT_NEAR(backward("conv2"), 2 * 581, 1);
  EXPECT_EQ(forward("pool2"), 90);
  EXPECT_EQ(backward("pool2"), 90);
  EXPECT_EQ(forward("conv3"), 291);
  EXPECT_NEAR(forward("conv4"), 388, 1);
  EXPECT_EQ(forward("conv5"), 258);
  EXPECT_EQ(forward("pool5"), 27);
  EXPECT_EQ(backward("pool5"), 27);
  EXPECT_EQ(forward("fc6"), 98);
  EXPECT_EQ(backward("fc6"), 2 * 98);
  EXPECT_EQ(forward("fc7"), 43);
  EXPECT_EQ(backward("fc8"), 2 * 11);  // with the sum of dy for the bias
  double update = 0;
  for (size_t i = 0; i < plan.layers.size(); ++i) update += model->update(i, 1);
  EXPECT_EQ(us(update), 284);
  // Relus before pools and after products are part of these ops. In backward conv4 includes relu3, and conv5 relu4.
  EXPECT_EQ(forward("relu1"), 0);
  for (const char* relu : {"relu1", "relu3", "relu4"}) EXPECT_EQ(backward(relu), 0);
}

TEST(DeviceCompute, APartOfADenseLayerTakesItsPartOfTheProducts) {
  const Plan plan = alexnet();
  const auto model = device_compute(device_speed("h200"), model_of(kAlexNet), Precision::kBf16);
  const size_t fc6 = index_of(plan, "fc6");
  constexpr double launch = 1.3e-6;
  EXPECT_NEAR(model->forward(fc6, 4096, 0.25) - launch, (model->forward(fc6, 4096, 1) - launch) / 4, 1e-9);
  EXPECT_DOUBLE_EQ(model->update(fc6, 0.25), model->update(fc6, 1) / 4);
}

TEST(DeviceCompute, PrecisionAndDeviceDecideTheSpeed) {
  const size_t conv2 = index_of(alexnet(), "conv2");
  const auto seconds = [&](const char* device, Precision precision) {
    return device_compute(device_speed(device), model_of(kAlexNet), precision)->forward(conv2, 1024, 1);
  };
  EXPECT_LT(seconds("H200", Precision::kBf16), seconds("H200", Precision::kTf32));
  EXPECT_LT(seconds("H200", Precision::kTf32), seconds("H200", Precision::kFp32));
  EXPECT_LT(seconds("H200", Precision::kBf16), seconds("A100", Precision::kBf16));
}

TEST(DeviceCompute, EveryGenerationIsFasterThanTheOneBefore) {
  const std::vector<std::string> generations = {"K20", "P100", "V100", "A100", "H100", "B200"};
  for (size_t i = 1; i < generations.size(); ++i) {
    const DeviceSpeed before = device_speed(generations[i - 1]), after = device_speed(generations[i]);
    EXPECT_LT(before.fp32_flops, after.fp32_flops) << after.name;
    EXPECT_LT(before.bytes_per_s, after.bytes_per_s) << after.name;
    EXPECT_LT(before.warp_instructions_per_s, after.warp_instructions_per_s) << after.name;
    EXPECT_LT(before.link_bytes_per_s, after.link_bytes_per_s) << after.name;
  }
}

TEST(DeviceCompute, APrecisionWithoutProductsIsAnError) {
  for (const char* name : {"K20", "P100", "V100"})
    for (const Precision precision : {Precision::kTf32, Precision::kBf16}) {
      EXPECT_GT(device_speed(name).flops(Precision::kFp32), 0);
      EXPECT_THROW(device_speed(name).flops(precision), Error) << name;
    }
  EXPECT_DOUBLE_EQ(device_speed("rtx3090").flops(Precision::kBf16), 71e12);
}

TEST(DeviceCompute, ScaledTimesAreAllAsManyTimesAsLong) {
  const auto model = scaled_compute(std::make_unique<FixedCompute>(std::vector<FixedCompute::Layer>{{1, 2, 3}}, 4, 5),
                                    10, "ten times");
  EXPECT_DOUBLE_EQ(model->forward(0, 2, 0.5), 10);
  EXPECT_DOUBLE_EQ(model->backward(0, 2, 0.5), 20);
  EXPECT_DOUBLE_EQ(model->update(0, 0.5), 15);
  EXPECT_DOUBLE_EQ(model->loss(2), 80);
  EXPECT_DOUBLE_EQ(model->rest(), 50);
  EXPECT_EQ(model->text(), "ten times");
}

TEST(DeviceCompute, AnUnknownGpuIsAnErrorWithTheList) {
  try {
    device_speed("H20");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("there are H200, H100, A100, L40S, RTX4090"));
    EXPECT_THAT(e.what(), HasSubstr("did you mean 'H200'?"));
  }
}

// A device whose products cost nothing and that moves one byte per second.
TEST(DeviceCompute, BytesOfEveryKindOfLayerAreThoseOfTheContract) {
  const Model kinds = model_of("[5, 2, 2]", 4, R"(
  { name = "conv", type = "conv", out = 8, kernel = 1, bias = false },
  { name = "lrn", type = "lrn", size = 3 },
  { name = "relu", type = "relu" },
  { name = "block", type = "residual", body = [
    { name = "conv", type = "conv", out = 8, kernel = 1, bias = false }, { name = "relu", type = "relu" } ] },
  { name = "pool", type = "max_pool", kernel = 2 },
  { name = "fc", type = "dense", out = 4, bias = false })");
  const DeviceSpeed bytes{.name = "bytes", .fp32_flops = 1e300, .bytes_per_s = 1, .flop_share = 1, .byte_share = 1};
  const auto model = device_compute(bytes, kinds, Precision::kFp32);
  constexpr double x = 4 * 20, y = 4 * 32, pooled = 4 * 8, index = 8, logits = 4 * 4;  // bytes per row
  const double conv = x + y + 4 * 40, inner_conv = y + y + 4 * 64, fc = pooled + logits + 4 * 32;
  const struct {
    double forward, backward;
  } expected[] = {{conv, conv},  // the images need no gradient
                  {y + y, 3 * y},
                  {y + y, 3 * y},
                  // The inner relu overwrites the gradient, which is made once more for the shortcut.
                  {inner_conv + 3 * y, 2 * inner_conv + 3 * y + 2 * 3 * y + 3 * y},
                  {y + pooled + index, y + pooled + index},
                  {fc, 2 * fc}};
  for (size_t i = 0; i < std::size(expected); ++i) {
    EXPECT_DOUBLE_EQ(model->forward(i, 1, 1), expected[i].forward) << i;
    EXPECT_DOUBLE_EQ(model->backward(i, 1, 1), expected[i].backward) << i;
  }
  EXPECT_DOUBLE_EQ(model->forward(5, 10, 0.5), 10 * pooled + 0.5 * (10 * logits + 4 * 32));
  EXPECT_DOUBLE_EQ(model->update(5, 0.5), 20 * 32 * 0.5);
  EXPECT_DOUBLE_EQ(model->loss(7), 7 * (2 * logits + 2 * 24));
  EXPECT_EQ(model->rest(), 0);
  EXPECT_EQ(model->forward(0, 0, 1), 0);
}

}  // namespace
}  // namespace owt::compute_model_test
