#include "layers/pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "src/system/check.h"
#include "tests/support/check_layer.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"

namespace owt::pool_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using PoolTest = DeviceTest;
INSTANTIATE_TEST_SUITE_P(Devices, PoolTest, testing::ValuesIn(devices()), device_name);

// The definition, element by element.
struct Naive {
  int64_t kernel, stride, pad;

  template <class Visit>
  void window(int64_t o, int64_t extent, const Visit& visit) const {
    for (int64_t k = 0; k < kernel; ++k)
      if (const int64_t i = o * stride - pad + k; i >= 0 && i < extent) visit(i);
  }
  double inside(int64_t o, int64_t extent) const {
    int64_t count = 0;
    for (int64_t k = 0; k < kernel; ++k) count += o * stride - pad + k < extent + pad;
    return static_cast<double>(count);
  }
  std::vector<float> run(const std::vector<float>& x, const Shape& in, const Shape& out, bool max) const {
    std::vector<float> y;
    for (int64_t n = 0; n < out[0]; ++n)
      for (int64_t oh = 0; oh < out[1]; ++oh)
        for (int64_t ow = 0; ow < out[2]; ++ow)
          for (int64_t c = 0; c < out[3]; ++c) {
            double largest = -INFINITY, sum = 0;
            window(oh, in[1], [&](int64_t h) {
              window(ow, in[2], [&](int64_t w) {
                const double value = x[static_cast<size_t>(((n * in[1] + h) * in[2] + w) * in[3] + c)];
                largest = std::max(largest, value);
                sum += value;
              });
            });
            y.push_back(static_cast<float>(max ? largest : sum / (inside(oh, in[1]) * inside(ow, in[2]))));
          }
    return y;
  }
};

struct Geometry {
  const char* keys;
  Naive naive;
  Shape in, out;
};

const Geometry kGeometries[] = {
    {"kernel=2", {2, 2, 0}, {2, 6, 4, 3}, {2, 3, 2, 3}},
    {"kernel=2", {2, 2, 0}, {2, 5, 6, 8}, {2, 2, 3, 8}},
    {"kernel=2 stride=2 pad=1 round='up'", {2, 2, 1}, {1, 4, 5, 4}, {1, 3, 3, 4}},
    {"kernel=3 stride=2", {3, 2, 0}, {2, 7, 9, 5}, {2, 3, 4, 5}},
    {"kernel=3 stride=2 round='up'", {3, 2, 0}, {2, 8, 7, 33}, {2, 4, 3, 33}},
    {"kernel=3 stride=2 pad=1 round='up'", {3, 2, 1}, {1, 6, 7, 16}, {1, 4, 4, 16}},
    {"kernel=3 stride=1 pad=1", {3, 1, 1}, {3, 5, 4, 7}, {3, 5, 4, 7}},
    {"kernel=2 stride=3", {2, 3, 0}, {1, 8, 9, 2}, {1, 3, 3, 2}},
    {"kernel=5 stride=2 pad=2", {5, 2, 2}, {2, 4, 5, 1}, {2, 2, 3, 1}},
    {"kernel=2 stride=3 round='up' pad=1", {2, 3, 1}, {1, 5, 6, 2}, {1, 2, 3, 2}},
    {"kernel=17 stride=2", {17, 2, 0}, {1, 18, 19, 2}, {1, 1, 2, 2}},
};

TEST_P(PoolTest, GivesTheDefinitionForEveryGeometry) {
  for (const auto& [keys, naive, in, out] : kGeometries)
    for (const bool max : {true, false}) {
      const std::string all = std::string(max ? "type='max_pool' " : "type='avg_pool' ") + keys;
      SCOPED_TRACE(all);
      Harness pool(all, in, device());
      const std::vector<float> x = distinct_values(in.elements(), 3, 7);
      ASSERT_EQ(pool.out_shape(), out);
      EXPECT_THAT(pool.forward(x), testing::Pointwise(testing::FloatNear(1e-5f), naive.run(x, in, out, max)));
      EXPECT_THAT(pool.evaluate(x), testing::Pointwise(testing::FloatNear(1e-5f), naive.run(x, in, out, max)));
    }
}

// Channels fill the vectors of every processor, or leave a part of the last one, or do not fill one.
TEST_P(PoolTest, GivesTheDefinitionForEveryNumberOfChannels) {
  for (const char* type : {"max_pool", "avg_pool"})
    for (const int64_t channels : {1, 3, 15, 16, 17, 31, 32, 33, 70}) {
      SCOPED_TRACE(std::string(type) + " of channels: " + std::to_string(channels));
      const Shape in{2, 6, 7, channels}, out{2, 4, 4, channels};
      const std::string keys = std::string("type='") + type + "' kernel=3 stride=2 pad=1 round='up'";
      const std::vector<float> x = distinct_values(in.elements(), 3, 7);
      const std::vector<float> y = Naive{3, 2, 1}.run(x, in, out, type == std::string("max_pool"));
      Harness pool(keys, in, device());
      EXPECT_THAT(pool.forward(x), testing::Pointwise(testing::FloatNear(1e-5f), y));
      check_layer(keys, in, device(), {.samples = 20, .input_range = 0.015 * static_cast<double>(in.elements())});
    }
}

