#include "layers/winograd.h"

#include <gtest/gtest.h>

#include <cmath>

#include "layers/onednn_conv.h"
#include "src/core/bf16.h"
#include "src/core/cpu_level.h"

namespace owt {
namespace {

Tensor values(const Shape& shape, DType type, uint32_t seed) {
  Tensor tensor(shape);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    seed = seed * 1664525u + 1013904223u;
    tensor.data()[i] = static_cast<float>(seed >> 8) * 0x1p-23f - 1.0f;
  }
  return type == DType::kBF16 ? to_bf16(tensor) : tensor;
}

double relative_error(const Tensor& found, const Tensor& wanted) {
  double difference = 0, norm = 0;
  with_cpu_element(wanted.dtype(), [&](auto element) {
    using T = decltype(element);
    for (int64_t i = 0; i < wanted.elements(); ++i) {
      const double w = wanted.data<T>()[i], f = found.data<T>()[i];
      difference += (f - w) * (f - w);
      norm += w * w;
    }
  });
  return std::sqrt(difference / norm);
}

// What a pass makes of the same values: outputs of forward and backward data, or the gradient of the weights.
Tensor result_of(const ConvPass& pass, const ConvShape& shape, PassKind kind) {
  const ConvGeometry& g = shape.geometry;
  Tensor x = values({shape.rows, g.in_h, g.in_w, g.in_c}, shape.images, 1),
         y = values({shape.rows, g.out_h, g.out_w, g.out_c}, shape.images, 2),
         w = values({g.out_c, g.kernel_h, g.kernel_w, g.in_c}, DType::kF32, 3),
         bias = values({g.out_c}, DType::kF32, 4), packed({static_cast<int64_t>(pass.packed_bytes()) + 1}, DType::kU8);
  if (kind == PassKind::kBackwardWeights) {
    pass.backward_weights(x.raw(), y.raw(), 1, w.data(), 0, bias.data());
    return w;
  }
  pass.pack(w.data(), packed.raw());
  if (kind == PassKind::kForward)
    pass.forward(x.raw(), packed.raw(), bias.data(), y.raw());
  else
    pass.backward_data(y.raw(), packed.raw(), x.raw());
  return kind == PassKind::kForward ? y : x;
}

constexpr PassKind kAllKinds[] = {PassKind::kForward, PassKind::kBackwardData, PassKind::kBackwardWeights};
const ConvGeometry kThree{13, 9, 24, 13, 9, 40, 3, 3, 1, 1, 1, 1, 1, 1, 1},
    kFive{6, 7, 32, 6, 7, 48, 5, 5, 1, 1, 2, 2, 2, 2, 1};

bool has_bf16_products() { return cpu_level() >= CpuLevel::kBf16; }

// oneDNN's own rounding of its results to bf16 makes 2.5e-3 of this.
TEST(Winograd, ProductsOfBf16AreWithinTwiceTheRoundingOfBf16) {
  if (!has_bf16_products()) GTEST_SKIP() << "this processor has no products of bf16";
  const ConvShape shape{kThree, 3, true, DType::kBF16};
  for (const PassKind kind : kAllKinds) {
    const Tensor found = result_of(*make_winograd(shape, kind, DType::kBF16), shape, kind),
                 wanted = result_of(*make_onednn_conv(shape, kind), shape, kind);
    EXPECT_LT(relative_error(found, wanted), 7e-3) << name_of(kind);
  }
}

TEST(Winograd, ImagesOfBf16WithProductsOfF32AreRoundedOnce) {
  if (!has_bf16_products()) GTEST_SKIP() << "oneDNN has nothing to compare with on this processor";
  for (const ConvGeometry& g : {kThree, kFive}) {
    const ConvShape shape{g, 3, true, DType::kBF16};
    for (const PassKind kind : kAllKinds) {
      const Tensor found = result_of(*make_winograd(shape, kind, DType::kF32), shape, kind),
                   wanted = result_of(*make_onednn_conv(shape, kind), shape, kind);
      EXPECT_LT(relative_error(found, wanted), 4e-3) << name_of(kind);
    }
  }
}

TEST(Winograd, ABatchOfOneRowIsTheFirstOfABatchOfThree) {
  for (const ConvGeometry& g : {kThree, kFive}) {
    const ConvShape three{g, 3, true, DType::kF32}, one{g, 1, true, DType::kF32};
    const Tensor all = result_of(*make_winograd(three, PassKind::kForward, DType::kF32), three, PassKind::kForward),
                 first = result_of(*make_winograd(one, PassKind::kForward, DType::kF32), one, PassKind::kForward);
    EXPECT_LT(relative_error(first, all.rows(0, 1)), 1e-6);
  }
}

TEST(Winograd, ComputesNoPassThatItDoesNotSuit) {
  ConvGeometry strided = kThree, grouped = kThree, few = kThree, seven = kThree;
  strided.stride_w = 2;
  grouped.groups = 2;
  few.in_c = 4;
  seven.kernel_h = seven.kernel_w = 7;
  for (const ConvGeometry& g : {strided, grouped, few, seven})
    for (const PassKind kind : kAllKinds)
      EXPECT_EQ(make_winograd({g, 2, true, DType::kF32}, kind, DType::kF32), nullptr);
  EXPECT_EQ(make_winograd({kFive, 2, true, DType::kBF16}, PassKind::kForward, DType::kBF16), nullptr);
  EXPECT_EQ(make_winograd({kThree, 2, true, DType::kF32}, PassKind::kForward, DType::kBF16), nullptr);
}

}  // namespace
}  // namespace owt
