#include <iostream>

#include "src/core/log.h"
#include "src/train/onnx.h"
#include "tools/commands.h"

namespace owt {

int command_export(const Arguments& arguments) {
  Options options("owt export", "Writes a trained network for other programs.");
  options.positional("CONFIG", "the recipe, a TOML file (a run folder's config.toml will do)");
  options.option("weights", "FILE", "safetensors file with the model's weights");
  options.option("onnx", "FILE", "the ONNX model to write");
  options.option("batch", "N", "dynamic", "images at a time; dynamic: as many as the reader likes");
  options.option("opset", "V", "13", concat("version of the operators, ", kFirstOpset, " to ", kLastOpset));
  options.flag("softmax", "give probabilities, not logits");
  options.flag("raw", "take pixels 0 to 255: the recipe's mean and std become part of the model");
  options.option("data", "DIR",
                 "the data set, where --raw needs the means of its images (default: the recipe's data.dir, else "
                 "$OWT_DATA, else ./datasets)");
  declare_shared(options);
  declare_strategy(options);
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  for (const char* needed : {"weights", "onnx"})
    if (!options.given(needed)) throw UsageError(concat("owt export: --", needed, " FILE is missing"));
  OnnxOptions onnx;
  if (options.string("batch") != "dynamic") onnx.batch = options.integer("batch", {.low = 1, .high = 1 << 20});
  onnx.opset = static_cast<int>(options.integer("opset", {.low = kFirstOpset, .high = kLastOpset}));
  onnx.softmax = options.boolean("softmax");
  onnx.raw_pixels = options.boolean("raw");
  if (options.given("data")) onnx.data = options.string("data");
  export_onnx(shared_settings(options), options.string("weights"), onnx, options.string("onnx"));
  return 0;
}

}  // namespace owt
