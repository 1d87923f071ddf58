// The attributes of cuDNN's backend descriptors, with their types.
#include "tests/simulated_gpu/dnn_descriptors.h"

namespace simulated_gpu {

size_t element_bytes(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_CHAR:
    case CUDNN_TYPE_BOOLEAN:
      return 1;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
      return 8;
    case CUDNN_TYPE_FLOAT:
    case CUDNN_TYPE_INT32:
    case CUDNN_TYPE_DATA_TYPE:
    case CUDNN_TYPE_CONVOLUTION_MODE:
    case CUDNN_TYPE_HEUR_MODE:
    case CUDNN_TYPE_NUMERICAL_NOTE:
    case CUDNN_TYPE_BEHAVIOR_NOTE:
    case CUDNN_TYPE_POINTWISE_MODE:
    case CUDNN_TYPE_REDUCTION_OPERATOR_TYPE:
    case CUDNN_TYPE_NAN_PROPOGATION:
    case CUDNN_TYPE_NORM_MODE:
    case CUDNN_TYPE_NORM_FWD_PHASE:
      return 4;
    default:
      return 0;
  }
}

const std::vector<AttributeRule>& attribute_rules() {
  constexpr bool kRequired = true, kOptional = false;
  constexpr auto kDescriptor = CUDNN_TYPE_BACKEND_DESCRIPTOR;
  constexpr auto kTensor = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
  constexpr auto kConvolution = CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR;
  constexpr auto kForward = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
  constexpr auto kData = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
  constexpr auto kFilter = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
  constexpr auto kPointwise = CUDNN_BACKEND_POINTWISE_DESCRIPTOR;
  constexpr auto kApply = CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR;
  constexpr auto kReduction = CUDNN_BACKEND_REDUCTION_DESCRIPTOR;
  constexpr auto kReduce = CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR;
  constexpr auto kNorm = CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR;
  constexpr auto kNormBackward = CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR;
  constexpr auto kGraph = CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR;
  constexpr auto kHeuristics = CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR;
  constexpr auto kEngine = CUDNN_BACKEND_ENGINE_DESCRIPTOR;
  constexpr auto kConfiguration = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
  constexpr auto kPlan = CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR;
  constexpr auto kPack = CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR;
  constexpr auto kDevice = CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR;
  static const std::vector<AttributeRule> rules{
      {kTensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, kRequired},
      {kTensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, kRequired},
      {kTensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, kRequired},
      {kTensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, kRequired},
      {kTensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, kRequired},
      {kTensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, kOptional},
      {kTensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, kOptional},
      {kConvolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, kRequired},
      {kConvolution, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, kRequired},
      {kConvolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, kRequired},
      {kConvolution, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, kRequired},
      {kConvolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, kRequired},
      {kConvolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, kRequired},
      {kConvolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, kRequired},
      {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, kDescriptor, kRequired},
      {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, kDescriptor, kRequired},
      {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, kDescriptor, kRequired},
      {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, kDescriptor, kRequired},
      {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, kRequired},
      {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, kRequired},
      {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, kDescriptor, kRequired},
      {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, kDescriptor, kRequired},
      {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, kDescriptor, kRequired},
      {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, kDescriptor, kRequired},
      {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_TYPE_FLOAT, kRequired},
      {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_FLOAT, kRequired},
      {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, kDescriptor, kRequired},
      {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, kDescriptor, kRequired},
      {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, kDescriptor, kRequired},
      {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, kDescriptor, kRequired},
      {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_TYPE_FLOAT, kRequired},
      {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_TYPE_FLOAT, kRequired},
      {kPointwise, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, kRequired},
      {kPointwise, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, kRequired},
      {kPointwise, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, CUDNN_TYPE_DOUBLE, kOptional},
      {kPointwise, static_cast<cudnnBackendAttributeName_t>(2), CUDNN_TYPE_NAN_PROPOGATION, kOptional},
      {kApply, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kDescriptor, kRequired},
      {kApply, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, kDescriptor, kRequired},
      {kApply, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, kDescriptor, kOptional},
      {kApply, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, kDescriptor, kOptional},
      {kApply, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, kDescriptor, kOptional},
      {kApply, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, kDescriptor, kOptional},
      {kReduction, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, kRequired},
      {kReduction, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, kRequired},
      {kReduction, static_cast<cudnnBackendAttributeName_t>(kReductionIsDeterministic), CUDNN_TYPE_BOOLEAN, kOptional},
      {kReduce, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kDescriptor, kRequired},
      {kReduce, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, kDescriptor, kRequired},
      {kReduce, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, kDescriptor, kRequired},
      {kNorm, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, kRequired},
      {kNorm, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, kRequired},
      {kNorm, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, kDescriptor, kRequired},
      {kNorm, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, kDescriptor, kRequired},
      {kNorm, CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, kDescriptor, kRequired},
      {kNorm, CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, kDescriptor, kRequired},
      {kNorm, CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, kDescriptor, kRequired},
      {kNorm, CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, kDescriptor, kOptional},
      {kNorm, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, kDescriptor, kOptional},
      {kNorm, CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC, kDescriptor, kOptional},
      {kNorm, CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC, kDescriptor, kOptional},
      {kNorm, CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC, kDescriptor, kOptional},
      {kNorm, CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC, kDescriptor, kOptional},
      {kNorm, CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC, kDescriptor, kOptional},
      {kNormBackward, CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, kRequired},
      {kNormBackward, CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, kDescriptor, kRequired},
      {kNormBackward, CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, kDescriptor, kRequired},
      {kNormBackward, CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, kDescriptor, kRequired},
      {kNormBackward, CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, kDescriptor, kRequired},
      {kNormBackward, CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, kDescriptor, kRequired},
      {kNormBackward, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, kDescriptor, kRequired},
      {kNormBackward, CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, kDescriptor, kRequired},
      {kNormBackward, CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, kDescriptor, kRequired},
      {kGraph, static_cast<cudnnBackendAttributeName_t>(800), CUDNN_TYPE_HANDLE, kOptional},
      {kGraph, CUDNN_ATTR_OPERATIONGRAPH_OPS, kDescriptor, kRequired},
      {kHeuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, kDescriptor, kRequired},
      {kHeuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, kRequired},
      {kHeuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, kDescriptor, kOptional},
      {kHeuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, kDescriptor, kOptional},
      {kEngine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, kDescriptor, kRequired},
      {kEngine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, kRequired},
      {kEngine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, kOptional},
      {kEngine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, kOptional},
      {kConfiguration, CUDNN_ATTR_ENGINECFG_ENGINE, kDescriptor, kRequired},
      {kConfiguration, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, kOptional},
      {kPlan, static_cast<cudnnBackendAttributeName_t>(400), CUDNN_TYPE_HANDLE, kOptional},
      {kPlan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, kDescriptor, kOptional},
      {kPlan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, kDescriptor, kOptional},
      {kPlan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, kOptional},
      {kPlan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, kOptional},
      {kPack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, kRequired},
      {kPack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, kRequired},
      {kPack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, kOptional},
      {kDevice, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, kOptional},
      {kDevice, CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, kOptional},
      {kDevice, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, kOptional},
  };
  return rules;
}

}  // namespace simulated_gpu
