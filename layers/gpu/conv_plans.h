// The GPU implementation of one convolution: cuDNN plans or our own kernels for its passes, and whether its channels
// are packed. Chosen by measurement (plan_choice.h). For .cu files.
#pragma once

#include <optional>

#include "layers/base/geometry.h"
#include "layers/base/layer.h"
#include "layers/gpu/plan_choice.h"
#include "layers/gpu/small_conv.h"
#include "layers/gpu/small_conv_weights.h"
#include "layers/gpu/space_to_depth.h"

namespace owt {

// The form in which x and the weights are passed to cuDNN. Our own kernels get x in that form, and the layer's weights.
// Forms other than kPlain require at most 4 channels and no groups.
enum class ConvPresentation {
  kPlain,
  kFourChannels,   // padded with zeros to 4 channels
  kEightChannels,  // padded with zeros to 8 channels
  kBlocks,         // the pixels of a block, which is as large as the stride, become channels
};

// Operations after the convolution.
struct ConvEpilogue {
  bool bias = false, relu = false;
};

// Tensor ids of a pass in its CudnnGraph.
enum ConvTensor : CudnnGraph::Id { kConvX = 1, kConvW = 2, kConvY = 3, kConvBias = 4 };

struct ConvPlans {
  std::optional<ChannelPacking> packing;     // layout of x and the weights in forward and weight_gradient
  std::optional<CudnnPlan> forward;          // kConvX, kConvW -> kConvY; none: own_forward
  bool fused = false;                        // forward includes the epilogue; kConvBias has the activations' type
  std::optional<CudnnPlan> weight_gradient;  // kConvX, kConvY -> kConvW; none: own_weight_gradient, or not needed
  // kConvY, kConvW -> kConvX, never packed; none: own_data_gradient, or there is no plan
  std::optional<CudnnPlan> data_gradient;
  std::optional<SmallConv> own_forward;  // includes the epilogue
  std::optional<SmallConv> own_data_gradient;
  std::optional<SmallConvWeights> own_weight_gradient;  // adds to the layer's gradient itself

  int64_t workspace_bytes() const;
};

// Chooses the fastest plans. learns: whether a plan for the weight gradient is needed; if not, none is measured. Throws
// Error if there is neither a plan nor a kernel.
ConvPlans choose_conv_plans(Cuda cuda, const ConvGeometry& geometry, int64_t rows, ConvEpilogue epilogue,
                            bool learns = true);
// cuDNN's fastest plans for one presentation; none if it has no plan.
std::optional<ConvPlans> conv_plans_as(Cuda cuda, const ConvGeometry& geometry, int64_t rows, ConvEpilogue epilogue,
                                       ConvPresentation presentation, bool fused);

// bind_conv or bind_conv_relu with given plans, which must have been chosen for the same arguments.
std::unique_ptr<Op> bind_conv_with(ConvPlans plans, Cuda cuda, const ConvGeometry& geometry, int64_t rows,
                                   Param& weight, Param* bias, bool relu);

// The graphs of the passes, with activations and weights of `dtype`. The epilogue must have a bias.
CudnnGraph conv_forward_graph(const ConvGeometry& geometry, int64_t rows, DType dtype);
CudnnGraph conv_fused_graph(const ConvGeometry& geometry, int64_t rows, DType dtype, ConvEpilogue epilogue);
CudnnGraph conv_weight_gradient_graph(const ConvGeometry& geometry, int64_t rows, DType dtype);
CudnnGraph conv_data_gradient_graph(const ConvGeometry& geometry, int64_t rows, DType dtype);

// Queues our own epilogue kernel on the stream. y: [positions, channels].
void queue_epilogue(ConvEpilogue epilogue, const float* bias, Tensor& y, const Stream& stream);

}  // namespace owt
