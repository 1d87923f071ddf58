#include "layers/base/layer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"

namespace owt::layer_test {
namespace {

class CpuOnly : public Layer {
 public:
  using Layer::Layer;
  Shape out_shape(const Shape& in) const override { return in; }
  std::unique_ptr<Op> bind(const Shape&, const Compute& on) override {
    require_cpu(on);
    return nullptr;
  }
};

TEST(Layer, WithoutCudaCodeSaysThatThereIsNoGpuVersion) {
  CpuOnly layer("sort1", "sort");
  EXPECT_NO_THROW(layer.bind({1, 2}, Device::kCpu));
  EXPECT_EQ(message_of([&] {
              layer.bind({1, 2}, Device::kCuda);
            }),
            "there is no GPU version of sort, the type of layer 'sort1'; use --device cpu");
}

TEST(Layer, DescribesItselfByItsTypeWhereItSaysNoMore) {
  CpuOnly layer("sort1", "sort");
  EXPECT_EQ(layer.describe({1, 2}).op, "sort");
  EXPECT_TRUE(layer.describe({1, 2}).attributes.empty());
}

}  // namespace
}  // namespace owt::layer_test
