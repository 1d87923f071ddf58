#include <algorithm>
#include <filesystem>
#include <iostream>

#include "src/onnx/export.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "tools/commands.h"

namespace owt {

namespace {

Calibration calibration_option(const Options& options, int opset) {
  Calibration calibration;
  if (!options.boolean("int8")) {
    for (const std::string name : {"calibrate", "calibration"})
      if (options.given(name)) throw UsageError("--" + name + " is for --int8");
    return calibration;
  }
  if (opset < kFirstInt8Opset)
    throw UsageError(concat("--int8 needs --opset ", kFirstInt8Opset, " or higher: scales of channels are new there"));
  calibration.images = options.integer("calibrate", {.low = 1, .high = 1 << 24});
  const std::string name = options.string("calibration");
  const auto method = std::find(std::begin(kCalibrationMethods), std::end(kCalibrationMethods), name);
  if (method == std::end(kCalibrationMethods))
    throw UsageError("--calibration " + name + ": wanted minmax, percentile or kl");
  calibration.method = static_cast<CalibrationMethod>(method - std::begin(kCalibrationMethods));
  return calibration;
}

}  // namespace

int command_export(const Arguments& arguments) {
  Options options("owt export", "Writes a trained network as ONNX, for other programs.");
  declare_trained(options);
  options.option("onnx", "FILE", "the ONNX model to write");
  options.option("batch", "N", "dynamic", "images per batch; dynamic: any number");
  options.option("opset", "V", "13", concat("version of the ONNX operators, ", kFirstOpset, " to ", kLastOpset));
  options.flag("softmax", "output probabilities, not logits: the softmax, or the sigmoid for a logistic loss");
  options.flag("head", "write a last layer of type cosine too; without it the output is the embedding before it");
  options.flag("raw", "take pixels from 0 to 255: the model includes the recipe's mean and std");
  options.flag("int8",
               "8-bit integers: weights with a scale for each output channel, activations with a range from training "
               "images (QuantizeLinear and DequantizeLinear, for onnxruntime)");
  options.option("calibrate", "N", "512", "with --int8: training images that the ranges are measured on");
  options.option("calibration", "METHOD", "minmax",
                 "minmax | percentile | kl: the range of an activation: all its values; all but one in 10,000; the "
                 "range with the least Kullback-Leibler divergence, or percentile's if that is larger");
  declare_changes(options);
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  if (!options.given("onnx")) throw UsageError("--onnx FILE is missing: the ONNX file to write");
  OnnxOptions onnx;
  if (options.string("batch") != "dynamic") onnx.batch = options.integer("batch", {.low = 1, .high = 1 << 20});
  onnx.opset = static_cast<int>(options.integer("opset", {.low = kFirstOpset, .high = kLastOpset}));
  onnx.probabilities = options.boolean("softmax");
  onnx.calibration = calibration_option(options, onnx.opset);
  onnx.head = options.boolean("head");
  onnx.raw_pixels = options.boolean("raw");
  const std::string weights = trained_weights(options);
  onnx.run_folder = run_of_facts(options, weights);
  const Settings settings = shared_settings(options);
  onnx.data = given_data(options, settings);
  const std::string file = options.string("onnx");
  check_output(file);
  export_onnx(settings, weights, onnx, file);
  std::cout << format("{}: {:.2f} MB, opset {}{}; takes {}\n", file,
                      static_cast<double>(std::filesystem::file_size(file)) / 1e6, onnx.opset,
                      onnx.calibration.images > 0 ? ", INT8" : "",
                      onnx.raw_pixels ? "pixels from 0 to 255" : "images normalised as in training");
  return 0;
}

}  // namespace owt
