// How one convolution is computed on the GPU: cuDNN's plans for its passes, and whether its channels are packed. Chosen
// by measurement; see plan_choice.h. For .cu files.
#pragma once

#include <optional>

#include "layers/conv.h"
#include "layers/plan_choice.h"
#include "layers/space_to_depth.h"

namespace owt {

// How x and the weights are presented to cuDNN. Others than kPlain: for convolutions of 4 channels at most, without
// groups.
enum class ConvPresentation {
  kPlain,
  kFourChannels,   // zeros fill up to 4 channels,
  kEightChannels,  // or 8
  kBlocks,         // the pixels of a block as large as the stride become channels
};

// What follows the sums of products.
struct ConvEpilogue {
  bool bias = false, relu = false;
};

// The tensors of a pass by their CudnnGraph::Id.
enum ConvTensor : CudnnGraph::Id { kConvX = 1, kConvW = 2, kConvY = 3, kConvBias = 4 };

struct ConvPlans {
  std::optional<ChannelPacking> packing;     // how x and the weights lie in forward and weight_gradient
  CudnnPlan forward;                         // kConvX, kConvW -> kConvY
  bool fused = false;                        // forward includes the epilogue, with kConvBias in the activations' type
  std::optional<CudnnPlan> weight_gradient;  // kConvX, kConvY -> kConvW; none: nobody wants it
  std::optional<CudnnPlan> data_gradient;    // kConvY, kConvW -> kConvX, never packed; none: cuDNN has no plan

  int64_t workspace_bytes() const;
};

// The fastest way. learns: with a plan for the weights' gradient, else nothing is measured for it. Throws Error where
// cuDNN has no plan.
ConvPlans choose_conv_plans(Cuda cuda, const ConvGeometry& geometry, int64_t rows, ConvEpilogue epilogue,
                            bool learns = true);
// The fastest plans of one way; none where cuDNN has no plan.
std::optional<ConvPlans> conv_plans_as(Cuda cuda, const ConvGeometry& geometry, int64_t rows, ConvEpilogue epilogue,
                                       ConvPresentation presentation, bool fused);

// bind_conv or bind_conv_relu with these plans, which must have been chosen for the same arguments.
std::unique_ptr<Op> bind_conv_with(ConvPlans plans, Cuda cuda, const ConvGeometry& geometry, int64_t rows,
                                   Param& weight, Param* bias, bool relu);

// The graphs of the passes; activations and weights are of `dtype`. The epilogue has a bias.
CudnnGraph conv_forward_graph(const ConvGeometry& geometry, int64_t rows, DType dtype);
CudnnGraph conv_fused_graph(const ConvGeometry& geometry, int64_t rows, DType dtype, ConvEpilogue epilogue);
CudnnGraph conv_weight_gradient_graph(const ConvGeometry& geometry, int64_t rows, DType dtype);
CudnnGraph conv_data_gradient_graph(const ConvGeometry& geometry, int64_t rows, DType dtype);

// An own kernel, queued on the stream. y: [positions, channels].
void queue_epilogue(ConvEpilogue epilogue, const float* bias, Tensor& y, const Stream& stream);

}  // namespace owt
