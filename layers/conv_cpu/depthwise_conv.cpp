#include "layers/conv_cpu/depthwise_conv.h"

#include "layers/conv_cpu/depthwise_tiles.h"

namespace owt {
namespace depthwise {

Blocks::Blocks(int64_t channels) {
  const auto add = [&](int64_t first, int vectors, int64_t known) {
    all.push_back({first, vectors, std::min<int64_t>(kLanes, channels), lanes, known});
    lanes += vectors * kLanes;
  };
  int64_t first = 0;
  for (; channels - first >= 2 * kLanes; first += 2 * kLanes) add(first, 2, 0);
  doubled = all.size();
  for (; channels - first >= kLanes; first += kLanes) add(first, 1, 0);
  const int64_t last = std::max<int64_t>(0, channels - kLanes);
  if (first < channels) add(last, 1, first - last);
}

}  // namespace depthwise

std::unique_ptr<ConvPass> make_depthwise_conv(const ConvShape& shape, PassKind kind) {
  const ConvGeometry& g = shape.geometry;
  if (g.in_c != g.groups || g.out_c != g.groups) return nullptr;
  if (kind == PassKind::kBackwardWeights) return depthwise::make_backward_weights(shape);
  return depthwise::make_convolution(shape, kind);
}

}  // namespace owt
