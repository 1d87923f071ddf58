#include "src/onnx/import.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>

#include "src/files/safetensors.h"
#include "src/net/model.h"
#include "src/onnx/import_layers.h"
#include "src/system/check.h"
#include "src/system/files.h"
#include "src/system/log.h"

namespace owt {
namespace {

constexpr int64_t kMostSide = 1 << 16;  // height and width of an image

std::string wanted_output(const OnnxSource& source, const ImportOptions& options) {
  std::string name = options.output;
  if (name.empty() && source.graph().output_size() > 0) name = source.graph().output(0).name();
  if (!source.maker(name)) fail(options.onnx, ": no node computes the value '", name, "'");
  return name;
}

// One image: H x W x C.
Shape input_shape(const OnnxSource& source, const ImportOptions& options) {
  const auto of_input = [&](const onnx::ValueInfoProto& value) { return value.name() == source.input(); };
  const auto& inputs = source.graph().input();
  const onnx::TensorShapeProto& shape =
      std::find_if(inputs.begin(), inputs.end(), of_input)->type().tensor_type().shape();
  if (shape.dim_size() != 4)
    fail(options.onnx, ": the input '", source.input(), "' has ", shape.dim_size(),
         " dimensions, wanted 4: rows, channels, height and width");
  const int64_t channels = shape.dim(1).dim_value();
  const int64_t height = options.height > 0 ? options.height : shape.dim(2).dim_value();
  const int64_t width = options.width > 0 ? options.width : shape.dim(3).dim_value();
  if (height == 0 || width == 0) fail(options.onnx, ": the file does not say how large the images are; add --size HxW");
  if (std::min({channels, height, width}) < 1 || std::max({channels, height, width}) > kMostSide)
    fail(options.onnx, ": the images have ", channels, " channels, height ", height, " and width ", width);
  return {height, width, channels};
}

// Text of a file as a word in a TOML string or comment.
std::string word_of(std::string text) {
  for (char& c : text)
    if (!std::isalnum(static_cast<unsigned char>(c)) && std::string_view("._-").find(c) == std::string_view::npos)
      c = '_';
  return text.empty() ? "unnamed" : text;
}

// Reads the model as any command would, and compares its parameters with the weights.
void check_model(const std::string& text, const std::string& name, const std::vector<OnnxToLayers::Weight>& weights) {
  Config config = Config::text(text, name);
  const Model model = read_model(config);
  std::map<std::string, const OnnxConstant*> given;
  for (const OnnxToLayers::Weight& weight : weights) given[weight.name] = &weight.of;
  size_t params = 0;
  for (const auto& layer : whole_layers(model))
    for (const Param* param : layer->params()) {
      const auto found = given.find(param->name);
      OWT_CHECK(found != given.end(), "the import has no values for ", param->name);
      std::vector<int64_t> dims;
      for (int d = 0; d < param->file_shape.rank(); ++d) dims.push_back(param->file_shape[d]);
      OWT_CHECK(dims == found->second->dims, "the import has values of another shape for ", param->name);
      ++params;
    }
  OWT_CHECK_EQ(params, weights.size(), "parameters of the imported model");
}

Shape shape_of(const std::vector<int64_t>& dims) {
  return dims.size() == 4   ? Shape{dims[0], dims[1], dims[2], dims[3]}
         : dims.size() == 2 ? Shape{dims[0], dims[1]}
                            : Shape{dims[0]};
}

void write_weights(const std::string& path, const std::vector<OnnxToLayers::Weight>& weights) {
  std::vector<SafetensorsWriter::NamedShape> entries;
  for (const OnnxToLayers::Weight& weight : weights) entries.push_back({weight.name, shape_of(weight.of.dims)});
  SafetensorsWriter writer(path, std::move(entries));
  for (const OnnxToLayers::Weight& weight : weights) writer.write(weight.name, weight.of.values);
  writer.finish();
}

}  // namespace

ImportOutcome import_onnx(const ImportOptions& options) {
  const OnnxSource source(options.onnx);
  OnnxChain chain = OnnxBlocks(source).between(source.input(), wanted_output(source, options));
  // The loss of training and the predictions include it.
  if (!chain.empty() && (chain.back().op == "Softmax" || chain.back().op == "LogSoftmax")) chain.pop_back();
  const Shape input = input_shape(source, options);
  OnnxToLayers::Rows x{input};
  OnnxToLayers to_layers(source);
  const std::string layers = to_layers.layers_of(chain, x);
  if (x.shape.elements() != x.columns())
    fail(options.onnx, ": the output has ", x.shape.elements() / x.columns(), " values for each of its ", x.columns(),
         " channels, and a classifier has one; name another with --output");
  const std::filesystem::path file = options.onnx;
  const std::string text =
      format("# Imported from {}, which {} wrote.\nname = \"{}\"\ninput = [{}, {}, {}]\nclasses = {}\nlayer = [\n{}]\n",
             word_of(file.filename().string()), word_of(source.model().producer_name()), word_of(file.stem().string()),
             input[2], input[0], input[1], x.shape.elements(), layers);
  try {
    check_model(text, "its model file", to_layers.weights());
  } catch (const Error& e) {
    fail(options.onnx, ": owt has no such network: ", e.what());
  }
  const std::string beside = options.weights + ".tmp";
  write_weights(beside, to_layers.weights());
  try {
    write_file_atomically(options.model, text);
    std::filesystem::rename(beside, std::filesystem::weakly_canonical(options.weights));
  } catch (const std::exception& e) {
    std::filesystem::remove(beside);
    fail("cannot write ", options.model, " and ", options.weights, ": ", e.what());
  }
  ImportOutcome outcome{source.graph().node_size(), to_layers.layers(), 0};
  for (const OnnxToLayers::Weight& weight : to_layers.weights()) outcome.values += weight.of.elements();
  return outcome;
}

}  // namespace owt
