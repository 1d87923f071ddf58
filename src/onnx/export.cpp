#include "src/onnx/export.h"

#include <onnx/checker.h>

#include <exception>
#include <limits>
#include <optional>
#include <ostream>
#include <streambuf>

#include "src/onnx/export_int8.h"
#include "src/onnx/export_layers.h"
#include "src/system/check.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "src/train/data_facts.h"

namespace owt {
namespace {

constexpr const char* kInput = "images";
constexpr const char* kLogits = "logits";
constexpr const char* kEmbedding = "embedding";
constexpr const char* kProbabilities = "probabilities";

// Converts values of H x W x C to 1 x C x H x W, or to 1 x C x 1 x 1 if all positions of a channel are equal.
std::string add_per_pixel(OnnxGraph& graph, const std::string& name, const Shape& image,
                          const std::vector<float>& values) {
  const int64_t positions = image[0] * image[1], channels = image[2];
  const auto at = [&](int64_t i) { return values[static_cast<size_t>(i)]; };
  std::vector<float> planes;
  bool constant = true;
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t p = 0; p < positions; ++p) {
      planes.push_back(at(p * channels + c));
      constant &= at(p * channels + c) == at(c);
    }
  if (!constant) return graph.constant(name, {1, channels, image[0], image[1]}, planes.data());
  return graph.constant(name, {1, channels, 1, 1}, values.data());
}

OnnxValue add_normalisation(OnnxGraph& graph, const Augmenter& augmenter, const OnnxValue& pixels) {
  const auto [mean, factor] = augmenter.at_centre();
  const Shape image = pixels.shape.row();
  const std::string means = add_per_pixel(graph, "pixel.mean", image, mean);
  const std::string centred = graph.add("Sub", "centred", {pixels.name, means}).output(0);
  const std::string factors = add_per_pixel(graph, "pixel.factor", image, factor);
  return {graph.add("Mul", "normalised", {centred, factors}).output(0), pixels.shape};
}

// N x C x H x W or N x F.
std::vector<int64_t> dims_in_file(const Shape& shape) {
  if (shape.rank() == 4) return {shape[0], shape[3], shape[1], shape[2]};
  return {shape[0], shape[1]};
}

void declare(onnx::ValueInfoProto& value, const std::string& name, const Shape& shape, int64_t batch) {
  value.set_name(name);
  onnx::TypeProto::Tensor& type = *value.mutable_type()->mutable_tensor_type();
  type.set_elem_type(onnx::TensorProto::FLOAT);
  const std::vector<int64_t> dims = dims_in_file(shape);
  onnx::TensorShapeProto::Dimension& rows = *type.mutable_shape()->add_dim();
  if (batch > 0)
    rows.set_dim_value(batch);
  else
    rows.set_dim_param("N");
  for (size_t i = 1; i < dims.size(); ++i) type.mutable_shape()->add_dim()->set_dim_value(dims[i]);
}

// The logits are the last value, x; then probabilities.
void add_scores(OnnxGraph& graph, onnx::GraphProto& out, const std::string& x, const Model& model,
                const LossSettings& loss, const OnnxOptions& options) {
  if (loss.margin.scale > 0)
    graph.add("Mul", kLogits, {x, graph.constant("scale", static_cast<float>(loss.margin.scale))});
  graph.set_output(kLogits);
  if (options.probabilities) {
    if (loss.type == LossType::kLogistic)
      graph.add("Sigmoid", kProbabilities, {kLogits});
    else
      set_attribute(graph.add("Softmax", kProbabilities, {kLogits}), "axis", int64_t{1});
    graph.set_output(kProbabilities);
  }
  const Shape scores{1, model.classes};
  declare(*out.add_output(), options.probabilities ? kProbabilities : kLogits, scores, options.batch);
}

void add_graph(onnx::GraphProto& out, const Model& model, const Augmenter& augmenter, const std::string& weights,
               const LossSettings& loss, const OnnxOptions& options, const std::optional<ActivationRanges>& ranges,
               OnnxData* data) {
  OnnxGraph graph(out, weights, {kInput, kLogits, kEmbedding, kProbabilities}, data, options.opset, ranges.has_value());
  out.set_name(model.name);
  OnnxValue x{kInput, model.input.batch_of(1)};
  declare(*out.add_input(), x.name, x.shape, options.batch);
  if (options.raw_pixels) x = add_normalisation(graph, augmenter, x);
  graph.record(x.name, kImageRange);
  std::vector<std::unique_ptr<Layer>> layers = whole_layers(model);
  const bool embeds = layers.back()->type() == "cosine" && !options.head && !options.probabilities;
  if (embeds) {
    for (const Param* param : layers.back()->params()) graph.leave_out(*param);
    layers.pop_back();
  }
  x = add_layers(graph, Net(std::move(layers), model.input), x);
  x.name = graph.flat("flatten", x);
  if (x.name == kInput) graph.add("Identity", kLogits, {x.name});
  if (embeds) {
    graph.set_output(kEmbedding);
    declare(*out.add_output(), kEmbedding, {1, x.shape.row_elements()}, options.batch);
  } else {
    add_scores(graph, out, x.name, model, loss, options);
    graph.warn_of_unused();
  }
  if (!ranges) return;
  std::map<std::string, ValueRange> of_values;
  for (const auto& [value, layer] : graph.layers()) of_values[value] = ranges->at(layer);
  convert_to_int8(out, graph, std::move(of_values));
}
std::string listed(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += format("{}{}", text.empty() ? "" : " ", value);
  return text;
}

// Means or standard deviations as text, if they can be listed.
std::string described(AugmentSettings::From from, const std::vector<double>& values,
                      const std::vector<double>& of_channels, const char* none) {
  if (from == AugmentSettings::From::kNone) return none;
  if (from == AugmentSettings::From::kPixel) return "of each pixel and channel of the training images";
  return listed(from == AugmentSettings::From::kChannel ? of_channels : values);
}

std::string lines(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : "\n") + shown_class(name);
  return text;
}

