// Graphs of cuDNN's backend, and their computation.
//
// Simulated: convolutions (forward, data gradient, filter gradient) in two dimensions, with groups; batch normalisation
// in training; pointwise ADD, MUL, IDENTITY, RELU_FWD, RELU_BWD; reduction by ADD; f32 and bf16.
#pragma once

#include <cudnn_graph.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/simulated_gpu/elements.h"

namespace simulated_gpu {

// Extents and strides in the order N, C, H, W.
using Extents = std::array<int64_t, 4>;

struct GraphTensor {
  int64_t id = 0;
  ElementType type = ElementType::kNone;
  Extents extents{}, strides{};
  int64_t alignment = 1;  // bytes
  bool inside = false;    // virtual: without memory
  bool by_value = false;  // a number in host memory

  size_t bytes() const;
  int64_t elements() const { return extents[0] * extents[1] * extents[2] * extents[3]; }
};

struct ConvolutionSettings {
  std::array<int64_t, 2> before{}, after{}, strides{}, dilations{};  // for rows and columns; before, after: padding
  bool flipped = false;                                              // a convolution in the sense of mathematics

  bool operator==(const ConvolutionSettings&) const = default;
};

struct GraphOperation {
  cudnnBackendDescriptorType_t kind{};
  int mode = 0;                    // the mode of a pointwise operation
  std::map<int, int64_t> tensors;  // attribute to tensor
  ConvolutionSettings convolution;
  float alpha = 1, beta = 0;
  bool deterministic = false;  // a reduction must have a fixed order of additions
};

struct OperationGraph {
  std::map<int64_t, GraphTensor> tensors;
  std::vector<GraphOperation> operations;

  std::string text() const;                             // JSON
  static OperationGraph from_text(const std::string&);  // throws nlohmann::json's exceptions
  // The reason why it is not supported, like in the real library; empty if it is.
  std::string unsupported() const;
};

// How an engine computes.
struct Engine {
  int64_t index;
  std::vector<cudnnBackendNumericalNote_t> notes;
  int64_t workspace;  // bytes
  bool rounds_to_tf32, in_single_precision, changes_every_time, keeps_nan;
  bool compiled = false;  // when a plan is made; the order of additions in its reductions varies where it may
};
const Engine* engine_with(int64_t index);
// The engines that compute the graph, the best first.
const std::vector<int64_t>& engines_for(const OperationGraph& graph, cudnnBackendHeurMode_t mode);

// Memory of each tensor that is not inside the graph.
using Bindings = std::map<int64_t, void*>;
void compute(const OperationGraph& graph, const Engine& engine, const Bindings& bindings);

}  // namespace simulated_gpu
