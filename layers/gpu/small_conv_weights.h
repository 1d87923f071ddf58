// The gradient of the weights of a convolution of few channels in bf16, by a kernel of our own on tensor cores. For .cu
// files.
//
// A block sums the products of some images for one row of the kernel. The blocks' sums are added in an order that
// depends only on the geometry and the rows, by the last blocks to arrive. Requires what small_conv.h requires, but
// shared memory for two tiles of images.
#pragma once

#include <cstdint>
#include <optional>

#include "layers/base/geometry.h"
#include "layers/base/param.h"
#include "src/core/stream.h"
#include "src/core/tensor.h"

namespace owt {

// A convolution as the kernel sees it. The weights in memory are [out_c, kernel_h, kernel_w, weight_ins].
struct SmallConvWeightsShape {
  int in_h, in_w, in_c;     // x: [rows, in_h, in_w, in_c]
  int out_h, out_w, out_c;  // dy: [rows, out_h, out_w, out_c]
  int kernel_h, kernel_w, top, left, weight_ins;
  int depth;                          // channels of a pixel in shared memory: the channels of x, then zeros
  int pixel;                          // elements from one pixel of x to the next in shared memory
  int tile_rows, tiles;               // rows of dy that a block takes at a time, and how often that is in an image
  int items, items_of_block;          // tiles of all images, and of each block but the last
  int parts;                          // a block has as many parts of sums; warps with the same part share its terms
  int groups, groups_of_team, teams;  // the sums of groups of tiles are added team by team
};

class SmallConvWeights {
 public:
  // For `rows` images on the calling host thread's GPU; none if the kernel does not support the convolution.
  // x_channels: of x in memory; those after geometry.in_c are zeros.
  static std::optional<SmallConvWeights> gradient(const ConvGeometry& geometry, int64_t x_channels, int64_t rows,
                                                  DType dtype);

  int64_t workspace_bytes() const;
  // Queues grad = beta * grad + the gradient; beta 0 does not read grad, which is f32 or bf16 in the layer's order. x
  // and dy are aligned to 16 bytes. workspace: workspace_bytes() bytes for exclusive use.
  void queue(const void* x, const void* dy, float beta, Tensor& grad, void* workspace, const Stream& stream) const;

 private:
  explicit SmallConvWeights(const SmallConvWeightsShape& shape) : shape_(shape) {}
  void choose_parts();
  int64_t shared_bytes() const;
  int64_t columns() const;  // the blocks of a column add their sums

  SmallConvWeightsShape shape_;
  int products_ = 5;  // 16 x 8 x 16, side by side in the part of a warp
  Tensor arrived_;    // counters of blocks: of each team, then of teams, for each column (last_block.cuh)
};

}  // namespace owt
