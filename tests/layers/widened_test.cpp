#include "layers/base/widened.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layers/conv.h"
#include "layers/dense.h"
#include "src/core/bf16.h"
#include "tests/support/check_layer.h"
#include "tests/support/harness.h"

namespace owt::widened_test {
namespace {

using testing::Pointwise;

using Values = std::vector<float>;

// A layer with one weight whose op is widened on any processor.
class WidenedLayer : public Layer {
 public:
  using Bind = std::function<std::unique_ptr<Op>(const Shape& in, Param& weight)>;

  WidenedLayer(std::unique_ptr<Layer> layer, Bind bind)
      : Layer("layer", "widened"), layer_(std::move(layer)), bind_(std::move(bind)) {}

  Shape out_shape(const Shape& in) const override { return layer_->out_shape(in); }
  std::vector<Param*> params() override { return layer_->params(); }
  std::unique_ptr<Op> bind(const Shape& in, const Compute& on) override {
    if (on.precision == Precision::kFp32) return layer_->bind(in, on);
    return widened(*params()[0], [&](Param& rounded) { return bind_(in, rounded); });
  }

 private:
  std::unique_ptr<Layer> layer_;
  Bind bind_;
};

std::unique_ptr<Layer> dense(std::optional<Slice> part, const Shape& in) {
  return std::make_unique<WidenedLayer>(
      layer_from("type='dense' out=5 bias=false", in, part),
      [](const Shape& rows, Param& weight) { return bind_dense(Cpu{}, rows.rows(), weight, nullptr); });
}

std::unique_ptr<Layer> conv(std::optional<Slice> part, const Shape& in) {
  std::unique_ptr<Layer> layer = layer_from("type='conv' out=6 kernel=3 stride=2 pad=1 bias=false", in, part);
  const ConvGeometry geometry = *conv_geometry(*layer, in);
  return std::make_unique<WidenedLayer>(std::move(layer), [geometry](const Shape& rows, Param& weight) {
    return bind_conv(Cpu{}, geometry, rows.rows(), weight, nullptr);
  });
}

TEST(WidenedOp, DoesWhatTheF32OpDoes) {
  for (const Shape& in : {Shape{7, 6}, {3, 4, 4, 2}})
    check_layer([&](std::optional<Slice> part) { return dense(part, in); }, in, Device::kCpu);
  const Shape images{3, 7, 8, 5};
  check_layer([&](std::optional<Slice> part) { return conv(part, images); }, images, Device::kCpu);
}

TEST(WidenedOp, MultipliesByTheWeightAsBf16HoldsIt) {
  const Shape in{1, 2};
  Harness harness(dense({}, in), in, {Device::kCpu, Precision::kBf16});
  const float coarse = 1.0f, fine = 1.0f + 0x1p-9f;  // the second is the first in bf16
  harness.set_param("weight", {coarse, fine, -fine, coarse, 0, 0, 0, 0, 0, 0});
  EXPECT_THAT(harness.forward({1, -1}), Pointwise(testing::Eq(), Values{0, -2, 0, 0, 0}));
  harness.set_param("weight", {2, 1, 0, 0, 0, 0, 0, 0, 0, 0});  // a weight that has changed is seen
  EXPECT_THAT(harness.forward({1, -1}), Pointwise(testing::Eq(), Values{1, 0, 0, 0, 0}));
}

TEST(WidenedOp, AddsToTheGradientOfTheWeight) {
  const Shape in{1, 2};
  Harness harness(dense({}, in), in, {Device::kCpu, Precision::kBf16});
  harness.forward({1, 3});
  harness.backward({1, 0, 0, 0, 2});
  harness.backward({1, 0, 0, 0, 2});
  EXPECT_THAT(harness.grad("weight"), Pointwise(testing::Eq(), Values{2, 6, 0, 0, 0, 0, 0, 0, 4, 12}));
}

TEST(WidenedOp, GivesTheGradientInPiecesWhereNoneIsKept) {
  const Shape in{1, 2};
  Harness harness(dense({}, in), in, {Device::kCpu, Precision::kBf16});
  const Values& pieces = harness.grad_in_pieces("weight");
  harness.forward({1, 3});
  harness.backward({1, 0, 0, 0, 2});
  EXPECT_THAT(pieces, Pointwise(testing::Eq(), Values{1, 3, 0, 0, 0, 0, 0, 0, 2, 6}));
}

}  // namespace
}  // namespace owt::widened_test
