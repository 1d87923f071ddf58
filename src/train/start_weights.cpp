#include "src/train/start_weights.h"

#include <algorithm>
#include <set>

#include "src/net/hint.h"
#include "src/net/layer_names.h"
#include "src/system/config.h"
#include "src/system/log.h"
#include "src/train/weights.h"

namespace owt {
namespace {

std::set<std::string> mismatched_layers(const std::string& path, const RankModel& model, const Groups& groups) {
  std::set<std::string> layers;
  for (const Param* param : not_in_file(path, model, groups)) layers.insert(layer_of(*param));
  return layers;
}

// Every rank throws; ranks that cannot read the file give fewer details.
[[noreturn]] void nothing_fits(const std::string& path, const RankModel& model, const Groups& groups) {
  std::vector<std::string> names, in_file;
  for (const Param* param : model.params()) names.push_back(concat(param->name, " ", param->file_shape));
  if (groups.world().rank() == 0) {
    const SafetensorsReader file(path);
    for (const auto& entry : file.entries()) in_file.push_back(concat(entry.name, " ", entry.shape));
  }
  fail("no layer fits ", path, in_file.empty() ? "" : concat(", which has ", some_names(in_file)), "; the model has ",
       some_names(names), "; give the weights of this model, or leave --weights out");
}

}  // namespace

StartedFrom start_from(const StartWeights& start, RankModel& model, const Groups& groups) {
  const std::vector<std::string> layers = layers_with_weights(model.params());
  std::set<std::string> drawn = layers_named("--except", start.except, layers);
  std::set<std::string> unfit = mismatched_layers(start.file, model, groups);
  for (const std::string& layer : layers)
    if (is_of_hint(layer)) drawn.insert(layer);  // weights files need not have it
  if (start.except_mismatched) drawn.merge(unfit);
  std::erase_if(unfit, [&](const std::string& layer) { return drawn.contains(layer); });
  const auto is_drawn = [&](const Param& param) { return drawn.contains(layer_of(param)); };

  StartedFrom from;
  for (const std::string& layer : layers)
    if (drawn.contains(layer)) from.drawn.push_back(layer);
  std::set<std::string> expected;
  for (const Param* param : model.params()) {
    if (!is_drawn(*param)) ++from.taken;
    expected.insert(param->name);
  }
  if (from.taken == 0 && start.except_mismatched && start.except.empty()) nothing_fits(start.file, model, groups);
  if (from.taken == 0) fail("nothing is left to take from ", start.file, ": all layers are excepted");
  try {
    from.unused = load_tensors(
        start.file, model, groups, [&](const Param& param) { return !is_drawn(param); },
        [](Param& param, int64_t first, const Tensor& rows) { param.set_rows(first, rows); });
  } catch (const Error& e) {
    // Only rank 0 has read the file. If no layer fits, the file belongs to another model.
    if (groups.world().rank() > 0 || unfit.empty() || unfit.size() == layers.size()) throw;
    const auto first = std::ranges::find_if(layers, [&](const std::string& layer) { return unfit.contains(layer); });
    fail(e.what(), "; --except ", *first,
         " initialises this layer randomly, --except-mismatched every layer that does not fit");
  }
  std::erase_if(from.unused, [&](const std::string& name) {
    return expected.contains(name) || expected.contains(bare_tensor_name(name));
  });
  return from;
}

void log_start_weights(const std::string& file, const StartedFrom& from) {
  log_info("{} tensors taken from {}; {}", from.taken, file,
           from.drawn.empty() ? "none initialised randomly" : concat("initialised randomly: ", joined(from.drawn)));
  warn_of_unused(from.unused, file);
}

}  // namespace owt
