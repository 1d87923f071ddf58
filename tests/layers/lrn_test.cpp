#include "layers/lrn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/system/check.h"
#include "tests/support/check_layer.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"

namespace owt::lrn_test {
namespace {

using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;

using LrnTest = DeviceTest;
INSTANTIATE_TEST_SUITE_P(Devices, LrnTest, testing::ValuesIn(devices()), device_name);

TEST_P(LrnTest, TheLayerKnowsTheScratchMemoryOfItsOp) {
  const Shape in{3, 2, 2, 16};
  for (const char* keys : {"size=4", "size=5", "size=5 within=true"}) {
    const auto lrn = layer_from(concat("type='lrn' ", keys), in);
    EXPECT_EQ(lrn->bind(in, device())->scratch_bytes(Phase::kBackward), lrn->scratch_bytes(in, device()));
  }
}

// The definition, element by element in double precision.
struct Naive {
  int64_t size;
  double alpha, beta, k;
  int64_t channels;

  bool sees(int64_t c, int64_t j) const { return j >= c - size / 2 && j <= c + (size - 1) / 2; }
  double scale(const float* x, int64_t c) const {
    double sum = 0;
    for (int64_t j = 0; j < channels; ++j)
      if (sees(c, j)) sum += static_cast<double>(x[j]) * static_cast<double>(x[j]);
    return k + alpha / static_cast<double>(size) * sum;
  }
  std::vector<float> forward(const std::vector<float>& x) const {
    std::vector<float> y;
    for (size_t i = 0; i < x.size(); ++i) {
      const auto c = static_cast<int64_t>(i) % channels;
      y.push_back(static_cast<float>(x[i] * std::pow(scale(x.data() + i - c, c), -beta)));
    }
    return y;
  }
  // dx_c = sum over j of dy_j * dy_j/dx_c
  std::vector<float> backward(const std::vector<float>& x, const std::vector<float>& dy) const {
    std::vector<float> dx;
    for (size_t i = 0; i < x.size(); ++i) {
      const auto c = static_cast<int64_t>(i) % channels;
      const float *row = x.data() + i - c, *gradient = dy.data() + i - c;
      double sum = 0;
      for (int64_t j = 0; j < channels; ++j) {
        const double s = scale(row, j);
        double slope = j == c ? std::pow(s, -beta) : 0;
        if (sees(j, c))
          slope -= row[j] * beta * std::pow(s, -beta - 1) * 2 * alpha / static_cast<double>(size) * row[c];
        sum += gradient[j] * slope;
      }
      dx.push_back(static_cast<float>(sum));
    }
    return dx;
  }
};

struct Case {
  const char* keys;
  Naive naive;
};
const Case kCases[] = {
    {"", {5, 1e-4, 0.75, 1, 0}},
    {"size=5 alpha=2 beta=0.75 k=2", {5, 2, 0.75, 2, 0}},
    {"size=3 alpha=1 beta=0.5 k=1", {3, 1, 0.5, 1, 0}},
    {"size=9 alpha=0.5 beta=1 k=1", {9, 0.5, 1, 1, 0}},
    {"size=4 alpha=1 beta=0.6 k=1.5", {4, 1, 0.6, 1.5, 0}},
    {"size=1 alpha=1 beta=0.75 k=1", {1, 1, 0.75, 1, 0}},
};

TEST_P(LrnTest, GivesTheDefinition) {
  for (const auto& [keys, settings, channels] : {std::tuple{kCases[0].keys, kCases[0].naive, 8},
                                                 {kCases[1].keys, kCases[1].naive, 37},
                                                 {kCases[2].keys, kCases[2].naive, 16},
                                                 {kCases[3].keys, kCases[3].naive, 4},
                                                 {kCases[4].keys, kCases[4].naive, 11},
                                                 {kCases[5].keys, kCases[5].naive, 3}}) {
    SCOPED_TRACE(keys);
    Naive naive = settings;
    naive.channels = channels;
    const Shape in{2, 2, 3, channels};
    Harness lrn(std::string("type='lrn' ") + keys, in, device());
    const auto x = distinct_values(in.elements(), 3, 5), dy = distinct_values(in.elements(), 1, 6);
    EXPECT_THAT(lrn.forward(x), Pointwise(FloatNear(1e-5f), naive.forward(x)));
    EXPECT_THAT(lrn.backward(dy), Pointwise(FloatNear(1e-5f), naive.backward(x, dy)));
  }
}

TEST_P(LrnTest, KeepsTheLayerContract) {
  for (const Case& c : kCases) check_layer(std::string("type='lrn' ") + c.keys, {2, 3, 2, 13}, device());
  check_layer("type='lrn' alpha=1", {4, 16, 16, 32}, device(), {.samples = 0});
}

TEST_P(LrnTest, WithinChannelsKeepsTheLayerContract) {
  for (const char* keys :
       {"size=3 alpha=1", "size=4 alpha=2 beta=0.6 k=1.5", "size=1 beta=0.5", "size=9 alpha=1 beta=1"})
    for (const int64_t channels : {5, 16, 19})
      check_layer(std::string("type='lrn' within=true ") + keys, {2, 5, 4, channels}, device());
  check_layer("type='lrn' within=true alpha=1", {4, 16, 16, 32}, device(), {.samples = 0});
}

// PyTorch 2.15: x * (1 + 9 * avg_pool2d(pad(x * x, (1, 1, 1, 1)), 3, 1)) ** -0.75 and its gradient, in f64.
TEST_P(LrnTest, WithinAChannelGivesPyTorchsFigures) {
  Harness lrn("type='lrn' within=true size=3 alpha=9", {1, 2, 3, 1}, device());
  EXPECT_THAT(lrn.forward({1, 2, -3, 4, -5, 6}),
              Pointwise(FloatNear(1e-6f),
                        {0.055709160f, 0.067326979f, -0.117713238f, 0.222836638f, -0.168317446f, 0.235426477f}));
  EXPECT_THAT(lrn.backward({1, 2, 3, 4, 5, 6}),
              Pointwise(FloatNear(1e-6f),
                        {0.037010063f, -0.012447980f, 0.146700129f, 0.148040253f, 0.367754842f, 0.177452695f}));
}

// For an even size, size / 2 rows and columns before a position and one less after it; other channels do not matter.
TEST_P(LrnTest, AWindowWithinAChannelReachesHalfOfItsSizeAndIsDividedByItsWholeArea) {
  Harness lrn("type='lrn' within=true size=2 alpha=4 beta=1", {1, 2, 2, 2}, device());
  // s of the first channel = 1 + 1, 1 + 1 + 4, 1 + 1 + 9, 1 + 1 + 4 + 9 + 16
  EXPECT_THAT(lrn.forward({1, 7, 2, 7, 3, 7, 4, 7}),
              Pointwise(FloatNear(1e-6f),
                        {1 / 2.0f, 7 / 50.0f, 2 / 6.0f, 7 / 99.0f, 3 / 11.0f, 7 / 99.0f, 4 / 31.0f, 7 / 197.0f}));
}

TEST(Lrn, WithinChannelsWorksOnSomeOfThem) {
  EXPECT_EQ(layer_from("type='lrn' within=true", {1, 2, 2, 4})->columns(), Columns::kKeeps);
  EXPECT_EQ(layer_from("type='lrn'", {1, 2, 2, 4})->columns(), Columns::kMixes);
}

TEST_P(LrnTest, AlphaIsDividedByTheSize) {
  Harness lrn("type='lrn' size=3 alpha=3 beta=1 k=1", {1, 1, 1, 3}, device());
  // s = 1 + 1 + 1, 1 + 1 + 1 + 4, 1 + 1 + 4
  EXPECT_THAT(lrn.forward({1, 1, 2}), Pointwise(FloatNear(1e-6f), {1 / 3.0f, 1 / 7.0f, 2 / 6.0f}));
}

TEST_P(LrnTest, ValuesWhoseSquareIsInfiniteAreNormalisedToZero) {
  for (const char* keys : {"", "beta=0.5", "beta=1", "beta=0.6"}) {
    Harness lrn(std::string("type='lrn' size=3 ") + keys, {1, 1, 1, 8}, device());
    const std::vector<float> y = lrn.forward({0, 0, 1, 1e30f, 2, 0, 0, 0});
    EXPECT_EQ(y, std::vector<float>(8, 0.0f)) << keys;
  }
}

TEST(LrnKeys, FeaturesInPlaceOfImagesAreAnError) {
  EXPECT_THAT(message_of([] { layer_from("type='lrn'", {1, 64}); }), HasSubstr("lrn normalises images"));
}

}  // namespace
}  // namespace owt::lrn_test