void add_metadata(onnx::ModelProto& model, const Settings& settings, const DataFacts& facts,
                  const OnnxOptions& options) {
  const auto add = [&](const std::string& key, const std::string& value) {
    onnx::StringStringEntryProto& entry = *model.add_metadata_props();
    entry.set_key(key);
    entry.set_value(value);
  };
  add("owt.recipe", settings.name);
  const int64_t channels = settings.model.input[2];
  add("owt.channels", channels == 3 ? "RGB" : channels == 1 ? "grey" : std::to_string(channels));
  if (!facts.class_names.empty()) add("owt.classes", lines(facts.class_names));
  if (options.calibration.images > 0)
    add("owt.int8", kCalibrationMethods[static_cast<size_t>(options.calibration.method)]);
  if (options.raw_pixels) return add("owt.input", "pixels 0 to 255");
  const AugmentSettings& augment = settings.data.augment;
  add("owt.input", "(pixel - mean) * scale / std, pixels 0 to 255");
  add("owt.mean", described(augment.mean, augment.mean_values, facts.statistics.channel_mean, "0"));
  add("owt.std", described(augment.std, augment.std_values, facts.statistics.channel_std, "1"));
  add("owt.scale", format("{}", augment.scale));
}

// The IR version of the first ONNX release with that opset (its docs/Versioning.md), so that old readers accept the
// file.
int64_t ir_version(int opset) { return opset <= 11 ? 6 : opset <= 14 ? 7 : 8; }

int64_t weight_bytes(const Model& model) {
  int64_t bytes = 0;
  for (const auto& layer : whole_layers(model))
    for (const Param* param : layer->params()) bytes += param->file_shape.elements() * 4;
  return bytes;
}

// The library writes through it, without a copy of the whole text in memory. It keeps the first error.
class ToFile : public std::streambuf {
 public:
  explicit ToFile(AtomicFileWriter& file) : file_(file) {}
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::streamsize xsputn(const char* bytes, std::streamsize count) override {
    try {
      if (!error_) file_.write(bytes, static_cast<size_t>(count));
    } catch (...) {
      error_ = std::current_exception();
    }
    return error_ ? 0 : count;
  }
  int_type overflow(int_type last) override {
    const char byte = traits_type::to_char_type(last);
    return xsputn(&byte, 1) == 1 ? last : traits_type::eof();
  }

  AtomicFileWriter& file_;
  std::exception_ptr error_;
};

void write(const onnx::ModelProto& model, AtomicFileWriter& file) {
  if (model.ByteSizeLong() > static_cast<size_t>(std::numeric_limits<int>::max()))
    fail("the model takes ", model.ByteSizeLong(), " bytes; an ONNX file holds 2 GB at most");
  ToFile to_file(file);
  std::ostream stream(&to_file);
  model.SerializeToOstream(&stream);
  to_file.rethrow();
}

}  // namespace

void export_onnx(const Settings& settings, const std::string& weights, const OnnxOptions& options,
                 const std::string& file) {
  OWT_CHECK(kFirstOpset <= options.opset && options.opset <= kLastOpset, "opset ", options.opset);
  onnx::ModelProto model;
  model.set_ir_version(ir_version(options.opset));
  model.set_producer_name("owt");
  model.add_opset_import()->set_version(options.opset);
  // The images of the data set are for the ranges then, and the run has the facts.
  const bool for_ranges = options.calibration.images > 0 && !options.run_folder.empty();
  const DataFacts facts = find_data_facts(settings, options.run_folder, for_ranges ? "" : options.data);
  add_metadata(model, settings, facts, options);
  const Augmenter augmenter(settings.data.augment, settings.data.image, facts.statistics);
  std::optional<ActivationRanges> ranges;
  if (options.calibration.images > 0) ranges = activation_ranges(settings, weights, options);
  std::optional<OnnxData> data;  // integers take a quarter of the bytes, and are in the file
  if (!ranges && weight_bytes(settings.model) > options.most_bytes) data.emplace(file);
  add_graph(*model.mutable_graph(), settings.model, augmenter, weights, settings.loss, options, ranges,
            data ? &*data : nullptr);
  if (!data) onnx::checker::check_model(model);
  AtomicFileWriter graph(file);
  write(model, graph);
  if (data) data->close();  // both files change after all that can fail
  graph.close();
  if (!data) return;
  onnx::checker::check_model(file);
  log_info("an ONNX file holds 2 GB at most: the large tensors are in {}.data, which belongs beside it", file);
}

}  // namespace owt
