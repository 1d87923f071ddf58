#include "layers/gpu/cudnn_graph.h"

#include <array>

#include "src/system/check.h"

namespace owt {
namespace {

constexpr auto kReductionIsDeterministic = static_cast<cudnnBackendAttributeName_t>(1602);  // since cuDNN 9.11

}  // namespace

CudnnGraph::Id CudnnGraph::image(DType dtype, const Shape& nhwc) { return tensor(dtype, nhwc, false, false); }

CudnnGraph::Id CudnnGraph::number() { return tensor(DType::kF32, {1, 1, 1, 1}, false, true); }

CudnnGraph::Id CudnnGraph::between(const Shape& nhwc) { return tensor(DType::kF32, nhwc, true, false); }

CudnnGraph::Id CudnnGraph::tensor(DType dtype, const Shape& nhwc, bool inside, bool on_host) {
  OWT_CHECK_EQ(nhwc.rank(), 4);
  const auto id = static_cast<Id>(tensors_.size() + 1);
  const int64_t h = nhwc[1], w = nhwc[2], c = nhwc[3];
  const std::array<int64_t, 4> extents{nhwc[0], c, h, w}, strides{h * w * c, 1, w * c, c};
  CudnnDescriptor& descriptor = tensors_.emplace_back(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  descriptor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, cudnn_type(dtype));
  descriptor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, extents);
  descriptor.set(CUDNN_ATTR_TENSOR_STRIDES, strides);
  descriptor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{16});
  if (inside) descriptor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
  if (on_host) descriptor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
  descriptor.finalize();
  if (!inside) outside_.push_back({id, nhwc.elements() * size_of(dtype), on_host});
  text_ += concat(id, " = ", inside ? "inside " : on_host ? "number " : "", name_of(dtype), " ", nhwc, "\n");
  return id;
}

CudnnDescriptor& CudnnGraph::operation(const char* name, cudnnBackendDescriptorType_t type,
                                       const std::vector<std::pair<cudnnBackendAttributeName_t, Id>>& tensors) {
  CudnnDescriptor& operation = operations_.emplace_back(type);
  text_ += name;
  for (const auto& [attribute, id] : tensors) {
    operation.set(attribute, at(id));
    text_ += concat(" ", id);
  }
  text_ += "\n";
  return operation;
}

void CudnnGraph::convolve(const char* name, cudnnBackendDescriptorType_t type, const ConvGeometry& g,
                          const std::vector<std::pair<cudnnBackendAttributeName_t, Id>>& tensors,
                          cudnnBackendAttributeName_t settings_name, cudnnBackendAttributeName_t alpha,
                          cudnnBackendAttributeName_t beta) {
  const std::array<int64_t, 2> strides{g.stride_h, g.stride_w}, before{g.top, g.left}, after{g.bottom, g.right},
      dilations{g.dilation_h, g.dilation_w};
  CudnnDescriptor& settings = settings_.emplace_back(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  settings.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  settings.set_enum(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
  settings.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{2});
  settings.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, strides);
  settings.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, before);
  settings.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, after);
  settings.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, dilations);
  settings.finalize();
  text_ +=
      concat("stride ", g.stride_h, "x", g.stride_w, " pad ", g.top, "-", g.bottom, "x", g.left, "-", g.right, " ");
  if (g.dilated()) text_ += concat("dilation ", g.dilation_h, "x", g.dilation_w, " ");
  CudnnDescriptor& conv = operation(name, type, tensors);
  conv.set(settings_name, settings);
  conv.set(alpha, 1.0f);
  conv.set(beta, 0.0f);
  conv.finalize();
}

void CudnnGraph::conv_forward(const ConvGeometry& geometry, Id x, Id w, Id y) {
  convolve("conv_forward", CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, geometry,
           {{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x},
            {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w},
            {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y}},
           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA);
}

void CudnnGraph::conv_data_gradient(const ConvGeometry& geometry, Id dy, Id w, Id dx) {
  convolve("conv_data_gradient", CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, geometry,
           {{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, dy},
            {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, w},
            {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, dx}},
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA);
}

void CudnnGraph::conv_weight_gradient(const ConvGeometry& geometry, Id x, Id dy, Id dw) {
  convolve("conv_weight_gradient", CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, geometry,
           {{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, x},
            {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, dy},
            {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, dw}},
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA);
}

void CudnnGraph::pointwise(const char* name, cudnnPointwiseMode_t mode,
                           const std::vector<std::pair<cudnnBackendAttributeName_t, Id>>& tensors) {
  CudnnDescriptor& settings = settings_.emplace_back(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  settings.set_enum(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  settings.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  settings.finalize();
  CudnnDescriptor& applied = operation(name, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, tensors);
  applied.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, settings);
  applied.finalize();
}

void CudnnGraph::add(Id a, Id b, Id y) {
  pointwise("add", CUDNN_POINTWISE_ADD,
            {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, a},
             {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b},
             {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}});
}

void CudnnGraph::relu(Id x, Id y) {
  pointwise("relu", CUDNN_POINTWISE_RELU_FWD,
            {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x}, {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}});
}

void CudnnGraph::relu_backward(Id y, Id dy, Id dx) {
  pointwise("relu_backward", CUDNN_POINTWISE_RELU_BWD,
            {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, y},
             {CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy},
             {CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dx}});
}

void CudnnGraph::sum_channels(Id x, Id sums, bool deterministic) {
  CudnnDescriptor& settings = settings_.emplace_back(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  settings.set_enum(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, CUDNN_REDUCE_TENSOR_ADD);
  settings.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  if (deterministic) settings.set(kReductionIsDeterministic, true);
  settings.finalize();
  text_ += deterministic ? "deterministic " : "";
  CudnnDescriptor& sum =
      operation("sum_channels", CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
                {{CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x}, {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, sums}});
  sum.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, settings);
  sum.finalize();
}

void CudnnGraph::norm_forward(Id x, Id scale, Id bias, Id epsilon, Id mean, Id inverse_std, Id y) {
  CudnnDescriptor& norm = operation("norm_forward", CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR,
                                    {{CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, x},
                                     {CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, scale},
                                     {CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, bias},
                                     {CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, epsilon},
                                     {CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, mean},
                                     {CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, inverse_std},
                                     {CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, y}});
  norm.set_enum(CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, CUDNN_BATCH_NORM);
  norm.set_enum(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, CUDNN_NORM_FWD_TRAINING);
  norm.finalize();
}

void CudnnGraph::norm_backward(Id x, Id dy, Id scale, Id mean, Id inverse_std, Id dscale, Id dbias, Id dx) {
  CudnnDescriptor& norm = operation("norm_backward", CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR,
                                    {{CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, x},
                                     {CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, dy},
                                     {CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, scale},
                                     {CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, mean},
                                     {CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, inverse_std},
                                     {CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, dscale},
                                     {CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, dbias},
                                     {CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, dx}});
  norm.set_enum(CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, CUDNN_BATCH_NORM);
  norm.finalize();
}

std::vector<const CudnnDescriptor*> CudnnGraph::operations() const {
  std::vector<const CudnnDescriptor*> all;
  for (const CudnnDescriptor& operation : operations_) all.push_back(&operation);
  return all;
}

}  // namespace owt