TEST_P(PoolTest, KeepsTheLayerContractForEveryGeometry) {
  for (const Geometry& geometry : kGeometries) {
    // Inputs differ by more than two steps of 0.01, so that no difference changes a maximum.
    const double range = 0.015 * static_cast<double>(geometry.in.elements());
    check_layer(std::string("type='max_pool' ") + geometry.keys, geometry.in, device(), {.input_range = range});
    check_layer(std::string("type='avg_pool' ") + geometry.keys, geometry.in, device());
  }
}

TEST_P(PoolTest, KeepsTheLayerContractWhenThreadsShareTheWork) {
  check_layer("type='max_pool' kernel=3 stride=2", {4, 33, 33, 32}, device(), {.samples = 0});
  check_layer("type='avg_pool' kernel=3 stride=2", {4, 33, 33, 32}, device(), {.samples = 0});
  check_layer("type='global_avg_pool'", {4, 33, 33, 32}, device(), {.samples = 0});
}

TEST_P(PoolTest, FirstOfEqualMaximaGetsTheGradient) {
  Harness pool("type='max_pool' kernel=2 stride=2", {1, 2, 2, 1}, device());
  EXPECT_THAT(pool.forward({7, 7, 1, 0}), ElementsAre(7));
  EXPECT_THAT(pool.backward({5}), ElementsAre(5, 0, 0, 0));
  EXPECT_THAT(pool.forward({1, 0, 7, 7}), ElementsAre(7));
  EXPECT_THAT(pool.backward({5}), ElementsAre(0, 0, 5, 0));
}

TEST_P(PoolTest, FirstOfEqualMaximaAndLastOfNaNsGetsTheGradientInEveryChannel) {
  const Naive naive{3, 2, 1};
  const std::vector<float> few = {1, 1, 2, 2, -0.0f, 0, -kInfinity, -kInfinity, kInfinity, kNaN};
  for (const int64_t channels : {3, 17, 33}) {
    const Shape in{1, 7, 6, channels};
    Harness pool("type='max_pool' kernel=3 stride=2 pad=1", in, device());
    std::vector<float> x, dx(static_cast<size_t>(in.elements()), 0.0f), dy;
    for (int64_t i = 0; i < in.elements(); ++i) x.push_back(few[static_cast<size_t>((i * i + i / 7) % 10)]);
    for (int64_t i = 0; i < pool.out_shape().elements(); ++i) dy.push_back(static_cast<float>(i + 1));
    for (size_t i = 0; i < dy.size(); ++i) {
      const auto position = static_cast<int64_t>(i) / channels, c = static_cast<int64_t>(i) % channels;
      size_t best = x.size();
      naive.window(position / pool.out_shape()[2], in[1], [&](int64_t h) {
        naive.window(position % pool.out_shape()[2], in[2], [&](int64_t w) {
          const auto at = static_cast<size_t>((h * in[2] + w) * channels + c);
          if (best == x.size() || x[at] > x[best] || std::isnan(x[at])) best = at;
        });
      });
      dx[best] += dy[i];
    }
    pool.forward(x);
    EXPECT_EQ(pool.backward(dy), dx) << channels << " channels";
  }
}

TEST_P(PoolTest, TheLastPixelOfAWindowOfMoreThan256GetsItsGradientAlone) {
  Harness pool("type='max_pool' kernel=17", {1, 17, 17, 1}, device());
  std::vector<float> x(17 * 17), dx(17 * 17);
  std::iota(x.begin(), x.end(), 0.0f);
  dx.back() = 1;
  EXPECT_THAT(pool.forward(x), ElementsAre(288));
  EXPECT_EQ(pool.backward({1}), dx);
}

TEST_P(PoolTest, GradientsOfOverlappingWindowsAdd) {
  Harness pool("type='max_pool' kernel=2 stride=1", {1, 2, 3, 1}, device());
  EXPECT_THAT(pool.forward({0, 9, 0, 0, 0, 0}), ElementsAre(9, 9));
  EXPECT_THAT(pool.backward({5, 2}), ElementsAre(0, 7, 0, 0, 0, 0));
}

TEST_P(PoolTest, MaximumOfNegativePixelsIsNotThePadding) {
  Harness pool("type='max_pool' kernel=2 stride=2 pad=1", {1, 2, 2, 1}, device());
  EXPECT_THAT(pool.forward({-4, -3, -2, -1}), ElementsAre(-4, -3, -2, -1));
}

TEST_P(PoolTest, MinusInfinityEverywhereIsTheMaximumAndTheFirstPixelGetsTheGradient) {
  Harness pool("type='max_pool' kernel=2", {1, 2, 2, 1}, device());
  EXPECT_THAT(pool.forward({-kInfinity, -kInfinity, -kInfinity, -kInfinity}), ElementsAre(-kInfinity));
  EXPECT_THAT(pool.backward({3}), ElementsAre(3, 0, 0, 0));
}

