// Layers as the operators of ONNX that compute what they give in evaluation.
#pragma once

#include "src/net/net.h"
#include "src/train/commands/onnx_graph.h"

namespace owt {

// Adds all layers; returns what the last one gives. Throws Error for a layer that no operator computes.
OnnxValue add_layers(OnnxGraph& graph, const Net& net, OnnxValue x);

}  // namespace owt
