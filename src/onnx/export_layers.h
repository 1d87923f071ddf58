// Converts layers to the ONNX operators that compute their evaluation outputs.
#pragma once

#include "src/net/net.h"
#include "src/onnx/export_graph.h"

namespace owt {

// Adds all layers; returns the output of the last. Throws Error for a layer without an operator.
OnnxValue add_layers(OnnxGraph& graph, const Net& net, OnnxValue x);

}  // namespace owt
