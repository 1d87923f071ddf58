// Tests the contract test: a layer that breaks one rule must be caught.
#include "tests/support/check_layer.h"

#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "src/core/bf16.h"
#include "tests/support/harness.h"

namespace owt::check_layer_test {
namespace {

using testing::HasSubstr;

// What the layer below does wrong.
struct Fault {
  bool leaves_output = false, leaves_dx = false, scales_dx = false, scales_dw = false;
  bool overwrites_dw = false, adds_to_zero_dw = false, reads_y = false, changes_x = false, varies = false;
  std::optional<Content> in_place = {};  // and what it claims to preserve of x
};

// y = w * x with one weight per column, and a fault.
class ScaleOp : public Op {
 public:
  ScaleOp(Param& weight, const Fault& fault) : weight_(weight), fault_(fault) {}

  void forward(const Pass&, const Tensor& x, Tensor& y) override {
    with_cpu_element(x.dtype(), [&](auto element) {
      using T = decltype(element);
      scale(x.shape(), x.data<T>(), y.data<T>());
    });
  }

  void backward_data(const Pass&, const Tensor& x, const Tensor& y, const Tensor& dy, Tensor* dx) override {
    with_cpu_element(x.dtype(), [&](auto element) {
      using T = decltype(element);
      add_gradients(x.shape(), x.data<T>(), y.data<T>(), dy.data<T>(), dx ? dx->data<T>() : nullptr);
    });
  }

 private:
  template <class T>
  void scale(const Shape& shape, const T* x, T* y) {
    const int64_t count = shape.elements(), columns = shape.row_elements();
    for (int64_t i = 0; i < count - (fault_.leaves_output ? 1 : 0); ++i)
      y[i] = weight_.value.data()[i % columns] * x[i];
    if (fault_.varies) y[0] = y[0] + static_cast<float>(++calls_);
    if (fault_.changes_x) const_cast<T*>(x)[0] = x[0] + 1.0f;
  }

  template <class T>
  void add_gradients(const Shape& shape, const T* x, const T* y, const T* dy, T* dx) {
    const int64_t count = shape.elements(), columns = shape.row_elements();
    float beta = weight_.take_beta();
    if (fault_.overwrites_dw) beta = 0;
    if (fault_.adds_to_zero_dw) beta = 1;
    float* dw = weight_.grad.data();
    for (int64_t c = 0; c < columns; ++c) dw[c] = beta == 0 ? 0 : dw[c];
    for (int64_t i = 0; i < count; ++i) dw[i % columns] += dy[i] * x[i] * (fault_.scales_dw ? 1.1f : 1.0f);
    for (int64_t i = 0; dx && i < count - (fault_.leaves_dx ? 1 : 0); ++i) {
      const float w = fault_.reads_y ? y[i] / x[i] : weight_.value.data()[i % columns];
      dx[i] = w * dy[i] * (fault_.scales_dx ? 0.9f : 1.0f);
    }
  }

  Param& weight_;
  Fault fault_;
  int calls_ = 0;
};

class Scale : public Layer {
 public:
  Scale(int64_t columns, std::optional<Slice> part, const Fault& fault) : Layer("scale", "scale"), fault_(fault) {
    weight_.name = "scale.weight";
    weight_.full_shape = weight_.file_shape = {columns};
    weight_.part = part.value_or(Slice{0, columns});
    weight_.init = {.type = Initializer::Type::kGaussian, .std = 1};
  }
  Shape out_shape(const Shape& in) const override { return in; }
  std::vector<Param*> params() override { return {&weight_}; }
  Columns columns() const override { return Columns::kKeeps; }
  std::optional<Content> in_place() const override { return fault_.in_place; }
  std::unique_ptr<Op> bind(const Shape&, const Compute&) override { return std::make_unique<ScaleOp>(weight_, fault_); }

 private:
  Param weight_;
  Fault fault_;
};

void check(const Fault& fault) {
  const int64_t columns = 5;
  check_layer([&](std::optional<Slice> part) { return std::make_unique<Scale>(columns, part, fault); }, {4, columns},
              Device::kCpu);
}

// What check_layer says about a layer with this fault.
std::string complaints(const Fault& fault) {
  testing::TestPartResultArray results;
  {
    const testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    check(fault);
  }
  std::string text;
  for (int i = 0; i < results.size(); ++i)
    if (results.GetTestPartResult(i).failed()) text += results.GetTestPartResult(i).message();
  return text;
}

TEST(CheckLayer, PassesACorrectLayer) { check({}); }

TEST(CheckLayer, FindsElementsThatAreNotWritten) {
  EXPECT_THAT(complaints({.leaves_output = true}), HasSubstr("y: element 19 is nan"));
  EXPECT_THAT(complaints({.leaves_dx = true}), HasSubstr("dx: element 19 is nan"));
}

TEST(CheckLayer, FindsWrongGradients) {
  EXPECT_THAT(complaints({.scales_dx = true}), HasSubstr("gradient of x at"));
  EXPECT_THAT(complaints({.scales_dw = true}), HasSubstr("gradient of scale.weight at"));
}

TEST(CheckLayer, FindsParameterGradientsThatDoNotAccumulate) {
  EXPECT_THAT(complaints({.overwrites_dw = true}), HasSubstr("after a second backward: gradient of scale.weight"));
}

TEST(CheckLayer, FindsParameterGradientsThatStartFromOldMemory) {
  EXPECT_THAT(complaints({.adds_to_zero_dw = true}), HasSubstr("gradient of scale.weight: element 0 is nan"));
}

TEST(CheckLayer, FindsBackwardThatReadsOverwrittenOutputs) {
  EXPECT_THAT(complaints({.reads_y = true}), HasSubstr("dx when y was overwritten"));
}

TEST(CheckLayer, FindsInPlaceLayersThatLeaveLessOfTheInputThanTheySay) {
  EXPECT_THAT(complaints({.in_place = Content::kValues}), HasSubstr("the value at"));
  EXPECT_THAT(complaints({.in_place = Content::kSigns}), HasSubstr("the sign at"));
}

TEST(CheckLayer, FindsInputsThatAreChanged) {
  EXPECT_THAT(complaints({.changes_x = true}), HasSubstr("x after forward"));
}

TEST(CheckLayer, FindsResultsThatDifferFromCallToCall) {
  EXPECT_THAT(complaints({.varies = true}), HasSubstr("the second time: y"));
}

TEST(CheckLayer, FindsPartsThatIgnoreTheirPlace) {
  const auto make = [](std::optional<Slice> part) {
    // Wrong: a part always takes the first columns.
    if (part) part = Slice{0, part->size()};
    return std::make_unique<Scale>(5, part, Fault{});
  };
  testing::TestPartResultArray results;
  {
    const testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    check_layer(make, {4, 5}, Device::kCpu);
  }
  ASSERT_GT(results.size(), 0);
  EXPECT_THAT(results.GetTestPartResult(0).message(), HasSubstr("part: y"));
}

TEST(DistinctValues, AreDistinctSpacedAndAwayFromZero) {
  std::vector<float> values = distinct_values(100, 2, 1);
  std::sort(values.begin(), values.end());
  for (size_t i = 1; i < values.size(); ++i) EXPECT_GT(values[i] - values[i - 1], 0.037f);
  for (const float value : values) EXPECT_GE(std::abs(value), 0.1f);
  EXPECT_NE(distinct_values(100, 2, 1), distinct_values(100, 2, 2));
}

}  // namespace
}  // namespace owt::check_layer_test
