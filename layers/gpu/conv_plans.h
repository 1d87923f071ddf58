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
// kConvSeen is x where kConvX is its gradient.
enum ConvTensor : CudnnGraph::Id { kConvX = 1, kConvW = 2, kConvY = 3, kConvBias = 4, kConvSeen = 5 };

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

// A plan for the gradient of x together with the work that the op before hands over (layers/base/masking_op.h): dx is
// set to 0 where x is not positive, and kConvBias (f32) is overwritten with the sum of dx over all positions. kConvY,
// kConvW, kConvSeen -> kConvX, kConvBias. The products are summed in f32, masked, and rounded to the type of dx. Each
// sum is an f32 sum of these values before or after they are rounded. So it may differ from the sum of dx by half a
// unit in the last place of each element. None unless the plan was measured to be faster than the separate passes.
std::optional<CudnnPlan> choose_masked_data_gradient(Cuda cuda, const ConvGeometry& geometry, int64_t rows);
// Refuses plans of that graph that hide a NaN or add to the content of kConvBias. If deterministic, it also refuses
// plans whose sums differ from run to run.
PlanCheck masked_data_gradient_check(const ConvGeometry& geometry, int64_t rows, DType dtype, bool deterministic,
                                     const Stream& stream);

// bind_conv or bind_conv_relu with given plans, which must have been chosen for the same arguments.
std::unique_ptr<Op> bind_conv_with(ConvPlans plans, Cuda cuda, const ConvGeometry& geometry, int64_t rows,
                                   Param& weight, Param* bias, bool relu);

// The graphs of the passes, with activations and weights of `dtype`. The epilogue must have a bias.
CudnnGraph conv_forward_graph(const ConvGeometry& geometry, int64_t rows, DType dtype);
CudnnGraph conv_fused_graph(const ConvGeometry& geometry, int64_t rows, DType dtype, ConvEpilogue epilogue);
CudnnGraph conv_weight_gradient_graph(const ConvGeometry& geometry, int64_t rows, DType dtype);
CudnnGraph conv_data_gradient_graph(const ConvGeometry& geometry, int64_t rows, DType dtype);
CudnnGraph conv_masked_data_gradient_graph(const ConvGeometry& geometry, int64_t rows, DType dtype, bool deterministic);

// Queues our own epilogue kernel on the stream. y: [positions, channels].
void queue_epilogue(ConvEpilogue epilogue, const float* bias, Tensor& y, const Stream& stream);

}  // namespace owt
