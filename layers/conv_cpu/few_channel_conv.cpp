#include "layers/conv_cpu/few_channel_conv.h"

#include "layers/conv_cpu/few_channel_runs.h"
#include "src/system/cpu_level.h"

namespace owt {
namespace few_channel {

Runs::Runs(const ConvGeometry& geometry)
    : g(geometry),
      length(g.kernel_w * g.in_c),
      stride(g.stride_w * g.in_c),
      row((g.out_w - 1) * stride + length),
      zeros(std::min(g.left * g.in_c, row)),
      copied(std::min(g.in_w * g.in_c, row - zeros)),
      lanes(quotient_up(g.out_c, kLanes) * kLanes) {
  in_parts(lanes / kLanes, kMostVectors, [&](int64_t first, int vectors) {
    blocks.push_back({first * kLanes, vectors, std::min<int64_t>(vectors * kLanes, g.out_c - first * kLanes)});
  });
}

}  // namespace few_channel

std::unique_ptr<ConvPass> make_few_channel_conv(const ConvShape& shape, PassKind kind) {
  const bool has_products = shape.images == DType::kF32 || (kHasProducts<Bf16> && cpu_level() >= CpuLevel::kBf16);
  if (!has_products || shape.geometry.groups > 1 || shape.geometry.in_c > 4) return nullptr;
  switch (kind) {
    case PassKind::kForward:
      return few_channel::make_forward(shape);
    case PassKind::kBackwardWeights:
      return few_channel::make_backward_weights(shape);
    default:
      return nullptr;
  }
}

}  // namespace owt
