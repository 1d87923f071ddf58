// Converts an ONNX graph to INT8: pairs of QuantizeLinear and DequantizeLinear (QDQ), which readers fuse with the
// operators between them.
//   weights of Conv and Gemm: int8, one scale for each output channel, zero point 0; their biases: int32, with the
//   product of the scales of input and weight
//   activations: uint8 with a zero point, one scale for each tensor; processors multiply uint8 by int8
// Conv, Gemm, sums of two activations, and the pools, concatenations and relus between them are quantised. Other
// operators stay f32, as does a Gemm's output that none of these reads: logits. A value that is quantised keeps its
// name after the pair.
// Source: Jacob et al. 2018 (arXiv:1712.05877); onnxruntime, "Quantize ONNX models".
#pragma once

#include <map>
#include <string>

#include "src/onnx/export_graph.h"
#include "src/onnx/export_ranges.h"

namespace owt {

// ranges: of values by their names in the graph. A value without one is not quantised unless it has the values of
// another.
void convert_to_int8(onnx::GraphProto& graph, OnnxGraph& names, std::map<std::string, ValueRange> ranges);

}  // namespace owt
