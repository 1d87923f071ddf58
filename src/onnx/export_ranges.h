// The range of every activation of a network over training images, from which INT8 gets its scales (export_int8.h).
#pragma once

#include <map>
#include <string>

#include "src/onnx/export.h"

namespace owt {

struct ValueRange {
  float low = 0, high = 0;
};

// By the name of the layer, inner layers of composite layers included; kImageRange: the images as the network gets
// them. Computes in f32 on the CPU, one layer after the other. The images are evenly spread over the training images,
// in the centre view; there may be fewer than Calibration::images. Throws Error for data that cannot be read, and for
// outputs that are not finite.
using ActivationRanges = std::map<std::string, ValueRange>;
constexpr const char* kImageRange = "";
ActivationRanges activation_ranges(const Settings& settings, const std::string& weights, const OnnxOptions& options);

// A histogram of |x| in equal bins from 0 to `largest`, and the threshold at which a method clips.
struct Magnitudes {
  float largest = 0;
  std::vector<int64_t> counts;
};
// The magnitude that all but a fraction kClipped of the values stay below.
constexpr double kClipped = 1e-4;
float percentile_threshold(const Magnitudes& magnitudes);
// The threshold with the least Kullback-Leibler divergence of the values quantised to `levels` levels from the values
// (Migacz 2017, "8-bit Inference with TensorRT", GTC), and no lower than percentile_threshold(). Without that bound, a
// uniform background made it clip black strokes: the bin of the background has many values, so the divergence is least
// where this bin is a level of its own, however much is clipped.
float kl_threshold(const Magnitudes& magnitudes, int levels);

}  // namespace owt
