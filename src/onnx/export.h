// A trained network as an ONNX model (onnx.ai), for onnxruntime, OpenCV, TensorRT and others.
//
//   input  "images": N x C x H x W f32, channels R, G, B, or one of grey; values after the recipe's augmentation, or
//          with raw_pixels the pixels 0 to 255 of the centre crop
//   output "logits": N x classes f32; or "probabilities", their softmax, or the sigmoid of each for a logistic loss.
//          A net that ends in a cosine layer is written without it, with the output "embedding": N x F f32, the layer's
//          input; with head or probabilities it is whole, and its logits are cosines times the scale of the margin.
// Every layer becomes operators that compute its evaluation output. Values are named after the layer, and weights as in
// the weights file; dropout and drop_path are left out. A batch normalisation is folded into the convolution or dense
// layer before it, also across a max pool if no factor is negative. If windows extend beyond the image (round = "up"),
// explicit zeros are written around it, because readers disagree about ceil_mode. The metadata owt.mean, owt.std and
// owt.scale describe `images`: value = (pixel - mean) * scale / std. owt.classes has the names of the classes, one per
// line, if they are known. export_int8.h says what changes for INT8. If the weights do not fit into the file, its large
// tensors are in a second file, FILE.data.
// Source: github.com/onnx/onnx, docs/IR.md, docs/Operators.md and docs/ExternalData.md.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "src/recipe/settings.h"

namespace owt {

constexpr int kFirstOpset = 11, kLastOpset = 17;
constexpr int kFirstInt8Opset = 13;  // the first with scales of channels

// How the range of an activation follows from its values on the calibration images. Values beyond it are clipped.
//   minmax      all values
//   percentile  all but one in 10,000
//   kl          the range with the least Kullback-Leibler divergence of the quantised values, or percentile's if
//               that is larger (export_ranges.h)
enum class CalibrationMethod { kMinMax, kPercentile, kKl };
constexpr const char* kCalibrationMethods[] = {"minmax", "percentile", "kl"};

struct Calibration {
  int64_t images = 0;  // training images that are looked at; 0: the model stays f32
  CalibrationMethod method = CalibrationMethod::kMinMax;
};

struct OnnxOptions {
  int64_t batch = 0;  // N; 0: any
  int opset = 13;     // [kFirstOpset, kLastOpset]
  bool probabilities = false;
  bool head = false;  // see above
  bool raw_pixels = false;
  // Parameters of more bytes go into FILE.data. An ONNX file holds 2 GB, with the graph and what the layers add.
  int64_t most_bytes = std::numeric_limits<int>::max() - (int64_t{64} << 20);
  Calibration calibration{};         // for INT8
  std::string run_folder{}, data{};  // sources of the facts of the training data (data_facts.h); empty: not given
};

// The types of layers that can be written.
std::vector<std::string> onnx_layer_types();

// Writes the model with the weights of a safetensors file. Throws Error for weights of another model, for a layer
// without an operator, and if this program was built without ONNX.
void export_onnx(const Settings& settings, const std::string& weights, const OnnxOptions& options,
                 const std::string& file);

}  // namespace owt
