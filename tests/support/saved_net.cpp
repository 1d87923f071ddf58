#include "tests/support/saved_net.h"

#include <algorithm>
#include <cmath>

#include "src/core/philox.h"
#include "src/files/safetensors.h"
#include "src/system/check.h"
#include "tests/support/harness.h"

namespace owt {
namespace {

// Deviations are large enough that every layer affects the outputs; variances are positive.
void draw(Param& param) {
  param.allocate();
  const Philox random(5, RandomStream::kTest, 0, param.name);
  const bool averages = param.role == ParamRole::kAverage, weight = param.full_shape.rank() > 1;
  const double deviation = weight ? std::sqrt(2.0 / static_cast<double>(param.fan_in)) : 0.3;
  for (int64_t i = 0; i < param.value.elements(); ++i) {
    const float value = static_cast<float>(deviation) * random.normal(static_cast<uint64_t>(i));
    param.value.data()[i] = averages && param.name.ends_with("_var") ? 0.5f + std::abs(value) : value;
  }
}

void save(const std::string& path, const std::vector<Param*>& params) {
  std::vector<SafetensorsWriter::NamedShape> entries;
  for (const Param* param : params) entries.push_back({param->name, param->file_shape});
  SafetensorsWriter writer(path, entries);
  for (const Param* param : params) {
    std::vector<float> values(static_cast<size_t>(param->value.elements()));
    param->to_file_order(param->full_shape.rows(), param->value.data(), values.data());
    writer.write(param->name, values);
  }
  writer.finish();
}

}  // namespace

Settings settings_of_layers(const std::vector<std::string>& keys, const std::string& input, int classes) {
  std::string text = concat("name = 'layers'\ninput = ", input, "\nclasses = ", classes, "\n");
  for (size_t i = 0; i < keys.size(); ++i) {
    std::string lines = keys[i];
    if (lines.find("name=") == std::string::npos) lines += concat(" name='layer", i, "'");
    std::replace(lines.begin(), lines.end(), ' ', '\n');
    text += "[[layer]]\n" + lines + "\n";
  }
  Config model = Config::text(text);
  Settings settings;
  settings.name = "layers";
  settings.model = read_model(model);
  settings.data.image = settings.model.input;
  return settings;
}

SavedNet::SavedNet(const Settings& settings)
    : net_(whole_layers(settings.model), settings.model.input), weights_(folder_.file("weights.safetensors")) {
  for (Param* param : net_.params()) draw(*param);
  save(weights_, net_.params());
}

std::vector<float> SavedNet::logits(const Tensor& images) {
  Tape tape(net_, images.shape().rows(), {}, nullptr);
  DevicePass pass(Device::kCpu, images.shape().rows());
  pass.pass().mode = Mode::kEval;
  return download(tape.forward(pass.pass(), images));
}

std::vector<float> SavedNet::weight(const std::string& name) const {
  for (const Param* param : net_.params())
    if (param->name == name) return download(param->value);
  fail("no parameter '", name, "'");
}

Tensor random_images(int64_t rows, const Shape& image, float deviation) {
  const Philox random(6, RandomStream::kTest, 0, "images");
  Tensor images(image.batch_of(rows));
  for (int64_t i = 0; i < images.elements(); ++i)
    images.data()[i] = deviation * random.normal(static_cast<uint64_t>(i));
  return images;
}

std::vector<float> channels_first(const Tensor& images) {
  const Shape& s = images.shape();
  std::vector<float> planes;
  for (int64_t n = 0; n < s[0]; ++n)
    for (int64_t c = 0; c < s[3]; ++c)
      for (int64_t p = 0; p < s[1] * s[2]; ++p) planes.push_back(images.data()[(n * s[1] * s[2] + p) * s[3] + c]);
  return planes;
}

}  // namespace owt
