#include "src/train/data_identity.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "data/relabelled.h"
#include "src/comm/launch.h"
#include "src/comm/processes.h"
#include "src/files/checkpoint_files.h"
#include "src/files/safetensors.h"
#include "src/net/layer_names.h"
#include "src/system/check.h"
#include "src/system/log.h"
#include "src/system/texts.h"
#include "src/train/job.h"

namespace owt {
namespace {

using Lines = std::vector<std::string>;

bool are_names(const Lines& lines) {
  for (size_t i = 0; i < lines.size(); ++i)
    if (lines[i] != std::to_string(i)) return true;
  return false;
}

bool alike(const Lines& a, const Lines& b) { return std::ranges::equal(a, b, {}, shown_class, shown_class); }

// Finds outputs by class name: by whole lines, else by keys, since some data has keys only.
class Outputs {
 public:
  explicit Outputs(const Lines& lines) {
    for (size_t i = 0; i < lines.size(); ++i) {
      add(whole_, shown_class(lines[i]), static_cast<int>(i));
      add(keys_, class_key(lines[i]), static_cast<int>(i));
    }
  }

  // Nothing if no output, or more than one, has the name.
  std::optional<int> of(const std::string& line) const {
    const auto whole = whole_.find(shown_class(line)), key = keys_.find(class_key(line));
    if (whole != whole_.end() && whole->second != kSeveral) return whole->second;
    if (key != keys_.end() && key->second != kSeveral) return key->second;
    return {};
  }

 private:
  static constexpr int kSeveral = -1;
  using Index = std::map<std::string, int>;
  static void add(Index& index, const std::string& name, int output) {
    if (const auto [at, added] = index.emplace(name, output); !added) at->second = kSeveral;
  }

