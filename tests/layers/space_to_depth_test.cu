#include "layers/gpu/space_to_depth.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace owt {
namespace {

struct Case {
  const char* name;
  ConvGeometry geometry;
  int64_t block_h, block_w, multiple;
};

// AlexNet's first layer on a smaller image; unequal strides and kernels; padding below that completes a window.
const Case kCases[] = {
    {"alexnet", {27, 27, 3, 6, 6, 2, 11, 11, 4, 4, 2, 2, 2, 2, 1}, 4, 4, 8},
    {"unequal", {9, 8, 2, 5, 8, 3, 3, 2, 2, 1, 1, 0, 1, 1, 1}, 2, 1, 8},
    {"below", {6, 8, 1, 3, 4, 2, 3, 3, 2, 2, 0, 0, 1, 1, 1}, 2, 2, 8},
    {"small kernel", {8, 8, 3, 2, 2, 2, 3, 3, 4, 4, 0, 0, 0, 0, 1}, 4, 4, 8},
    {"four channels", {5, 5, 3, 5, 5, 2, 3, 3, 1, 1, 1, 1, 1, 1, 1}, 1, 1, 4},
    {"eight channels", {5, 5, 3, 5, 5, 2, 3, 3, 1, 1, 1, 1, 1, 1, 1}, 1, 1, 8},
};

class Packing : public testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kRows = 2;
  const ConvGeometry& plain() const { return GetParam().geometry; }
  ChannelPacking packing() const {
    return ChannelPacking(plain(), GetParam().block_h, GetParam().block_w, GetParam().multiple);
  }

  static int64_t weights(const ConvGeometry& g) { return g.out_c * g.kernel_h * g.kernel_w * g.in_c; }
  static std::vector<double> numbers(int64_t count) {
    std::vector<double> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>(i * 37 % 101) - 50);
    return values;
  }

  std::vector<double> packed_images(const std::vector<double>& x) const {
    const ImageLayout layout = packing().layout();
    const int64_t each = plain().in_h * plain().in_w * plain().in_c;
    std::vector<double> packed;
    for (int64_t n = 0; n < kRows; ++n)
      for (int h = 0; h < layout.height; ++h)
        for (int w = 0; w < layout.width; ++w)
          for (int c = 0; c < layout.channels; ++c) {
            const int64_t source = layout.source(h, w, c);
            packed.push_back(source < 0 ? 0 : x.at(static_cast<size_t>(n * each + source)));
          }
    return packed;
  }

  std::vector<double> packed_weights(const std::vector<double>& w) const {
    std::vector<double> packed;
    for (int64_t i = 0; i < weights(packing().packed()); ++i) {
      const int64_t source = packing().weight_source(i);
      packed.push_back(source < 0 ? 0 : w.at(static_cast<size_t>(source)));
    }
    return packed;
  }

  // Visits every product of the convolution: function(index in y, in x, in w).
  template <class Function>
  static void products(const ConvGeometry& g, const Function& function) {
    for (int64_t y = 0; y < kRows * g.out_h * g.out_w * g.out_c; ++y) {
      const int64_t o = y % g.out_c, j = y / g.out_c % g.out_w, i = y / g.out_c / g.out_w % g.out_h;
      const int64_t n = y / g.out_c / g.out_w / g.out_h;
      for (int64_t u = 0; u < g.kernel_h; ++u)
        for (int64_t v = 0; v < g.kernel_w; ++v) {
          const int64_t h = i * g.stride_h - g.top + u, w = j * g.stride_w - g.left + v;
          if (h < 0 || h >= g.in_h || w < 0 || w >= g.in_w) continue;
          for (int64_t c = 0; c < g.in_c; ++c)
            function(static_cast<size_t>(y), static_cast<size_t>(((n * g.in_h + h) * g.in_w + w) * g.in_c + c),
                     static_cast<size_t>(((o * g.kernel_h + u) * g.kernel_w + v) * g.in_c + c));
        }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Cases, Packing, testing::ValuesIn(kCases), [](const auto& info) {
  std::string name = info.param.name;
  for (char& c : name)
    if (c == ' ') c = '_';
  return name;
});

TEST_P(Packing, ChannelsAreAMultiple) {
  const ConvGeometry packed = packing().packed();
  EXPECT_EQ(packed.in_c % GetParam().multiple, 0);
  EXPECT_GE(packed.in_c, GetParam().block_h * GetParam().block_w * plain().in_c);
  EXPECT_EQ(packed.out_h, (packed.in_h + packed.top + packed.bottom - packed.kernel_h) / packed.stride_h + 1);
  EXPECT_EQ(packed.out_w, (packed.in_w + packed.left + packed.right - packed.kernel_w) / packed.stride_w + 1);
}

TEST_P(Packing, ThePackedConvolutionIsThePlainOne) {
  const std::vector<double> x = numbers(kRows * plain().in_h * plain().in_w * plain().in_c);
  const std::vector<double> w = numbers(weights(plain()));
  const std::vector<double> packed_x = packed_images(x), packed_w = packed_weights(w);
  std::vector<double> y(static_cast<size_t>(kRows * plain().out_h * plain().out_w * plain().out_c)), packed_y(y.size());
  products(plain(), [&](size_t o, size_t i, size_t k) { y[o] += x.at(i) * w.at(k); });
  products(packing().packed(), [&](size_t o, size_t i, size_t k) { packed_y[o] += packed_x.at(i) * packed_w.at(k); });
  EXPECT_EQ(packed_y, y);
}

TEST_P(Packing, ThePackedWeightGradientHoldsThePlainOne) {
  const std::vector<double> x = numbers(kRows * plain().in_h * plain().in_w * plain().in_c);
  const std::vector<double> dy = numbers(kRows * plain().out_h * plain().out_w * plain().out_c);
  const std::vector<double> packed_x = packed_images(x);
  std::vector<double> dw(static_cast<size_t>(weights(plain())));
  std::vector<double> packed_dw(static_cast<size_t>(weights(packing().packed())));
  products(plain(), [&](size_t o, size_t i, size_t k) { dw[k] += dy[o] * x.at(i); });
  products(packing().packed(), [&](size_t o, size_t i, size_t k) { packed_dw[k] += dy[o] * packed_x.at(i); });
  for (int64_t i = 0; i < weights(plain()); ++i)
    EXPECT_EQ(packed_dw.at(static_cast<size_t>(packing().weight_place(i))), dw[static_cast<size_t>(i)]) << i;
}

TEST_P(Packing, EveryWeightHasOnePlace) {
  std::set<int64_t> places;
  for (int64_t i = 0; i < weights(plain()); ++i) {
    places.insert(packing().weight_place(i));
    EXPECT_EQ(packing().weight_source(packing().weight_place(i)), i);
  }
  EXPECT_EQ(static_cast<int64_t>(places.size()), weights(plain()));
}

TEST(SpaceToDepth, AlexNetsFirstLayerBecomesA3x3ConvolutionOver48Channels) {
  const ConvGeometry conv1{224, 224, 3, 55, 55, 64, 11, 11, 4, 4, 2, 2, 2, 2, 1};
  const ConvGeometry packed = ChannelPacking(conv1, 4, 4, 8).packed();
  EXPECT_EQ(packed.in_h, 57);
  EXPECT_EQ(packed.in_w, 57);
  EXPECT_EQ(packed.in_c, 48);
  EXPECT_EQ(packed.kernel_h, 3);
  EXPECT_EQ(packed.kernel_w, 3);
  EXPECT_EQ(packed.stride_h, 1);
  EXPECT_EQ(packed.top, 0);
}

}  // namespace
}  // namespace owt
