#include "src/train/start_weights.h"

#include <fnmatch.h>

#include <algorithm>
#include <set>

#include "src/comm/on_host.h"
#include "src/core/config.h"
#include "src/core/log.h"
#include "src/train/weights.h"

namespace owt {
namespace {

// "block1.conv1" of "block1.conv1.weight".
std::string layer_of(const Param& param) { return param.name.substr(0, param.name.rfind('.')); }

// Whether a pattern is for this layer, or for a layer that it is a part of.
bool is_for(const std::string& pattern, const std::string& layer) {
  for (size_t end = layer.find('.');; end = layer.find('.', end + 1)) {
    if (fnmatch(pattern.c_str(), layer.substr(0, end).c_str(), 0) == 0) return true;
    if (end == std::string::npos) return false;
  }
}

std::vector<std::string> layers_with_weights(const RankModel& model) {
  std::vector<std::string> layers;
  for (const Param* param : model.params())
    if (layers.empty() || layers.back() != layer_of(*param)) layers.push_back(layer_of(*param));
  return layers;
}

std::set<std::string> layers_named(const std::vector<std::string>& patterns, const std::vector<std::string>& layers) {
  std::set<std::string> named;
  for (const std::string& pattern : patterns) {
    std::vector<std::string> of_pattern;
    std::copy_if(layers.begin(), layers.end(), std::back_inserter(of_pattern),
                 [&](const std::string& layer) { return is_for(pattern, layer); });
    if (of_pattern.empty())
      fail("--except ", pattern, ": no layer with weights is called that; there are ", joined(layers));
    named.insert(of_pattern.begin(), of_pattern.end());
  }
  return named;
}

// Rank 0 looks into the file, and says so to the others.
std::set<std::string> mismatched_layers(const std::string& path, const RankModel& model, const Groups& groups) {
  const std::vector<Param*> params = model.params();
  std::vector<double> differs(params.size(), 0);
  if (groups.world().rank() == 0) {
    const SafetensorsReader file(path);
    for (size_t i = 0; i < params.size(); ++i) {
      const auto* entry = file.find(params[i]->name);
      differs[i] = entry && entry->shape == params[i]->file_shape ? 0 : 1;
    }
  }
  differs = on_host::sum(groups.world(), differs, groups.device());
  std::set<std::string> layers;
  for (size_t i = 0; i < params.size(); ++i)
    if (differs[i] > 0) layers.insert(layer_of(*params[i]));
  return layers;
}

}  // namespace

StartedFrom start_from(const StartWeights& start, RankModel& model, const Groups& groups) {
  const std::vector<std::string> layers = layers_with_weights(model);
  std::set<std::string> drawn = layers_named(start.except, layers);
  if (start.except_mismatched) drawn.merge(mismatched_layers(start.file, model, groups));
  const auto is_drawn = [&](const Param& param) { return drawn.contains(layer_of(param)); };

  StartedFrom from;
  for (const std::string& layer : layers)
    if (drawn.contains(layer)) from.drawn.push_back(layer);
  std::set<std::string> expected;
  for (const Param* param : model.params()) {
    if (!is_drawn(*param)) ++from.taken;
    expected.insert(param->name);
  }
  if (from.taken == 0) fail("nothing is left to take from ", start.file, ": all layers are excepted");
  from.unused = load_tensors(
      start.file, model, groups, [&](const Param& param) { return !is_drawn(param); },
      [](Param& param, int64_t first, const Tensor& rows) { param.set_rows(first, rows); });
  std::erase_if(from.unused, [&](const std::string& name) { return expected.contains(name); });
  return from;
}

void log_start_weights(const std::string& file, const StartedFrom& from) {
  log_info("{} tensors taken from {}; {}", from.taken, file,
           from.drawn.empty() ? "none drawn" : concat("drawn anew: ", joined(from.drawn)));
  warn_of_unused(from.unused, file);
}

}  // namespace owt