TEST_P(PoolTest, NaNIsNotHiddenWhereverItStands) {
  for (size_t place = 0; place < 4; ++place) {
    Harness pool("type='max_pool' kernel=2", {1, 2, 2, 1}, device());
    std::vector<float> x = {1, 2, 3, 4};
    x[place] = kNaN;
    EXPECT_TRUE(std::isnan(pool.forward(x)[0])) << place;
    EXPECT_TRUE(std::isnan(pool.evaluate(x)[0])) << place;
  }
}

TEST_P(PoolTest, AverageCountsPaddingButNotWhatLiesBeyondIt) {
  // Width 3 padded to 5; windows of 2 at -1, 1, 3: the last one covers the padding at 3, and 4 is beyond it.
  Harness pool("type='avg_pool' kernel=2 stride=2 pad=1 round='up'", {1, 3, 3, 1}, device());
  const std::vector<float> y = pool.forward({4, 4, 4, 4, 4, 4, 4, 4, 4});
  EXPECT_THAT(y, ElementsAre(1, 2, 2, 4));
  EXPECT_THAT(pool.backward({4, 4, 4, 4}), ElementsAre(1, 1, 1, 1, 1, 1, 1, 1, 1));
}

TEST_P(PoolTest, AverageMayCountPixelsOnly) {
  const std::string keys = "type='avg_pool' kernel=2 stride=2 pad=1 round='up' count_pad=false";
  Harness pool(keys, {1, 3, 3, 1}, device());
  EXPECT_THAT(pool.forward({1, 2, 3, 4, 5, 6, 7, 8, 9}), ElementsAre(1, 2.5f, 5.5f, 7));
  EXPECT_THAT(pool.backward({4, 4, 4, 4}), ElementsAre(4, 2, 2, 2, 1, 1, 2, 1, 1));
  check_layer("type='avg_pool' kernel=3 stride=1 pad=1 count_pad=false", {2, 5, 4, 7}, device());
  check_layer(keys, {2, 6, 5, 8}, device());
}

TEST_P(PoolTest, WindowThatSticksOutIsAveragedOverWhatIsInside) {
  Harness pool("type='avg_pool' kernel=2 stride=2 round='up'", {1, 1, 3, 1}, device());
  EXPECT_THAT(pool.forward({2, 4, 7}), ElementsAre(3, 7));
  EXPECT_THAT(pool.backward({8, 2}), ElementsAre(4, 4, 2));
}

TEST_P(PoolTest, GlobalAverageIsTheMeanOfEachChannel) {
  Harness pool("type='global_avg_pool'", {2, 1, 2, 2}, device());
  EXPECT_EQ(pool.out_shape(), (Shape{2, 2}));
  EXPECT_THAT(pool.forward({1, 10, 3, 20, 5, 6, 7, 8}), ElementsAre(2, 15, 6, 7));
  EXPECT_THAT(pool.backward({2, 4, 6, 8}), ElementsAre(1, 2, 1, 2, 3, 4, 3, 4));
}

TEST_P(PoolTest, GlobalAverageKeepsTheLayerContract) { check_layer("type='global_avg_pool'", {3, 4, 5, 70}, device()); }

TEST(PoolGeometry, CountsWindowsLikeCaffeAndPyTorch) {
  EXPECT_EQ((Window{3, 2, 0, false}.count(32)), 15);
  EXPECT_EQ((Window{3, 2, 0, true}.count(32)), 16);
  EXPECT_EQ((Window{3, 2, 0, false}.count(55)), 27);
  EXPECT_EQ((Window{2, 2, 1, true}.count(3)), 2) << "a third window would start at 3, in the right padding";
  EXPECT_EQ((Window{3, 1, 1, false}.count(13)), 13);
  EXPECT_EQ((Window{3, 2, 0, true}.count(2)), 1) << "rounded up a window may stick out";
  EXPECT_LT((Window{3, 2, 0, false}.count(2)), 1);
}

TEST(PoolKeys, StrideIsTheKernelUnlessGiven) {
  EXPECT_EQ(layer_from("type='max_pool' kernel=3", {1, 9, 9, 2})->out_shape({1, 9, 9, 2}), (Shape{1, 3, 3, 2}));
}

TEST(PoolKeys, PaddingOfMoreThanHalfAWindowIsAnError) {
  EXPECT_THAT(message_of([] {
                layer_from("type='max_pool' kernel=3 pad=2", {1, 9, 9, 2});
              }),
              HasSubstr("'pad' is 2, wanted at most kernel / 2 = 1"));
}

TEST(PoolKeys, WindowLargerThanTheImageIsAnError) {
  EXPECT_THAT(message_of([] {
                layer_from("type='avg_pool' kernel=5", {1, 4, 9, 2});
              }),
              HasSubstr("a window of 5x5 with pad 0 does not fit into 4x9 pixels"));
}

TEST(PoolKeys, FeaturesInPlaceOfImagesAreAnError) {
  for (const char* keys : {"type='max_pool' kernel=2", "type='avg_pool' kernel=2", "type='global_avg_pool'"})
    EXPECT_THAT(message_of([&] { layer_from(keys, {1, 64}); }), HasSubstr("put it before the first dense layer"));
}

}  // namespace
}  // namespace owt::pool_test
