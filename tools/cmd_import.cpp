#include <filesystem>
#include <iostream>

#include "src/onnx/import.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "tools/commands.h"

namespace owt {
namespace {

// "224x224" or "224".
void read_size(const Options& options, ImportOptions& import) {
  const std::string text = options.string("size");
  const size_t cross = text.find('x');
  const auto side = [&](const std::string& digits) -> int64_t {
    if (digits.empty() || digits.size() > 5 || digits.find_first_not_of("0123456789") != std::string::npos ||
        std::stoll(digits) < 1)
      throw UsageError(concat("--size is '", text, "', wanted a height and a width, such as 224x224"));
    return std::stoll(digits);
  };
  import.height = side(text.substr(0, cross));
  import.width = cross == std::string::npos ? import.height : side(text.substr(cross + 1));
}

}  // namespace

int command_import(const Arguments& arguments) {
  Options options("owt import",
                  "Makes a model file and a weights file of a network of another program, saved as ONNX: a classifier "
                  "of images that is made of convolutions, pools, dense layers, and blocks of them. "
                  "tools/torch_to_onnx.py saves networks of torchvision and timm.");
  options.positional("FILE", "the ONNX file");
  options.option("out", "MODEL", "model file to write (default: FILE with the ending .toml, in the current folder)");
  options.option("weights", "W", "safetensors file to write (default: MODEL with the ending .safetensors)");
  options.option("size", "HxW", "height and width of the images, if FILE does not say them");
  options.option("output", "NAME", "the value of the graph that is the network's output (default: the first output)");
  options.flag("force", "overwrite existing files");
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  const auto with_ending = [](std::filesystem::path path, const char* ending) {
    return path.replace_extension(ending).string();
  };
  ImportOptions import;
  import.onnx = options.string("FILE");
  import.model = options.given("out") ? options.string("out")
                                      : with_ending(std::filesystem::path(import.onnx).filename(), ".toml");
  import.weights = options.given("weights") ? options.string("weights") : with_ending(import.model, ".safetensors");
  if (options.given("size")) read_size(options, import);
  if (options.given("output")) import.output = options.string("output");
  if (std::filesystem::weakly_canonical(std::filesystem::absolute(import.model)) ==
      std::filesystem::weakly_canonical(std::filesystem::absolute(import.weights)))
    throw UsageError(
        concat("the model and the weights would be one file, ", import.model, "; name another with --out"));
  for (const std::string& file : {import.model, import.weights}) {
    if (std::filesystem::exists(file) && !options.boolean("force"))
      fail(file, " exists; name another file, or add --force to overwrite it");
    check_output(file);
  }
  const ImportOutcome outcome = import_onnx(import);
  std::cout << format("{}: {} layers from {} nodes; {}: {:.2f} M values\n", import.model, outcome.layers, outcome.nodes,
                      import.weights, static_cast<double>(outcome.values) / 1e6);
  std::cout << format("owt inspect {} shows the layers; a recipe with model = \"{}\" trains it from --weights {}\n",
                      import.model, import.model, import.weights);
  return 0;
}

}  // namespace owt
