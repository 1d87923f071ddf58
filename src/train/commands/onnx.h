// A trained network as an ONNX model (onnx.ai), which onnxruntime, OpenCV, TensorRT and others run.
//
//   input  "images": N x C x H x W f32, channels R, G, B; values as the recipe's augmentation makes them, or with
//          raw_pixels the pixels 0 to 255 of the centre crop
//   output "logits": N x classes f32; or "probabilities", their softmax, or of a logistic loss the sigmoid of each
// Every layer becomes the operators that give what it gives in evaluation, its values are called like the layer, and
// its weights as in the weights file; dropout is left out. Windows that stick out of the image (round = "up") are
// written as explicit zeros around it, because readers disagree about ceil_mode. The metadata owt.mean, owt.std and
// owt.scale say what `images` wants: value = (pixel - mean) * scale / std; owt.classes names the classes, one per line,
// where that is known.
// Source: github.com/onnx/onnx, docs/IR.md and docs/Operators.md.
#pragma once

#include <string>
#include <vector>

#include "src/train/settings.h"

namespace owt {

constexpr int kFirstOpset = 11, kLastOpset = 17;

struct OnnxOptions {
  int64_t batch = 0;  // N; 0: any
  int opset = 13;     // [kFirstOpset, kLastOpset]
  bool probabilities = false;
  bool raw_pixels = false;
  std::string run_folder{}, data{};  // where the facts of the training data are (data_facts.h); empty: not said
};

// The types of layers that can be written.
std::vector<std::string> onnx_layer_types();

// Writes the model with the weights of a safetensors file. Throws Error for weights of another model, for a layer that
// no operator computes, and where this program was built without ONNX.
void export_onnx(const Settings& settings, const std::string& weights, const OnnxOptions& options,
                 const std::string& file);

}  // namespace owt
