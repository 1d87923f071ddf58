#include "src/train/inference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/synthetic.h"
#include "src/core/memory.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"
#include "tests/support/nets.h"
#include "tests/support/whole_runs.h"

namespace owt::inference_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class InferenceTest : public WholeRuns, public DeviceTest {
 protected:
  InferenceTest() { run("run", {{"schedule.epochs", "1"}}); }
  Settings settings() const { return for_one_rank(small_settings(kSmallRecipe, {{"run.device", name_of(device())}})); }
  Tensor images(int64_t rows) const {
    Tensor images({rows, 12, 12, 3});
    for (int64_t i = 0; i < images.elements(); ++i) images.data()[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
    return images;
  }
  Tensor outputs(const std::string& layer, const Tensor& x) {
    Inference network(settings(), weights_of("run"), layer);
    return network.run(x).clone();
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, InferenceTest, ::testing::ValuesIn(devices()), device_name);

TEST_P(InferenceTest, ALayersOutputIsItsOwnAndNotThatOfTheReluInItsPlace) {
  const Tensor x = images(3), conv = outputs("conv1", x), relu = outputs("relu1", x);
  EXPECT_EQ(conv.shape(), (Shape{3, 12, 12, 16}));
  int negative = 0;
  for (int64_t i = 0; i < conv.elements(); ++i) {
    EXPECT_NEAR(relu.data()[i], std::max(conv.data()[i], 0.0f), 1e-5);
    negative += conv.data()[i] < 0;
  }
  EXPECT_GT(negative, 100);
}

TEST_P(InferenceTest, RowsDoNotDependOnTheOthers) {
  const Tensor x = images(5);
  Inference network(settings(), weights_of("run"));
  const Tensor all = network.run(x).clone(), last = network.run(x.rows(3, 5)).clone();
  EXPECT_EQ(all.shape(), (Shape{5, 10}));
  for (int64_t i = 0; i < last.elements(); ++i) EXPECT_NEAR(last.data()[i], all.rows(3, 5).data()[i], 1e-5);
}

TEST_P(InferenceTest, MemoryDoesNotGrowWithTheNumbersOfRowsThatWereRun) {
  if (device() != Device::kCpu) GTEST_SKIP() << "the host's memory is what is looked at";
  Inference network(settings(), weights_of("run"));
  const Tensor x = images(1000);
  const int64_t before = host_memory().in_use;
  network.run(x);
  const int64_t with_one = host_memory().in_use - before;
  EXPECT_GT(with_one, x.bytes());
  for (int64_t rows = 999; rows > 985; --rows) network.run(x.rows(0, rows));
  EXPECT_LT(host_memory().in_use - before, 4 * with_one);
}

TEST_P(InferenceTest, Bf16IsCloseToFp32) {
  const Tensor x = images(4), full = outputs("fc3", x);
  Inference network(
      for_one_rank(small_settings(kSmallRecipe, {{"run.device", name_of(device())}, {"run.precision", "bf16"}})),
      weights_of("run"));
  const Tensor half = network.run(x);
  for (int64_t i = 0; i < full.elements(); ++i) EXPECT_NEAR(half.data()[i], full.data()[i], 0.05);
}

TEST_P(InferenceTest, AnUnknownLayerIsAnErrorWithTheNearestName) {
  EXPECT_THAT(message_of([&] { Inference(settings(), weights_of("run"), "cnov2"); }),
              AllOf(HasSubstr("no layer 'cnov2'"), HasSubstr("did you mean 'conv2'?")));
}

TEST_P(InferenceTest, OfALayerInsideAnotherTheOuterOneIsToBeNamed) {
  Settings with_inner = settings();
  Config residual = Config::text(R"(
name = "r"
type = "residual"
body = [{ name = "conv", type = "conv", out = 3, kernel = 3, pad = 1 }]
)");
  with_inner.model.layers.insert(with_inner.model.layers.begin(), residual);
  EXPECT_THAT(message_of([&] { Inference(with_inner, weights_of("run"), "r.conv"); }),
              AllOf(HasSubstr("'r.conv' is inside 'r'"), HasSubstr("use 'r'")));
}

TEST_P(InferenceTest, ValuesThatAreNotFiniteAreAnError) {
  Tensor x = images(2);
  x.data()[5] = std::nanf("");
  Inference network(settings(), weights_of("run"), "fc2");
  EXPECT_THAT(message_of([&] { network.run(x); }), AllOf(HasSubstr("'fc2'"), HasSubstr("not finite")));
}

}  // namespace
}  // namespace owt::inference_test