  Index whole_, keys_;
};

std::string counted(int64_t count) { return concat(count, count == 1 ? " class" : " classes"); }

std::string run_classes(const RunFacts& known) { return concat(known.run, "/classes.txt"); }

constexpr const char* kNumber = ", or add --classes number if label i means output i, whatever the classes are called";

std::string cure(const RunFacts& known, Use use) {
  switch (use) {
    case Use::kTraining:
      return "add --classes data, which gives the model the classes of the data and initialises its last layer "
             "randomly";
    case Use::kResuming:
      return concat("a resumed run keeps its classes; start a new run with --weights ", known.run, " --classes data");
    case Use::kEvaluation:
      break;
  }
  return concat("give data of its classes (owt prepare folder and list: --classes ",
                known.class_names.empty() ? "FILE" : run_classes(known), ")");
}

[[noreturn]] void fail_of_count(const Settings& settings, const RunFacts& known, const DataClasses& data, Use use) {
  const int outputs = settings.model.classes;
  const bool has_as_many = known.class_names.empty() || std::ssize(known.class_names) == outputs;
  fail(data.where, " has ", counted(data.count), ", but model '", settings.model.name, "' has ", outputs,
       has_as_many ? "" : concat(", and ", known.run, " was trained on ", known.class_names.size()), "; ",
       cure(known, use), data.count <= outputs ? kNumber : "");
}

[[noreturn]] void fail_of_names(const RunFacts& known, const DataClasses& data, const Lines& missing, Use use) {
  const bool one = missing.size() == 1;
  fail(data.where, " has the class", one ? " " : "es ", some_classes(missing), ", which ", known.run,
       " does not know (", some_classes(known.class_names), "); ", cure(known, use), kNumber);
}

void check_outputs_of(const Settings& settings, const RunFacts& known, const LabelMap& map) {
  for (const int output : map.outputs)
    if (output >= settings.model.classes)
      fail(run_classes(known), " names ", counted(std::ssize(known.class_names)), ", but model '", settings.model.name,
           "' has ", settings.model.classes, "; these weights are of another model");
}

LabelMap by_number(const Settings& settings, const RunFacts& known, const DataClasses& data, Use use) {
  if (data.count > settings.model.classes) fail_of_count(settings, known, data, use);
  LabelMap map;
  for (int label = 0; label < data.count; ++label) map.outputs.push_back(label);
  map.output_lines = known.class_names.empty() ? data.lines : known.class_names;
  for (size_t label = map.output_lines.size(); !map.output_lines.empty() && std::cmp_less(label, data.count); ++label)
    map.output_lines.push_back(label < data.lines.size() ? data.lines[label] : std::to_string(label));
  return map;
}

LabelMap by_name(const Settings& settings, const RunFacts& known, const DataClasses& data, Use use) {
  LabelMap map;
  map.output_lines = known.class_names;
  const Outputs outputs(known.class_names);
  Lines missing;
  std::set<int> taken;
  const bool same = alike(known.class_names, data.lines);
  for (size_t label = 0; label < data.lines.size(); ++label) {
    const auto output = same ? static_cast<int>(label) : outputs.of(data.lines[label]);
    if (!output || !taken.insert(*output).second)
      missing.push_back(data.lines[label]);
    else
      map.outputs.push_back(*output);
  }
  if (!missing.empty()) fail_of_names(known, data, missing, use);
  check_outputs_of(settings, known, map);
  if (!same)
    map.said = concat(data.where, " has ", data.count, " of the ", known.class_names.size(), " classes of ", known.run,
                      ", matched by their names");
  return map;
}

// The last layer with a number of outputs.
size_t last_layer(const Model& model) {
  for (size_t i = model.layers.size(); i-- > 0;)
    if (Config layer = model.layers[i]; layer.has("out")) {
      if (layer.integer("out") == model.classes) return i;
      break;
    }
  fail("model '", model.name, "' has no layer at its end whose 'out' is the number of its classes, ", model.classes,
       "; change 'classes' and its last layer in a copy of the model file");
}

// Accepts the name in the file, with or without a wrapper's prefix.
bool is_weight_of(const std::string& layer, const std::string& tensor) {
  const auto is_one = [&](const std::string& name) {
    return name.starts_with(layer + ".") && name.ends_with(".weight");
  };
  return is_one(tensor) || is_one(bare_tensor_name(tensor));
}

// The outputs that the file has for the layer; empty: the file has no such tensor. Reads the file on rank 0.
std::string outputs_in(const std::string& file, const std::string& layer) {
  return from_rank_0([&] {
    const SafetensorsReader reader(file);
    for (const auto& entry : reader.entries())
      if (is_weight_of(layer, entry.name) && entry.shape.rank() > 0) return std::to_string(entry.shape[0]);
    return std::string();
  });
}

// False for a file without the layer, which other code checks.
bool has_other_outputs(const std::string& file, const std::string& layer, int outputs) {
  const std::string found = outputs_in(file, layer);
  return !found.empty() && found != std::to_string(outputs);
}

// If the run's statistics do not fit, the recipe computes its own.
RunFacts facts_to_train_with(const Settings& settings, const std::string& weights) {
  const std::string run = from_rank_0([&] { return run_of_weights(weights); });
  try {
    return facts_of_run(settings, run);
  } catch (const Error& e) {
    if (launch().rank == 0) log_warn("{}; those of the data are used", e.what());
    return {};
  }
}

DataClasses classes_in(const Settings& settings, const std::string& folder) {
  const std::vector<std::string> texts = unpacked(from_rank_0([&] {
    std::vector<std::string> found;
    int count = 0;
    if (settings.data.format == "shards") {
      found = shard_classes(folder);
      count = static_cast<int>(found.size());
    } else {
      Settings few = settings;
      few.data.train_images = 1;  // for synthetic data
      few.data.validation = 0;
      few.data.targets = false;
      const auto images = open_split(few, folder, Split::kTrain);
      found = images->class_lines();
      count = images->classes();
    }
    found.insert(found.begin(), std::to_string(count));
    return packed(found);
  }));
  return {{texts.begin() + 1, texts.end()}, std::stoi(texts[0]), concat("the data in ", folder)};
}

}  // namespace

bool LabelMap::changes(const Dataset& data) const {
  for (size_t label = 0; label < outputs.size(); ++label)
    if (std::cmp_not_equal(outputs[label], label)) return true;
  return !output_lines.empty() && output_lines != data.class_lines();
}

LabelMap match_classes(const Settings& settings, const RunFacts& known, const DataClasses& data, Use use) {
  if (settings.data.classes == "number") return by_number(settings, known, data, use);
  if (are_names(known.class_names) && are_names(data.lines)) return by_name(settings, known, data, use);
  const bool drawn = settings.data.format == "synthetic";
  const int wanted = known.class_names.empty() ? settings.model.classes : static_cast<int>(known.class_names.size());
  if (data.count != wanted && !drawn) fail_of_count(settings, known, data, use);
  return by_number(settings, known, data, use);
}

std::shared_ptr<const Dataset> with_outputs_as_labels(std::shared_ptr<const Dataset> data, const LabelMap& map) {
  if (!data || !map.changes(*data)) return data;
  return relabelled(std::move(data), map.outputs, map.output_lines);
}

Settings with_classes_of_data(Settings settings, const std::string& folder, StartWeights& start) {
  if (settings.data.classes != "data") return settings;
  const DataClasses data = classes_in(settings, folder);
  const int before = settings.model.classes;
  const size_t last = last_layer(settings.model);
  const std::string layer = Config(settings.model.layers[last]).string("name");
  if (data.count < 2) fail(data.where, " has ", counted(data.count), "; a network needs at least two");
  if (data.count != before) {
    Config recipe = settings.recipe;
    recipe.set("model.classes", std::to_string(data.count));
    recipe.set(concat("model.layer.", last, ".out"), std::to_string(data.count));
    settings = settings_from(recipe, settings.name);
    if (launch().rank == 0)
      log_info("{} has {}: layer '{}' has as many outputs, in place of {}", data.where, counted(data.count), layer,
               before);
  }
  if (start.file.empty()) return settings;
  const RunFacts known = known_of_start(settings, start);
  const bool others = known.class_names.empty() ? data.count != before : !alike(known.class_names, data.lines);
  if (others || has_other_outputs(start.file, layer, data.count)) start.except.push_back(layer);
  return settings;
}

RunFacts known_of_start(const Settings& settings, const StartWeights& start) {
  if (start.file.empty()) return {};
  RunFacts facts = facts_to_train_with(settings, start.file);
  std::vector<std::string> layers;
  for (const auto& layer : whole_layers(settings.model))
    for (std::string& name : layers_with_weights(layer->params())) layers.push_back(std::move(name));
  if (facts.class_names.empty() || layers.empty()) return facts;
  const bool anew =
      layers_named("--except", start.except, layers).contains(layers.back()) ||
      (start.except_mismatched && outputs_in(start.file, layers.back()) != std::to_string(settings.model.classes));
  if (anew) facts.class_names.clear();
  return facts;
}

RunFacts known_of_resumed(const Settings& settings, const std::string& checkpoint) {
  return facts_to_train_with(settings, checkpoint + "/" + kWeightsFile);
}

bool same_training_images(const RunState& state, const Dataset& train) {
  return state.images == train.size() && (state.data == 0 || state.data == train.checksum());
}

std::optional<RunState> state_of_weights(const std::string& file) {
  const std::string folder = std::filesystem::path(file).parent_path().string();
  if (is_checkpoint(folder)) return load_checkpoint_state(folder);
  const std::string run = run_of_weights(file);
  const auto newest = run.empty() ? std::nullopt : newest_checkpoint(run);
  if (!newest) return {};
  return load_checkpoint_state(*newest);
}

void check_held_out(const Job& job, const std::string& weights, const std::string& data) {
  from_rank_0([&] {
    const std::optional<RunState> state = state_of_weights(weights);
    const uint64_t seed = job.settings.run.seed;
    if (state && (state->seed != seed || state->images != job.train->size()))
      fail("the run of ", weights, " has seed ", state->seed, " and was trained on ", state->images,
           " images; with seed ", seed, " and ", job.train->size(),
           " training images, others would be held out; give the run folder instead of the recipe");
    if (state && !same_training_images(*state, *job.train))
      fail("the run of ", weights, " was trained on other images than those in ", data,
           ", so other images would be held out; give the data of the run");
    return "";
  });
}

void begin_with_other_data(RunState& state) {
  state.images_in_epoch = 0;
  state.best_top1 = 0;
  state.best_step = -1;
  state.since_best = 0;
  state.plateau.best = std::numeric_limits<double>::lowest();
  state.plateau.waited = 0;
}

}  // namespace owt
