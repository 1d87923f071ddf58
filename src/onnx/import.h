// An ONNX model (onnx.ai) of a classifier of images as a model file and a weights file.
//
//   graph:  one input, N x C x H x W, f32; its first output, or a named one, has a value for each class.
//   blocks: values that are used twice and meet again become blocks: Add is `residual`, Concat `branches`, and Mul of a
//           value with one computed from it `scale`. Blocks may be nested. A graph that is not made of nested blocks is
//           refused.
//   layers: chains of operators such as x * sigmoid(x) become one layer. A batch normalisation stays one, so it can be
//           trained. A constant factor per channel becomes a convolution of kernel 1 with as many groups as channels.
// Layers are numbered by their kind: conv1, norm1, block1.conv2.
// Errors: an operator that no layer computes, named with its node; shapes that are not known; damaged files.
// Source: github.com/onnx/onnx, docs/IR.md and docs/Operators.md.
#pragma once

#include <cstdint>
#include <string>

namespace owt {

struct ImportOptions {
  std::string onnx;               // the file to read
  std::string model, weights;     // the files to write: TOML, safetensors
  std::string output{};           // a value of the graph; empty: its first output
  int64_t height = 0, width = 0;  // size of the images; 0: as the file says
};

struct ImportOutcome {
  int64_t nodes = 0, layers = 0, values = 0;  // layers: inner ones too; values: of all weights
};

// Writes both files, or none. Throws Error as above, and if this program was built without ONNX.
ImportOutcome import_onnx(const ImportOptions& options);

}  // namespace owt
